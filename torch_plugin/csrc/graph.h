// Whole graphs on the device: what torch.compile runs.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace neuron {

// Adds the class `GraphModel` to the Python module.
void bind_graph(pybind11::module_& module);

} // namespace neuron
