#include "allocator.h"

#include <c10/util/Exception.h>

#include <iomanip>
#include <set>
#include <sstream>

namespace neuron {

namespace {

using c10::CachingAllocator::StatType;
using c10::CachingDeviceAllocator::DeviceStats;

constexpr size_t kRound = 512;
constexpr size_t kSmall = 1 << 20; // requests up to this share segments of
constexpr size_t kSmallSegment = 2 << 20;
constexpr size_t kLarge = 10 << 20; // requests up to this share segments of
constexpr size_t kLargeSegment = 20 << 20;
constexpr size_t kSegmentRound = 2 << 20;

struct Block {
  int device;
  char* data;
  size_t size;
  bool small;
  bool in_use = false;
  // A core's commands run in order, so a freed block may be handed out while commands still read it: whoever gets
  // it uses it in later commands. Only the host has to look at this number before it touches the memory.
  std::atomic<uint64_t> last_use{0};
  Block* previous = nullptr;
  Block* next = nullptr;

  bool whole_segment() const {
    return previous == nullptr && next == nullptr;
  }
};

struct BySize {
  bool operator()(const Block* a, const Block* b) const {
    return a->size != b->size ? a->size < b->size : a->data < b->data;
  }
};

using Pool = std::set<Block*, BySize>;

struct Memory {
  std::mutex mutex;
  Pool small;
  Pool large;
  DeviceStats stats{};
  int64_t requests = 0;
  int64_t frees = 0;

