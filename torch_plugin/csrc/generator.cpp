#include "generator.h"

#include <ATen/Utils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <array>
#include <cstring>

#include "device.h"

namespace neuron {

GeneratorImpl::GeneratorImpl(c10::DeviceIndex index)
    : c10::GeneratorImpl(c10::Device(kNeuron, index), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

void GeneratorImpl::set_current_seed(uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}

void GeneratorImpl::set_offset(uint64_t offset) {
  offset_ = offset;
}

uint64_t GeneratorImpl::get_offset() const {
  return offset_;
}

uint64_t GeneratorImpl::current_seed() const {
  return seed_;
}

uint64_t GeneratorImpl::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

c10::DeviceType GeneratorImpl::device_type() {
  return kNeuron;
}

c10::intrusive_ptr<c10::TensorImpl> GeneratorImpl::get_state() const {
  const std::array<uint64_t, 2> words = {seed_, offset_};
  at::Tensor state = at::empty({sizeof(words)}, at::TensorOptions(at::kByte).device(at::kCPU));
  std::memcpy(state.mutable_data_ptr(), words.data(), sizeof(words));
  return state.getIntrusivePtr();
}

void GeneratorImpl::set_state(const c10::TensorImpl& state) {
  std::array<uint64_t, 2> words{};
  TORCH_CHECK(
      state.numel() == sizeof(words) && state.dtype() == caffe2::TypeMeta::Make<uint8_t>() &&
          state.device().is_cpu() && state.is_contiguous(),
      "the state of a neuron generator is a contiguous CPU tensor of ", sizeof(words), " bytes");
  std::memcpy(words.data(), state.data(), sizeof(words));
  seed_ = words[0];
  offset_ = words[1];
}

std::pair<uint64_t, uint64_t> GeneratorImpl::take(uint64_t count) {
  std::lock_guard<std::mutex> lock(mutex_);
  const uint64_t begin = offset_;
  offset_ += count;
  return {seed_, begin};
}

GeneratorImpl* GeneratorImpl::clone_impl() const {
  auto* copy = new GeneratorImpl(device().index());
  copy->seed_ = seed_;
  copy->offset_ = offset_;
  return copy;
}

const at::Generator& default_generator(c10::DeviceIndex index) {
  static const auto* all = [] {
    auto* made = new std::vector<at::Generator>();
    for (int i = 0; i < kMaxDevices; ++i) {
      made->push_back(at::make_generator<GeneratorImpl>(static_cast<c10::DeviceIndex>(i)));
    }
    return made;
  }();
  const int wanted = index < 0 ? current_device() : index;
  TORCH_CHECK(wanted < kMaxDevices, "there is no device neuron:", wanted);
  return (*all)[wanted];
}

at::Generator new_generator(c10::DeviceIndex index) {
  return at::make_generator<GeneratorImpl>(
      index < 0 ? static_cast<c10::DeviceIndex>(current_device()) : index);
}

GeneratorImpl& generator_or_default(const std::optional<at::Generator>& given, int index) {
  if (given.has_value() && given->defined()) {
    TORCH_CHECK(
        given->device().type() == kNeuron, "Expected a 'neuron' device type for generator but found '",
        given->device().type(), "'");
    return *static_cast<GeneratorImpl*>(given->unsafeGetGeneratorImpl());
  }
  return *static_cast<GeneratorImpl*>(
      default_generator(static_cast<c10::DeviceIndex>(index)).unsafeGetGeneratorImpl());
}

} // namespace neuron
