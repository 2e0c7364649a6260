#include "dispatch.h"

#include <ATen/native/Resize.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include <shared_mutex>
#include <unordered_map>

#include "allocator.h"
#include "copy.h"
#include "fallback.h"
#include "generator.h"
#include "plan.h"
#include "recording.h"
#include "signature.h"

namespace neuron {

namespace {

struct Hash {
  using is_transparent = void;
  size_t operator()(std::string_view bytes) const {
    return std::hash<std::string_view>{}(bytes);
  }
};

struct Entry {
  Operator op;
  std::atomic<bool> told{false};
  std::unordered_map<std::string, std::shared_ptr<Plan>, Hash, std::equal_to<>> plans;
};

struct Table {
  std::shared_mutex mutex;
  std::unordered_map<const void*, std::unique_ptr<Entry>> entries;
  std::mutex tracking;
  Tracking tracked;
};

Table& table() {
  static auto* made = new Table();
  return *made;
}

Entry& entry_of(const c10::OperatorHandle& op) {
  const void* key = &op.schema();
  Table& t = table();
  {
    std::shared_lock<std::shared_mutex> lock(t.mutex);
    const auto found = t.entries.find(key);
    if (found != t.entries.end()) {
      return *found->second;
    }
  }
  auto made = std::make_unique<Entry>();
  made->op = describe(op);
  std::unique_lock<std::shared_mutex> lock(t.mutex);
  return *t.entries.try_emplace(key, std::move(made)).first->second;
}

// The device the call runs on: that of its first tensor, else the one it names, else the current one.
int device_of(const torch::jit::Stack& stack, size_t begin) {
  int named = -1;
  for (size_t i = begin; i < stack.size(); ++i) {
    const c10::IValue& value = stack[i];
    if (value.isTensor()) {
      const at::Tensor& tensor = value.toTensor();
      if (tensor.defined() && tensor.device().type() == kNeuron) {
        return tensor.device().index();
      }
    } else if (value.isList()) {
      for (const c10::IValue& item : value.toListRef()) {
        if (item.isTensor() && item.toTensor().defined() && item.toTensor().device().type() == kNeuron) {
          return item.toTensor().device().index();
        }
      }
    } else if (value.isDevice() && value.toDevice().type() == kNeuron && value.toDevice().has_index()) {
      named = value.toDevice().index();
    }
  }
  return named >= 0 ? named : current_device();
}

at::Tensor tensor_at(const torch::jit::Stack& stack, size_t begin, Place place) {
  const c10::IValue& value = stack[begin + place.argument];
  return place.item < 0 ? value.toTensor() : value.toListRef()[place.item].toTensor();
}

at::Scalar number_at(const torch::jit::Stack& stack, size_t begin, Place place) {
  const c10::IValue& value = place.item < 0 ? stack[begin + place.argument]
                                            : stack[begin + place.argument].toListRef()[place.item];
  return value.isTensor() ? value.toTensor().item() : value.toScalar();
}

bool aligned(const at::Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % kAlignment == 0;
}

at::Tensor on_device(const at::Tensor& tensor, int device) {
  if (tensor.device().type() == kNeuron) {
    TORCH_CHECK(
        tensor.device().index() == device,
        "Expected all tensors to be on the same device, but found at least two devices, neuron:", device, " and ",
        tensor.device(), "!");
    return tensor;
  }
  TORCH_CHECK(
      false, "Expected all tensors to be on the same device, but found at least two devices, neuron:", device,
      " and ", tensor.device(), "!");
}

// Bytes the executor can read in place: the tensor's own, or a copy's.
at::Tensor readable(const at::Tensor& tensor, bool as_it_lies, const char* operation) {
  if (tensor.numel() == 0 || (aligned(tensor) && (as_it_lies || tensor.is_contiguous()))) {
    return tensor;
  }
  const bool keep_layout = as_it_lies && tensor.is_non_overlapping_and_dense();
  at::Tensor source = tensor;
  if (as_it_lies && !keep_layout) {
    // Expanded dimensions: the graph reads one element of each.
    for (int64_t dim = 0; dim < source.dim(); ++dim) {
      if (source.stride(dim) == 0) {
        source = source.narrow(dim, 0, 1);
      }
    }
  }
  const at::DimVector strides =
      as_it_lies ? at::DimVector(source.strides()) : at::contiguous_strides(source.sizes());
  at::Tensor copy = empty_on_device(source.sizes(), strides, tensor.scalar_type(), tensor.device().index());
  copy_on_device(copy, source, operation);
  return copy;
}

struct Call {
  const Plan& plan;
  torch::jit::Stack& stack;
  size_t begin;
  int device;

