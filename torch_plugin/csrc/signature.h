// What two calls of an operator must have in common to share a plan, as bytes.
#pragma once

#include <ATen/core/stack.h>

#include <optional>
#include <string>

#include "plan.h"

namespace neuron {

// Nothing for calls with an argument that no plan can depend on.
bool append_signature(std::string& bytes, const Operator& op, const torch::jit::Stack& stack, size_t begin);

// A CPU tensor without dimensions counts as a number.
bool is_number(const at::Tensor& tensor);

} // namespace neuron
