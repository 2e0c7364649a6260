#include "pinned.h"

#include <c10/core/impl/alloc_cpu.h>

#include <map>
#include <mutex>

namespace neuron {

namespace {

struct Ranges {
  std::mutex mutex;
  std::map<const char*, size_t> sizes;
};

Ranges& ranges() {
  static auto* all = new Ranges();
  return *all;
}

void unpin(void* data) {
  {
    std::lock_guard<std::mutex> lock(ranges().mutex);
    ranges().sizes.erase(static_cast<char*>(data));
  }
  c10::free_cpu(data);
}

struct PinnedAllocator final : c10::Allocator {
  c10::DataPtr allocate(size_t bytes) override {
    void* data = c10::alloc_cpu(bytes);
    if (data != nullptr) {
      std::lock_guard<std::mutex> lock(ranges().mutex);
      ranges().sizes[static_cast<char*>(data)] = bytes;
    }
    return {data, data, &unpin, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &unpin;
  }
  void copy_data(void* destination, const void* source, std::size_t count) const override {
    default_copy_data(destination, source, count);
  }
};

} // namespace

c10::Allocator* pinned_allocator() {
  static auto* allocator = new PinnedAllocator();
  return allocator;
}

bool is_pinned(const void* data) {
  const char* at = static_cast<const char*>(data);
  std::lock_guard<std::mutex> lock(ranges().mutex);
  auto after = ranges().sizes.upper_bound(at);
  if (after == ranges().sizes.begin()) {
    return false;
  }
  --after;
  return at < after->first + after->second;
}

} // namespace neuron
