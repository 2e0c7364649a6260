// The caching allocator: segments of HBM from the runtime, blocks of them for tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "device.h"

namespace neuron {

c10::DeviceAllocator* allocator();

// The last command that may use the tensor's memory; everything submitted so far for memory of unknown origin.
uint64_t last_use(Core& core, const at::Tensor& tensor);
void mark_use(const at::Tensor& tensor, uint64_t sequence);
// Allocations asked for and tensors freed since the counters were reset.
std::pair<int64_t, int64_t> request_counts(int index);
// What `torch.OutOfMemoryError` shows: the table of a device's memory.
std::string memory_summary(int index);

} // namespace neuron