  Pool& pool(bool is_small) {
    return is_small ? small : large;
  }
};

Memory& memory(int index) {
  static auto* all = new Memory[kMaxDevices];
  return all[index];
}

constexpr size_t kAggregate = static_cast<size_t>(StatType::AGGREGATE);

void grow(c10::CachingAllocator::StatArray& stat, size_t amount) {
  stat[kAggregate].increase(amount);
}

void shrink(c10::CachingAllocator::StatArray& stat, size_t amount) {
  stat[kAggregate].decrease(amount);
}

std::string readable(int64_t bytes) {
  static const char* const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    ++unit;
  }
  std::ostringstream text;
  text << std::fixed << std::setprecision(unit == 0 ? 0 : 2) << value << ' ' << units[unit];
  return text.str();
}

void free_block(void* context);

class CachingAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const int index = current_device();
    const c10::Device device(kNeuron, static_cast<c10::DeviceIndex>(index));
    Core& core = neuron::core(index);
    if (bytes == 0) {
      return {nullptr, nullptr, &free_block, device};
    }
    Block* block = take(core, bytes);
    return {block->data, block, &free_block, device};
  }

  // For storages that are moved whole: they come back through the same deleter.
  c10::DeleterFnPtr raw_deleter() const override {
    return nullptr;
  }

  void copy_data(void* destination, const void* source, std::size_t count) const override {
    Core& core = neuron::core(current_device());
    const uint64_t operands[] = {core.offset_of(destination), core.offset_of(source), count};
    core.ring->submit(Kind::Copy, 0, 0, operands, 3, "aten::copy_");
    after_submit(core);
  }

  bool initialized() override {
    return neuron::initialized();
  }

  void emptyCache(c10::MempoolId_t) override {
    for (int index = 0; index < kMaxDevices; ++index) {
      if (core_if_open(index) != nullptr) {
        release_segments(index);
      }
    }
  }

  // One in-order queue a device: work of every stream is ordered already.
  void recordStream(const c10::DataPtr&, c10::Stream) override {}

  DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    Memory& m = memory(device);
    std::lock_guard<std::mutex> lock(m.mutex);
    return m.stats;
  }

  void resetAccumulatedStats(c10::DeviceIndex device) override {
    Memory& m = memory(device);
    std::lock_guard<std::mutex> lock(m.mutex);
    each(m.stats, [](auto& stat) { stat.reset_accumulated(); });
    m.stats.num_alloc_retries = m.stats.num_ooms = m.requests = m.frees = 0;
  }

  void resetPeakStats(c10::DeviceIndex device) override {
    Memory& m = memory(device);
    std::lock_guard<std::mutex> lock(m.mutex);
    each(m.stats, [](auto& stat) { stat.reset_peak(); });
  }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    Core& core = neuron::core(device);
    Memory& m = memory(device);
    std::lock_guard<std::mutex> lock(m.mutex);
    return {core.bytes - m.stats.reserved_bytes[kAggregate].current, core.bytes};
  }

  void give_back(Block* block) {
    Memory& m = memory(block->device);
    std::lock_guard<std::mutex> lock(m.mutex);
    shrink(m.stats.allocated_bytes, block->size);
    shrink(m.stats.active_bytes, block->size);
    shrink(m.stats.allocation, 1);
    shrink(m.stats.active, 1);
    ++m.frees;
    block->in_use = false;
    Pool& pool = m.pool(block->small);
    if (Block* before = block->previous; before != nullptr && !before->in_use) {
      pool.erase(before);
      block = merge(before, block);
    }
    if (Block* after = block->next; after != nullptr && !after->in_use) {
      pool.erase(after);
      block = merge(block, after);
    }
    pool.insert(block);
  }

 private:
  template <class F>
  static void each(DeviceStats& stats, F apply) {
    for (auto* array : {&stats.allocation, &stats.segment, &stats.active, &stats.allocated_bytes,
                        &stats.reserved_bytes, &stats.active_bytes}) {
      for (auto& stat : *array) {
        apply(stat);
      }
    }
  }

  static Block* merge(Block* left, Block* right) {
    left->size += right->size;
    left->last_use = std::max(left->last_use.load(), right->last_use.load());
    left->next = right->next;
    if (right->next != nullptr) {
      right->next->previous = left;
    }
    delete right;
    return left;
  }

  static Block* take(Core& core, size_t bytes) {
    const size_t size = (bytes + kRound - 1) / kRound * kRound;
    Memory& m = memory(core.index);
    std::unique_lock<std::mutex> lock(m.mutex);
    ++m.requests;
    Block* block = find(m, size);
    if (block == nullptr) {
      // The runtime is Python: its lock may not be waited for with ours held.
      lock.unlock();
      block = new_segment(core, size);
      lock.lock();
    }
    split(m, block, size);
    block->in_use = true;
    grow(m.stats.allocated_bytes, block->size);
    grow(m.stats.active_bytes, block->size);
    grow(m.stats.allocation, 1);
    grow(m.stats.active, 1);
    return block;
  }

  static Block* find(Memory& m, size_t size) {
    Pool& pool = m.pool(size <= kSmall);
    Block wanted{};
    wanted.size = size;
    const auto found = pool.lower_bound(&wanted);
    // A large block is not broken up for a request far below it; it would be missed by the next large one.
    if (found == pool.end() || (size > kSmall && (*found)->size > 2 * std::max(size, kLargeSegment))) {
      return nullptr;
    }
    Block* block = *found;
    pool.erase(found);
    return block;
  }

  static void split(Memory& m, Block* block, size_t size) {
    const size_t rest = block->size - size;
    if (rest < (block->small ? kRound : kSmall)) {
      return;
    }
    auto* tail = new Block{block->device, block->data + size, rest, block->small};
    tail->last_use = block->last_use.load();
    tail->previous = block;
    tail->next = block->next;
    if (tail->next != nullptr) {
      tail->next->previous = tail;
    }
    block->next = tail;
    block->size = size;
    m.pool(block->small).insert(tail);
  }

  static Block* new_segment(Core& core, size_t size) {
    const size_t bytes = size <= kSmall ? kSmallSegment
        : size <= kLarge                ? kLargeSegment
                                        : (size + kSegmentRound - 1) / kSegmentRound * kSegmentRound;
    Memory& m = memory(core.index);
    std::string why;
    int64_t offset = runtime().allocate(core.index, bytes, why);
    if (offset < 0) {
      {
        std::lock_guard<std::mutex> lock(m.mutex);
        ++m.stats.num_alloc_retries;
      }
      release_segments(core.index);
      offset = runtime().allocate(core.index, bytes, why);
    }
    if (offset < 0) {
      {
        std::lock_guard<std::mutex> lock(m.mutex);
        ++m.stats.num_ooms;
      }
      TORCH_CHECK_WITH(
          OutOfMemoryError, false, "Neuron out of memory. Tried to allocate ", readable(size), " on neuron:",
          core.index, ": ", why, "\n", memory_summary(core.index));
    }
    auto* block = new Block{core.index, core.base + offset, bytes, size <= kSmall};
    std::lock_guard<std::mutex> lock(m.mutex);
    grow(m.stats.reserved_bytes, bytes);
    grow(m.stats.segment, 1);
    return block;
  }

  static void release_segments(int index) {
    Memory& m = memory(index);
    std::vector<Block*> idle;
    {
      std::lock_guard<std::mutex> lock(m.mutex);
      for (Pool* pool : {&m.small, &m.large}) {
        for (auto at = pool->begin(); at != pool->end();) {
          if ((*at)->whole_segment()) {
            idle.push_back(*at);
            at = pool->erase(at);
          } else {
            ++at;
          }
        }
      }
      for (const Block* block : idle) {
        shrink(m.stats.reserved_bytes, block->size);
        shrink(m.stats.segment, 1);
      }
    }
    const Core& core = neuron::core(index);
    for (Block* block : idle) {
      runtime().release(index, static_cast<int64_t>(core.offset_of(block->data)), block->last_use);
      delete block;
    }
  }
};

