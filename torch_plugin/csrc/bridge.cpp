// The two questions that C++ asks Python about operators.
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>

#include "plan.h"
#include "signature.h"

namespace py = pybind11;

namespace neuron {

namespace {

py::object eager(const char* name) {
  return py::module_::import("torch_neuronx.eager").attr(name);
}

py::object to_python(const c10::IValue& value) {
  if (value.isTensor() && value.toTensor().defined() &&
      value.toTensor().unsafeGetTensorImpl()->is_wrapped_number()) {
    // A number the user wrote: it takes part in type promotion as one.
    return torch::jit::toPyObject(value.toTensor().item());
  }
  return torch::jit::toPyObject(value);
}

Place place_of(const py::handle& given) {
  const auto pair = given.cast<std::pair<int, int>>();
  return {pair.first, pair.second};
}

at::ScalarType dtype_of(const py::handle& given) {
  return reinterpret_cast<THPDtype*>(given.ptr())->scalar_type;
}

struct Kept {
  py::object object;
  ~Kept() {
    if (Py_IsInitialized()) {
      py::gil_scoped_acquire gil;
      object = py::object();
    } else {
      object.release();
    }
  }
};

} // namespace

Operator describe(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  py::gil_scoped_acquire gil;
  Operator made;
  made.name = schema.name();
  const auto runtime =
      eager("runtime_numbers")(schema.name(), schema.overload_name()).cast<std::vector<std::string>>();
  for (const auto& argument : schema.arguments()) {
    made.runtime.push_back(std::find(runtime.begin(), runtime.end(), argument.name()) != runtime.end());
  }
  return made;
}

std::shared_ptr<Plan> make_plan(const c10::OperatorHandle& op, const torch::jit::Stack& stack, int device) {
  const auto& schema = op.schema();
  const size_t count = schema.arguments().size();
  py::gil_scoped_acquire gil;
  py::list arguments;
  for (size_t i = stack.size() - count; i < stack.size(); ++i) {
    arguments.append(to_python(stack[i]));
  }
  const py::object made = eager("make_plan")(schema.name(), schema.overload_name(), arguments, device);
  auto plan = std::make_shared<Plan>();
  plan->operation = schema.name();
  if (made.is_none()) {
    plan->fallback = true;
    return plan;
  }
  plan->model = made.attr("model").cast<uint64_t>();
  plan->computes = made.attr("computes").cast<bool>();
  plan->random_numbers = made.attr("random_numbers").cast<uint64_t>();
  for (const auto& item : made.attr("inputs")) {
    plan->inputs.push_back({place_of(item.attr("place")), item.attr("as_it_lies").cast<bool>()});
  }
  for (const auto& item : made.attr("immediates")) {
    const auto source = item.attr("source").cast<std::string>();
    plan->immediates.push_back(
        {source == "seed"         ? Source::Seed
             : source == "offset" ? Source::Offset
                                  : Source::Argument,
         place_of(item.attr("place")), dtype_of(item.attr("dtype"))});
  }
  for (const auto& item : made.attr("outputs")) {
    plan->outputs.push_back(
        {place_of(item.attr("target")), item.attr("sizes").cast<std::vector<int64_t>>(),
         item.attr("strides").cast<std::vector<int64_t>>(), dtype_of(item.attr("dtype")),
         item.attr("direct").cast<bool>()});
  }
  for (const auto& item : made.attr("results")) {
    const auto [kind, first, number] = item.cast<std::tuple<std::string, int, int>>();
    plan->results.push_back(
        {kind == "new"            ? Returned::New
             : kind == "argument" ? Returned::Argument
             : kind == "list"     ? Returned::List
                                  : Returned::Nothing,
         first, number});
  }
  plan->keep = std::make_shared<Kept>(Kept{made.attr("keep")});
  return plan;
}

void tell_fallback(const std::string& operation) {
  py::gil_scoped_acquire gil;
  eager("fell_back")(operation);
}

} // namespace neuron
