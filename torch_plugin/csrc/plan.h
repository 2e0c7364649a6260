// How one operator with one signature runs: a loaded model, and how the call's arguments become its operands.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <memory>
#include <string>
#include <vector>

namespace neuron {

// Which argument, and which tensor of it where the argument is a list; -1 where it is none.
struct Place {
  int argument;
  int item = -1;
};

struct TensorInput {
  Place place;
  // The graph takes the bytes as they lie; otherwise it wants them row-major, and a strided copy goes first.
  bool as_it_lies;
};

enum class Source { Argument, Seed, Offset };

// A number that travels inside the command.
struct Immediate {
  Source source;
  Place place;
  at::ScalarType dtype;
};

struct Output {
  // An argument that is overwritten; argument -1 for a new tensor.
  Place target;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  at::ScalarType dtype;
  // What the graph writes has the target's own layout and goes straight into it.
  bool direct;
};

enum class Returned { New, Argument, List, Nothing };

struct Result {
  Returned kind;
  int first; // output number, or argument
  int count; // of a list
};

struct Plan {
  std::string operation;
  uint64_t model = 0;
  bool fallback = false; // run on the host
  bool computes = true;  // false where every result is empty
  uint64_t random_numbers = 0;
  std::vector<TensorInput> inputs;
  std::vector<Immediate> immediates;
  std::vector<Output> outputs;
  std::vector<Result> results;
  std::shared_ptr<void> keep; // the loaded model
};

// What decides which arguments of an operator are numbers that a plan may take at run time.
struct Operator {
  std::string name;
  std::vector<bool> runtime; // by argument
  int generator = -1;        // argument number
};

// Both ask Python. `device` is the index of the device the operator runs on.
Operator describe(const c10::OperatorHandle& op);
std::shared_ptr<Plan> make_plan(const c10::OperatorHandle& op, const torch::jit::Stack& arguments, int device);
// Warns that an operator ran on the host.
void tell_fallback(const std::string& operation);

} // namespace neuron
