// Operators that run on the host, on the device's own memory where that is possible.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace neuron {

void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack, int device);

} // namespace neuron
