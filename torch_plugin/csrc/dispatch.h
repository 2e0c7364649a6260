// Operators on the device: compiled once for each signature, then one command a call.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <map>
#include <string>

namespace neuron {

// The boxed kernel of every operator that has no other.
void run_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack);
// A tensor of another dtype on the same device.
at::Tensor cast(const at::Tensor& source, at::ScalarType dtype);

// How often each operator ran on the device, and on the host.
struct Tracking {
  std::map<std::string, int64_t> executed;
  std::map<std::string, int64_t> fallback;
};
Tracking tracked();
void clear_tracking();
void note_executed(const std::string& operation);
void note_fallback(const std::string& operation);

// Plans in memory; they keep their models loaded.
size_t plan_count();
void forget_plans();

} // namespace neuron
