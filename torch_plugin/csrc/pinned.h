// Host memory that counts as pinned. A simulated device copies it as it copies any other.
#pragma once

#include <c10/core/Allocator.h>

namespace neuron {

c10::Allocator* pinned_allocator();
bool is_pinned(const void* data);

} // namespace neuron