  void run() {
    Core& core = neuron::core(device);
    std::vector<at::Tensor> made(plan.outputs.size());
    if (plan.computes) {
      submit(core, made);
    } else {
      for (size_t i = 0; i < made.size(); ++i) {
        made[i] = destination(plan.outputs[i]);
      }
    }
    give_results(made);
  }

 private:
  at::Tensor destination(const Output& output) {
    if (output.target.argument < 0) {
      return empty_on_device(output.sizes, output.strides, output.dtype, device);
    }
    at::Tensor target = tensor_at(stack, begin, output.target);
    if (target.sizes() != at::IntArrayRef(output.sizes)) {
      at::native::resize_output(target, output.sizes);
    }
    return target;
  }

  void submit(Core& core, std::vector<at::Tensor>& made) {
    const char* operation = plan.operation.c_str();
    c10::SmallVector<uint64_t, 16> operands;
    c10::SmallVector<at::Tensor, 8> used;
    for (const TensorInput& input : plan.inputs) {
      const at::Tensor tensor =
          readable(on_device(tensor_at(stack, begin, input.place), device), input.as_it_lies, operation);
      operands.push_back(tensor.numel() == 0 ? 0 : core.offset_of(tensor.const_data_ptr()));
      used.push_back(tensor);
    }
    c10::SmallVector<std::pair<at::Tensor, at::Tensor>, 2> written_back;
    for (size_t i = 0; i < made.size(); ++i) {
      const Output& output = plan.outputs[i];
      made[i] = destination(output);
      at::Tensor written = made[i];
      if (output.target.argument >= 0 && written.numel() > 0 && !(output.direct && aligned(written))) {
        written = empty_on_device(
            output.sizes, output.direct ? at::IntArrayRef(output.strides) : at::contiguous_strides(output.sizes),
            output.dtype, device);
        written_back.emplace_back(made[i], written);
      }
      operands.push_back(written.numel() == 0 ? 0 : core.offset_of(written.const_data_ptr()));
      used.push_back(written);
    }
    append_immediates(operands);
    const uint64_t inputs = plan.inputs.size() | static_cast<uint64_t>(plan.immediates.size()) << 32;
    const uint64_t sequence =
        neuron::submit(core, Kind::Execute, plan.model, inputs, operands.data(), operands.size(), operation);
    for (const at::Tensor& tensor : used) {
      mark_use(tensor, sequence);
    }
    for (const auto& [target, written] : written_back) {
      copy_on_device(target, written, operation);
    }
    after_submit(core);
  }

  void append_immediates(c10::SmallVector<uint64_t, 16>& operands) {
    if (plan.immediates.empty()) {
      return;
    }
    std::pair<uint64_t, uint64_t> stream{};
    if (plan.random_numbers > 0) {
      std::optional<at::Generator> given;
      for (size_t i = begin; i < stack.size(); ++i) {
        if (stack[i].isGenerator()) {
          given = stack[i].toGenerator();
        }
      }
      stream = generator_or_default(given, device).take(plan.random_numbers);
    }
    for (const Immediate& immediate : plan.immediates) {
      switch (immediate.source) {
        case Source::Argument:
          operands.push_back(bits_of(number_at(stack, begin, immediate.place), immediate.dtype)[0]);
          break;
        case Source::Seed:
          operands.push_back(stream.first);
          break;
        case Source::Offset:
          operands.push_back(stream.second);
          break;
      }
    }
  }

