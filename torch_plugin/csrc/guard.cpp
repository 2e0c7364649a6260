// How PyTorch's generic code reaches the device: current device, streams, events.
#include <c10/core/DeviceCapability.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "allocator.h"

namespace neuron {

namespace {

using c10::Device;
using c10::DeviceIndex;
using c10::Stream;

// A core has one in-order queue, so streams differ in name alone: whatever one waits for has been submitted before.
thread_local c10::StreamId current_streams[kMaxDevices] = {};
std::atomic<c10::StreamId> next_stream{1};

struct Event {
  DeviceIndex device;
  uint64_t sequence = 0;
  c10::DataPtr stamp; // where the executor writes the time, for events that measure
};

Device neuron_device(int index) {
  return Device(kNeuron, static_cast<DeviceIndex>(index));
}

int index_of(Device device) {
  return device.index() < 0 ? current_device() : device.index();
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override {
    return kNeuron;
  }

  Device exchangeDevice(Device device) const override {
    return neuron_device(exchange_device(index_of(device)));
  }

  Device getDevice() const override {
    return neuron_device(current_device());
  }

  void setDevice(Device device) const override {
    exchange_device(index_of(device));
  }

  void uncheckedSetDevice(Device device) const noexcept override {
    unchecked_set_device(device.index());
  }

  Stream getStream(Device device) const override {
    const int index = index_of(device);
    return Stream(Stream::UNSAFE, neuron_device(index), current_streams[index]);
  }

  Stream getDefaultStream(Device device) const override {
    return Stream(Stream::DEFAULT, neuron_device(index_of(device)));
  }

  Stream getStreamFromGlobalPool(Device device, bool) const override {
    return getNewStream(device);
  }

  Stream getNewStream(Device device, int = 0) const override {
    return Stream(Stream::UNSAFE, neuron_device(index_of(device)), next_stream++);
  }

  Stream exchangeStream(Stream stream) const override {
    const int index = stream.device_index();
    const Stream former = getStream(stream.device());
    current_streams[index] = stream.id();
    return former;
  }

  void* getStreamNativeHandle(const Stream stream) const override {
    return reinterpret_cast<void*>(stream.id());
  }

  bool queryStream(const Stream& stream) const override {
    const Core* core = core_if_open(stream.device_index());
    return core == nullptr || core->ring->completed() >= core->ring->submitted();
  }

  void synchronizeStream(const Stream& stream) const override {
    synchronizeDevice(stream.device_index());
  }

  void synchronizeDevice(const DeviceIndex index) const override {
    synchronize(core(index));
  }

  void record(void** event, const Stream& stream, const DeviceIndex, const c10::EventFlag flag) const override {
    const DeviceIndex index = stream.device_index();
    Core& on = core(index);
    auto* recorded = static_cast<Event*>(*event);
    if (recorded == nullptr) {
      recorded = new Event{index};
      *event = recorded;
    }
    TORCH_CHECK(
        recorded->device == index, "the event belongs to neuron:", static_cast<int>(recorded->device),
        " and cannot be recorded on neuron:", static_cast<int>(index));
    if (flag != c10::EventFlag::BACKEND_DEFAULT) {
      recorded->sequence = on.ring->submitted();
      return;
    }
    if (!recorded->stamp) {
      const int former = exchange_device(index);
      recorded->stamp = allocator()->allocate(sizeof(uint64_t));
      unchecked_set_device(former);
    }
    const uint64_t operands[] = {on.offset_of(recorded->stamp.get())};
    recorded->sequence = on.ring->submit(Kind::Stamp, 0, 0, operands, 1, "event");
  }

  void block(void*, const Stream&) const override {}

  bool queryEvent(void* event) const override {
    const auto* recorded = static_cast<Event*>(event);
    return recorded == nullptr || core(recorded->device).ring->completed() >= recorded->sequence;
  }

  void synchronizeEvent(void* event) const override {
    if (const auto* recorded = static_cast<Event*>(event)) {
      Core& on = core(recorded->device);
      on.ring->wait(recorded->sequence);
      raise_failure(on);
    }
  }

  void destroyEvent(void* event, const DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }

  double elapsedTime(void* begin, void* end, const DeviceIndex) const override {
    const auto* first = static_cast<Event*>(begin);
    const auto* second = static_cast<Event*>(end);
    TORCH_CHECK(
        first != nullptr && second != nullptr && first->stamp && second->stamp,
        "both events must be made with enable_timing=True and recorded before their time is asked for");
    synchronizeEvent(begin);
    synchronizeEvent(end);
    const auto stamp = [](const Event* event) { return *static_cast<const int64_t*>(event->stamp.get()); };
    return static_cast<double>(stamp(second) - stamp(first)) / 1e6;
  }

  DeviceIndex deviceCount() const noexcept override {
    return static_cast<DeviceIndex>(device_count());
  }

  c10::DeviceCapability getDeviceCapability(Device) const override {
    return {};
  }
};

} // namespace

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

} // namespace neuron
