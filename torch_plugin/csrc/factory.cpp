// The kernels every tensor needs, whether or not anything is ever computed on it.
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/InferSize.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "allocator.h"
#include "copy.h"
#include "storage.h"

namespace neuron {

namespace {

using at::Tensor;

void check_format(std::optional<at::MemoryFormat> format) {
  TORCH_CHECK(
      !format.has_value() || *format == at::MemoryFormat::Contiguous || *format == at::MemoryFormat::Preserve,
      "Neuron only supports contiguous/preserve memory format");
}

int index_of(std::optional<at::Device> device) {
  return device.has_value() && device->has_index() ? device->index() : current_device();
}

at::ScalarType dtype_of(std::optional<at::ScalarType> dtype) {
  return dtype.value_or(at::typeMetaToScalarType(at::get_default_dtype()));
}

Tensor empty(
    at::IntArrayRef size,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> layout,
    std::optional<at::Device> device,
    std::optional<bool> pin_memory,
    std::optional<at::MemoryFormat> format) {
  TORCH_CHECK(
      layout.value_or(at::kStrided) == at::kStrided, "Neuron tensors are strided; ", *layout, " is not supported");
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  check_format(format);
  return empty_on_device(size, at::contiguous_strides(size), dtype_of(dtype), index_of(device));
}

// Zeros that take no memory; PyTorch makes real ones of them where an operator reads them.
Tensor zero_tensor(
    at::IntArrayRef size,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout>,
    std::optional<at::Device> device,
    std::optional<bool>) {
  at::native::ZeroTensorAllocator allocator(at::Device(kNeuron, static_cast<c10::DeviceIndex>(index_of(device))));
  const at::DispatchKeySet keys =
      at::DispatchKeySet(c10::DispatchKey::PrivateUse1) | at::DispatchKeySet(c10::DispatchKey::ZeroTensor);
  return at::detail::empty_generic(size, &allocator, keys, dtype_of(dtype), std::nullopt);
}

Tensor empty_strided(
    at::IntArrayRef size,
    at::IntArrayRef stride,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> layout,
    std::optional<at::Device> device,
    std::optional<bool> pin_memory) {
  TORCH_CHECK(
      layout.value_or(at::kStrided) == at::kStrided, "Neuron tensors are strided; ", *layout, " is not supported");
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  return empty_on_device(size, stride, dtype_of(dtype), index_of(device));
}

const Tensor& resize_(const Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat> format) {
  check_format(format);
  auto* impl = self.unsafeGetTensorImpl();
  const size_t needed =
      at::detail::computeStorageNbytesContiguous(size, self.element_size(), self.storage_offset());
  if (c10::multiply_integers(size) > 0 && needed > self.storage().nbytes()) {
    resize_storage(self.storage(), needed);
  }
  impl->set_sizes_contiguous(size);
  return self;
}

Tensor& set_storage_strided(
    Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size, at::IntArrayRef stride) {
  at::native::checkSetStorage(self, source, offset, size, stride, /*check_offset_in_bounds=*/false);
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(offset);
  const at::IntArrayRef strides = stride.data() != nullptr ? stride : at::contiguous_strides(size);
  const size_t needed = at::detail::computeStorageNbytes(size, strides, self.element_size(), offset);
  if (c10::multiply_integers(size) > 0 && needed > self.storage().nbytes()) {
    resize_storage(self.storage(), needed);
  }
  impl->set_sizes_and_strides(size, strides);
  return self;
}

Tensor& set_storage(Tensor& self, at::Storage source) {
  const int64_t elements = static_cast<int64_t>(source.nbytes() / self.element_size());
  const int64_t stride = 1;
  return set_storage_strided(self, std::move(source), 0, elements, stride);
}

Tensor& set_tensor(Tensor& self, const Tensor& source) {
  if (self.unsafeGetTensorImpl() != source.unsafeGetTensorImpl()) {
    set_storage_strided(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
  }
  return self;
}

Tensor& set_nothing(Tensor& self) {
  const Tensor fresh = empty_on_device({0}, {1}, self.scalar_type(), self.device().index());
  return set_storage_strided(self, fresh.storage(), 0, {0}, {1});
}

Tensor copy_from(const Tensor& self, const Tensor& dst, bool) {
  copy_tensor(dst, self);
  return dst;
}

Tensor copy_from_and_resize(const Tensor& self, const Tensor& dst) {
  if (self.sizes() != dst.sizes()) {
    dst.resize_(self.sizes());
  }
  copy_tensor(dst, self);
  return dst;
}

Tensor& fill_scalar(Tensor& self, const at::Scalar& value) {
  if (self.is_conj() || self.is_neg()) {
    copy_tensor(self, at::scalar_tensor(value, at::TensorOptions(self.scalar_type()).device(at::kCPU)));
  } else {
    fill_on_device(self, value);
  }
  return self;
}

Tensor& fill_tensor(Tensor& self, const Tensor& value) {
  TORCH_CHECK(
      value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ", value.dim(),
      " dimensions.");
  if (value.device().is_cpu()) {
    return fill_scalar(self, value.item());
  }
  copy_tensor(self, value);
  return self;
}

Tensor& zero_(Tensor& self) {
  return fill_scalar(self, 0);
}

at::Scalar local_scalar_dense(const Tensor& self) {
  return host_view(self).item();
}

// Both have to be waited for; the host then compares where they lie.
bool equal(const Tensor& self, const Tensor& other) {
  TORCH_CHECK(
      self.device() == other.device(), "Expected all tensors to be on the same device, but found at least two devices, ",
      self.device(), " and ", other.device(), "!");
  return host_view(self).equal(host_view(other));
}

Tensor as_strided(
    const Tensor& self, at::IntArrayRef size, at::IntArrayRef stride, std::optional<int64_t> storage_offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, storage_offset);
}

// `transpose_` and its like end here.
const Tensor& as_strided_(
    const Tensor& self, at::IntArrayRef size, at::IntArrayRef stride, std::optional<int64_t> storage_offset) {
  self.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, storage_offset.value_or(self.storage_offset()));
  return self;
}

// Attention is made of operators that compile; there is no fused kernel to choose.
int64_t choose_attention(
    const Tensor&, const Tensor&, const Tensor&, const std::optional<Tensor>&, double, bool, std::optional<double>,
    bool) {
  return static_cast<int64_t>(sdp::SDPBackend::math);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("_efficientzerotensor", TORCH_FN(zero_tensor));
  m.impl("as_strided", TORCH_FN(as_strided));
  m.impl("as_strided_", TORCH_FN(as_strided_));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("unfold", TORCH_FN(at::native::unfold));
  m.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  m.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  m.impl("resize_", TORCH_FN(resize_));
  m.impl("set_.source_Storage", TORCH_FN(set_storage));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage_strided));
  m.impl("set_.source_Tensor", TORCH_FN(set_tensor));
  m.impl("set_", TORCH_FN(set_nothing));
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  m.impl("fill_.Scalar", TORCH_FN(fill_scalar));
  m.impl("fill_.Tensor", TORCH_FN(fill_tensor));
  m.impl("zero_", TORCH_FN(zero_));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
  m.impl("equal", TORCH_FN(equal));
  m.impl("_fused_sdp_choice", TORCH_FN(choose_attention));
}

// `_copy_from` reads the conjugate and negative bits itself; PyTorch would clone such a tensor first, which copies it.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

} // namespace

} // namespace neuron

namespace at::native {
namespace {
int64_t choose_attention_stub(
    const Tensor& query, const Tensor& key, const Tensor& value, const std::optional<Tensor>& mask, double dropout,
    bool causal, std::optional<double> scale, bool grouped) {
  return neuron::choose_attention(query, key, value, mask, dropout, causal, scale, grouped);
}
} // namespace
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &choose_attention_stub)
} // namespace at::native