  void give_results(const std::vector<at::Tensor>& made) {
    torch::jit::Stack results;
    for (const Result& result : plan.results) {
      switch (result.kind) {
        case Returned::New:
          results.emplace_back(made[result.first]);
          break;
        case Returned::Argument:
          results.push_back(stack[begin + result.first]);
          break;
        case Returned::List: {
          results.emplace_back(
              std::vector<at::Tensor>(made.begin() + result.first, made.begin() + result.first + result.count));
          break;
        }
        case Returned::Nothing:
          results.emplace_back(at::Tensor());
          break;
      }
    }
    stack.erase(stack.begin() + static_cast<std::ptrdiff_t>(begin), stack.end());
    for (auto& result : results) {
      stack.push_back(std::move(result));
    }
  }
};

} // namespace

void run_operator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const size_t begin = stack->size() - op.schema().arguments().size();
  const int device = device_of(*stack, begin);
  Entry& entry = entry_of(op);
  thread_local std::string signature;
  signature.clear();
  std::shared_ptr<Plan> plan;
  signature.push_back(static_cast<char>(device));
  const bool plannable = append_signature(signature, entry.op, *stack, begin);
  if (plannable) {
    std::shared_lock<std::shared_mutex> lock(table().mutex);
    const auto found = entry.plans.find(std::string_view(signature));
    if (found != entry.plans.end()) {
      plan = found->second;
    }
  }
  if (plan == nullptr) {
    const std::string key = signature;
    core(device); // errors of the runtime surface as they are, not as an operator's
    PlanningTimer timer(entry.op.name, device);
    plan = make_plan(op, *stack, device);
    timer.made(plan->model);
    if (plannable) {
      std::unique_lock<std::shared_mutex> lock(table().mutex);
      entry.plans[key] = plan;
    }
  }
  if (plan->fallback) {
    run_on_host(op, stack, device);
    note_fallback(entry.op.name);
    if (!entry.told.exchange(true)) {
      tell_fallback(entry.op.name);
    }
  } else {
    note_executed(entry.op.name);
    Call{*plan, *stack, begin, device}.run();
  }
}

at::Tensor cast(const at::Tensor& source, at::ScalarType dtype) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::_to_copy", "");
  torch::jit::Stack stack{source, dtype, c10::IValue(), c10::IValue(), c10::IValue(), false, c10::IValue()};
  run_operator(op, &stack);
  return stack.back().toTensor();
}

Tracking tracked() {
  std::lock_guard<std::mutex> lock(table().tracking);
  return table().tracked;
}

void clear_tracking() {
  std::lock_guard<std::mutex> lock(table().tracking);
  table().tracked = {};
}

void note_executed(const std::string& operation) {
  std::lock_guard<std::mutex> lock(table().tracking);
  ++table().tracked.executed[operation];
}

void note_fallback(const std::string& operation) {
  std::lock_guard<std::mutex> lock(table().tracking);
  ++table().tracked.fallback[operation];
}

size_t plan_count() {
  std::shared_lock<std::shared_mutex> lock(table().mutex);
  size_t count = 0;
  for (const auto& [key, entry] : table().entries) {
    count += entry->plans.size();
  }
  return count;
}

void forget_plans() {
  std::unique_lock<std::shared_mutex> lock(table().mutex);
  for (auto& [key, entry] : table().entries) {
    entry->plans.clear();
  }
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_operator>());
}

namespace {

// Operators that PyTorch would take apart for an unknown device, though they compile whole.
const char* const kWhole[] = {
    "convolution",
    "convolution_backward",
    "cummax",
    "cummin",
    "embedding",
    "native_group_norm",
    "native_layer_norm",
    "native_dropout",
};

// Structured operators have a kernel for unknown devices that makes the output and calls the out= form: a second
// dispatch and a second check of the arguments. Their plans know the outputs already.
bool calls_out_form(const c10::OperatorHandle& op) {
  // What changes a tensor's shape in place is no work for the device (factory.cpp).
  return op.operator_name().name != "aten::as_strided_" &&
      op.hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional) &&
      !op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* name : kWhole) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_operator>());
  }
  for (const auto& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findOp(name);
    if (op.has_value() && op->hasSchema() && name.name.rfind("aten::", 0) == 0 && calls_out_form(*op)) {
      const std::string full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
      m.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_operator>());
    }
  }
}

} // namespace

} // namespace neuron
