// The device as a source of Kineto's, the library behind torch.profiler.
#pragma once

namespace neuron {

// Before the first profile; a later one would not ask.
void register_profiler();

} // namespace neuron
