#include "storage.h"

#include <ATen/Context.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "allocator.h"
#include "copy.h"
#include "generator.h"
#include "pinned.h"

namespace neuron {

namespace {

at::Tensor bytes_of(const c10::Storage& storage, size_t count) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), caffe2::TypeMeta::Make<uint8_t>());
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<int64_t>(count)});
  return tensor;
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return device_count() > 0;
  }
  bool hasPrimaryContext(c10::DeviceIndex index) const override {
    return core_if_open(index) != nullptr;
  }
  void init() const override {
    core(current_device());
  }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(device_count());
  }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    exchange_device(index);
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(current_device());
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    return static_cast<c10::DeviceIndex>(exchange_device(index));
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return index < 0 ? getCurrentDevice() : exchangeDevice(index);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex index) const override {
    return default_generator(index);
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return new_generator(index);
  }
  at::Device getDeviceFromPtr(void* data) const override {
    for (int index = 0; index < kMaxDevices; ++index) {
      const Core* core = core_if_open(index);
      if (core != nullptr && core->holds(data)) {
        return {kNeuron, static_cast<c10::DeviceIndex>(index)};
      }
    }
    TORCH_CHECK(false, "the pointer does not lie in the memory of a neuron device");
  }
  bool isPinnedPtr(const void* data) const override {
    return is_pinned(data);
  }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    return pinned_allocator();
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(storage, bytes);
  }
};

} // namespace

void resize_storage(const c10::Storage& storage, size_t bytes) {
  auto* impl = storage.unsafeGetStorageImpl();
  TORCH_CHECK(impl->resizable(), "Trying to resize storage that is not resizable");
  const size_t kept = std::min(bytes, impl->nbytes());
  const at::Tensor fresh =
      empty_on_device({static_cast<int64_t>(bytes)}, {1}, at::kByte, storage.device().index());
  if (kept > 0) {
    copy_on_device(bytes_of(fresh.storage(), kept), bytes_of(storage, kept), "resize_");
  }
  impl->set_data_ptr_noswap(fresh.storage().unsafeGetStorageImpl()->set_data_ptr(
      c10::DataPtr(nullptr, storage.device())));
  impl->set_nbytes(bytes);
}

void register_hooks() {
  static auto* hooks = new Hooks();
  at::RegisterPrivateUse1HooksInterface(hooks);
}

} // namespace neuron