CachingAllocator& instance() {
  static auto* made = new CachingAllocator();
  return *made;
}

void free_block(void* context) {
  if (context != nullptr) {
    instance().give_back(static_cast<Block*>(context));
  }
}

Block* block_of(const at::Tensor& tensor) {
  const auto& data = tensor.storage().data_ptr();
  return data.get_deleter() == &free_block ? static_cast<Block*>(data.get_context()) : nullptr;
}

} // namespace

REGISTER_ALLOCATOR(kNeuron, &instance());

c10::DeviceAllocator* allocator() {
  return &instance();
}

uint64_t last_use(Core& core, const at::Tensor& tensor) {
  const Block* block = block_of(tensor);
  return block != nullptr ? block->last_use.load() : core.ring->submitted();
}

void mark_use(const at::Tensor& tensor, uint64_t sequence) {
  if (Block* block = block_of(tensor)) {
    block->last_use = sequence;
  }
}

std::string memory_summary(int index) {
  const DeviceStats stats = instance().getDeviceStats(static_cast<c10::DeviceIndex>(index));
  std::ostringstream text;
  text << "| Neuron memory summary, device " << index << '\n'
       << "| " << std::left << std::setw(18) << "" << std::right << std::setw(14) << "current" << std::setw(14)
       << "peak" << std::setw(14) << "allocated" << std::setw(14) << "freed" << '\n';
  const std::pair<const char*, const c10::CachingAllocator::StatArray*> rows[] = {
      {"allocated memory", &stats.allocated_bytes},
      {"active memory", &stats.active_bytes},
      {"reserved memory", &stats.reserved_bytes}};
  for (const auto& [name, array] : rows) {
    const auto& stat = (*array)[kAggregate];
    text << "| " << std::left << std::setw(18) << name << std::right << std::setw(14) << readable(stat.current)
         << std::setw(14) << readable(stat.peak) << std::setw(14) << readable(stat.allocated) << std::setw(14)
         << readable(stat.freed) << '\n';
  }
  text << "| allocations retried: " << stats.num_alloc_retries << ", failed: " << stats.num_ooms;
  return text.str();
}

std::pair<int64_t, int64_t> request_counts(int index) {
  Memory& m = memory(index);
  std::lock_guard<std::mutex> lock(m.mutex);
  return {m.requests, m.frees};
}

} // namespace neuron
