// Waiting with Python's lock held would keep out whoever could end the wait.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <optional>

namespace neuron {

// Gives the GIL up for its own life, where this thread holds it.
struct WithoutGil {
  std::optional<pybind11::gil_scoped_release> released;
  WithoutGil() {
    if (PyGILState_Check()) {
      released.emplace();
    }
  }
};

} // namespace neuron
