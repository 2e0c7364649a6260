// Moving bytes: between host and HBM, and within HBM by the core's own queue.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/strides.h>

#include "device.h"

namespace neuron {

Core& core_of(const at::Tensor& tensor);
inline bool on_neuron(const at::Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kNeuron;
}

// A CPU tensor over the same memory, once the commands that use it have ended; raises their errors.
at::Tensor host_view(const at::Tensor& tensor);

// Within one core, in stream order; sizes and dtypes must be equal. `operation` names it in errors.
void copy_on_device(const at::Tensor& destination, const at::Tensor& source, const char* operation = "aten::copy_");
void fill_on_device(const at::Tensor& destination, const at::Scalar& value);
// A contiguous tensor's bytes from host memory; waits only where the memory is in use and the bytes are many.
void write_from_host(const at::Tensor& destination, const void* source, size_t bytes);

// `copy_` between any two tensors, at least one of them on the device.
void copy_tensor(const at::Tensor& destination, const at::Tensor& source);

// The bit pattern of a number in a dtype, in up to two words.
std::array<uint64_t, 2> bits_of(const at::Scalar& value, at::ScalarType dtype);

at::Tensor empty_on_device(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype, int index);

} // namespace neuron
