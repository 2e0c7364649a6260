#include "fallback.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include "copy.h"
#include "dispatch.h"
#include "generator.h"

namespace neuron {

namespace {

struct Lent {
  at::Tensor device;
  at::Tensor host;
  bool fresh; // an output that the host made anew, since it may change its size
};

class Loan {
 public:
  explicit Loan(int device) : device_(device) {}

  at::Tensor lend(const at::Tensor& tensor, bool output) {
    if (!on_neuron(tensor)) {
      return tensor;
    }
    for (const Lent& lent : all_) {
      if (lent.device.is_same(tensor)) {
        return lent.host;
      }
    }
    const bool fresh = output;
    at::Tensor host = fresh ? at::empty({0}, at::TensorOptions(tensor.scalar_type()).device(at::kCPU))
                            : host_view(tensor);
    all_.push_back({tensor, host, fresh});
    return host;
  }

  // The device's tensor for one the host gave back: an argument, a view of one, or something new.
  at::Tensor give_back(const at::Tensor& host) {
    if (!host.defined() || !host.device().is_cpu()) {
      return host;
    }
    for (const Lent& lent : all_) {
      if (lent.host.is_same(host)) {
        return lent.device;
      }
    }
    for (const Lent& lent : all_) {
      if (!lent.fresh && host.numel() > 0 && host.is_alias_of(lent.host) &&
          host.scalar_type() == lent.device.scalar_type()) {
        const auto offset = static_cast<const char*>(host.const_data_ptr()) -
            static_cast<const char*>(lent.device.storage().data());
        return lent.device.as_strided(host.sizes(), host.strides(), offset / host.element_size());
      }
    }
    at::Tensor made = host.is_non_overlapping_and_dense()
        ? empty_on_device(host.sizes(), host.strides(), host.scalar_type(), device_)
        : empty_on_device(host.sizes(), at::contiguous_strides(host.sizes()), host.scalar_type(), device_);
    copy_tensor(made, host);
    return made;
  }

  void write_outputs() {
    for (const Lent& lent : all_) {
      if (lent.fresh) {
        if (lent.device.sizes() != lent.host.sizes()) {
          lent.device.resize_(lent.host.sizes());
        }
        copy_tensor(lent.device, lent.host);
      }
    }
  }

 private:
  int device_;
  std::vector<Lent> all_;
};

bool is_output(const c10::FunctionSchema& schema, size_t argument) {
  const auto& described = schema.arguments()[argument];
  return described.is_out();
}

} // namespace

void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack, int device) {
  const auto& schema = op.schema();
  const size_t count = schema.arguments().size();
  const size_t begin = stack->size() - count;
  Loan loan(device);
  at::Generator generator;
  for (size_t i = 0; i < count; ++i) {
    c10::IValue& value = (*stack)[begin + i];
    const bool output = is_output(schema, i);
    if (value.isTensor()) {
      value = loan.lend(value.toTensor(), output);
    } else if (value.isTensorList()) {
      auto list = value.toTensorVector();
      for (auto& item : list) {
        item = loan.lend(item, output);
      }
      value = c10::IValue(list);
    } else if (value.isOptionalTensorList()) {
      auto list = value.toOptionalTensorVector();
      c10::List<std::optional<at::Tensor>> lent;
      for (const auto& item : list) {
        lent.push_back(item.has_value() ? std::optional<at::Tensor>(loan.lend(*item, output)) : std::nullopt);
      }
      value = c10::IValue(lent);
    } else if (value.isDevice() && value.toDevice().type() == kNeuron) {
      value = c10::IValue(at::Device(at::kCPU));
    } else if (schema.arguments()[i].type()->str().find("Generator") != std::string::npos) {
      // The host draws from a stream of its own that the device's generator determines.
      const auto given = value.isGenerator() ? std::optional<at::Generator>(value.toGenerator()) : std::nullopt;
      const auto [seed, offset] = generator_or_default(given, device).take(1);
      generator = at::detail::createCPUGenerator(seed ^ (offset * 0x9E3779B97F4A7C15ULL));
      value = c10::IValue(generator);
    }
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  loan.write_outputs();
  const size_t results = stack->size() - begin;
  for (size_t i = 0; i < results; ++i) {
    c10::IValue& value = (*stack)[begin + i];
    if (value.isTensor()) {
      value = loan.give_back(value.toTensor());
    } else if (value.isTensorList()) {
      auto list = value.toTensorVector();
      for (auto& item : list) {
        item = loan.give_back(item);
      }
      value = c10::IValue(list);
    }
  }
}

} // namespace neuron
