#include "copy.h"

#include <ATen/Dispatch_v2.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cstring>

#include "allocator.h"
#include "dispatch.h"
#include "recording.h"

namespace neuron {

namespace {

constexpr size_t kStagedBytes = 1 << 20;
constexpr int64_t kMaxDimensions = 32; // what the executor's arrays can have

at::Tensor dense_like(const at::Tensor& tensor) {
  return empty_on_device(
      tensor.sizes(), at::contiguous_strides(tensor.sizes()), tensor.scalar_type(), tensor.device().index());
}

void append_strides(std::vector<uint64_t>& operands, const at::Tensor& tensor) {
  for (const int64_t stride : tensor.strides()) {
    operands.push_back(static_cast<uint64_t>(stride * tensor.element_size()));
  }
}

void append_sizes(std::vector<uint64_t>& operands, const at::Tensor& tensor) {
  for (const int64_t size : tensor.sizes()) {
    operands.push_back(static_cast<uint64_t>(size));
  }
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg();
}

// The plain bytes of a tensor, whatever its conjugate or negative bit says.
at::Tensor host_bytes(const at::Tensor& tensor) {
  Core& core = core_of(tensor);
  core.ring->wait(last_use(core, tensor));
  raise_failure(core);
  const auto options = at::TensorOptions().dtype(tensor.dtype()).device(at::kCPU);
  if (tensor.numel() == 0) {
    return at::empty(tensor.sizes(), options);
  }
  // The storage is kept alive by the view.
  return at::from_blob(
      tensor.data_ptr(), tensor.sizes(), tensor.strides(), [keep = tensor.storage()](void*) {}, options);
}

} // namespace

Core& core_of(const at::Tensor& tensor) {
  return core(tensor.device().index());
}

at::Tensor empty_on_device(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype, int index) {
  const int former = exchange_device(index);
  try {
    auto made = at::detail::empty_strided_generic(
        sizes, strides, allocator(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), dtype);
    unchecked_set_device(former);
    return made;
  } catch (...) {
    unchecked_set_device(former);
    throw;
  }
}

at::Tensor host_view(const at::Tensor& tensor) {
  at::Tensor view = host_bytes(tensor);
  view._set_conj(tensor.is_conj());
  view._set_neg(tensor.is_neg());
  return view;
}

void copy_on_device(const at::Tensor& destination, const at::Tensor& source, const char* operation) {
  if (destination.numel() == 0) {
    return;
  }
  Core& core = core_of(destination);
  uint64_t sequence = 0;
  if (destination.strides() == source.strides() && destination.is_non_overlapping_and_dense()) {
    if (destination.data_ptr() == source.data_ptr()) {
      return;
    }
    const uint64_t operands[] = {
        core.offset_of(destination.data_ptr()), core.offset_of(source.data_ptr()), destination.nbytes()};
    sequence = submit(core, Kind::Copy, 0, 0, operands, 3, operation);
  } else {
    TORCH_CHECK(destination.dim() <= kMaxDimensions, "copies have at most ", kMaxDimensions, " dimensions");
    std::vector<uint64_t> operands{
        core.offset_of(destination.data_ptr()), core.offset_of(source.data_ptr()),
        static_cast<uint64_t>(destination.element_size())};
    append_sizes(operands, destination);
    append_strides(operands, destination);
    append_strides(operands, source);
    sequence = submit(core, Kind::CopyStrided, 0, 0, operands.data(), operands.size(), operation);
  }
  mark_use(destination, sequence);
  mark_use(source, sequence);
  after_submit(core);
}

void fill_on_device(const at::Tensor& destination, const at::Scalar& value) {
  if (destination.numel() == 0) {
    return;
  }
  Core& core = core_of(destination);
  const auto bits = bits_of(value, destination.scalar_type());
  std::vector<uint64_t> operands{
      core.offset_of(destination.data_ptr()), static_cast<uint64_t>(destination.element_size()), bits[0], bits[1]};
  if (destination.is_non_overlapping_and_dense()) {
    operands.push_back(static_cast<uint64_t>(destination.numel()));
    operands.push_back(static_cast<uint64_t>(destination.element_size()));
  } else {
    append_sizes(operands, destination);
    append_strides(operands, destination);
  }
  const uint64_t sequence =
      submit(core, Kind::FillStrided, 0, 0, operands.data(), operands.size(), "aten::fill_");
  mark_use(destination, sequence);
  after_submit(core);
}

void write_from_host(const at::Tensor& destination, const void* source, size_t bytes) {
  if (bytes == 0) {
    return;
  }
  Core& core = core_of(destination);
  const uint64_t busy = last_use(core, destination);
  if (core.ring->completed() < busy && bytes <= kStagedBytes) {
    const at::Tensor staged = empty_on_device(
        destination.sizes(), destination.strides(), destination.scalar_type(), destination.device().index());
    if (core.ring->completed() >= last_use(core, staged)) {
      std::memcpy(staged.data_ptr(), source, bytes);
      copy_on_device(destination, staged);
      return;
    }
  }
  core.ring->wait(busy);
  std::memcpy(destination.data_ptr(), source, bytes);
}

void copy_tensor(const at::Tensor& destination, const at::Tensor& given) {
  if (destination.numel() == 0) {
    return;
  }
  at::Tensor source = given.sizes() == destination.sizes() ? given : given.expand(destination.sizes());
  if (on_neuron(destination) && on_neuron(source)) {
    if (destination.device() == source.device() && same_bits(destination, source)) {
      if (source.scalar_type() != destination.scalar_type()) {
        source = cast(source, destination.scalar_type());
      }
      at::assert_no_internal_overlap(destination);
      copy_on_device(destination, source);
      return;
    }
    source = host_view(source);
  }
  if (!on_neuron(destination)) {
    TORCH_CHECK(destination.device().is_cpu(), "cannot copy from ", source.device(), " to ", destination.device());
    destination.copy_(host_view(source));
    return;
  }
  TORCH_CHECK(source.device().is_cpu(), "cannot copy from ", source.device(), " to ", destination.device());
  source = source.to(destination.scalar_type());
  if (destination.is_conj()) {
    source = source.conj();
  }
  if (destination.is_neg()) {
    source = source.neg();
  }
  source = source.resolve_conj().resolve_neg().contiguous();
  if (destination.is_contiguous()) {
    write_from_host(destination, source.const_data_ptr(), source.nbytes());
  } else {
    const at::Tensor dense = dense_like(destination);
    write_from_host(dense, source.const_data_ptr(), source.nbytes());
    copy_on_device(destination, dense);
  }
}

std::array<uint64_t, 2> bits_of(const at::Scalar& value, at::ScalarType dtype) {
  std::array<uint64_t, 2> words{};
  AT_DISPATCH_V2(
      dtype, "fill", AT_WRAP([&] {
        const auto converted = value.to<scalar_t>();
        static_assert(sizeof(converted) <= sizeof(words));
        std::memcpy(words.data(), &converted, sizeof(converted));
      }),
      AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX), AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES), AT_EXPAND(AT_FLOAT8_TYPES),
      at::kComplexHalf, at::kHalf, at::kBFloat16, at::kBool);
  return words;
}

} // namespace neuron
