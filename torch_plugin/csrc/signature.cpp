#include "signature.h"

#include "device.h"

namespace neuron {

namespace {

enum Tag : char {
  kNone,
  kUndefined,
  kTensor,
  kNumberTensor,
  kBool,
  kInt,
  kDouble,
  kComplex,
  kRuntimeBool,
  kRuntimeInt,
  kRuntimeDouble,
  kString,
  kDevice,
  kGenerator,
  kIntList,
  kDoubleList,
  kBoolList,
  kList,
};

template <class T>
void put(std::string& bytes, T value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void put_tensor(std::string& bytes, const at::Tensor& tensor) {
  if (!tensor.defined()) {
    bytes.push_back(kUndefined);
    return;
  }
  const auto* impl = tensor.unsafeGetTensorImpl();
  if (is_number(tensor)) {
    bytes.push_back(kNumberTensor);
    bytes.push_back(static_cast<char>(tensor.scalar_type()));
    bytes.push_back(impl->is_wrapped_number() ? 1 : 0);
    return;
  }
  bytes.push_back(kTensor);
  bytes.push_back(static_cast<char>(tensor.scalar_type()));
  bytes.push_back(tensor.device().type() == kNeuron ? 0 : 1);
  const bool contiguous = tensor.is_contiguous();
  bytes.push_back(static_cast<char>(contiguous ? 1 : 0));
  bytes.push_back(static_cast<char>(tensor.dim()));
  const auto sizes = impl->sizes();
  bytes.append(reinterpret_cast<const char*>(sizes.data()), sizes.size() * sizeof(int64_t));
  if (!contiguous) {
    const auto strides = impl->strides();
    bytes.append(reinterpret_cast<const char*>(strides.data()), strides.size() * sizeof(int64_t));
  }
}

// Zero and one have meanings of their own ("no such term", "as it is"), and nobody anneals towards them step by step.
bool special(double value) {
  return value == 0.0 || value == 1.0;
}

bool put_value(std::string& bytes, const c10::IValue& value, bool runtime) {
  if (value.isTensor()) {
    put_tensor(bytes, value.toTensor());
  } else if (value.isNone()) {
    bytes.push_back(kNone);
  } else if (value.isDouble()) {
    const double number = value.toDouble();
    if (runtime && !special(number)) {
      bytes.push_back(kRuntimeDouble);
    } else {
      bytes.push_back(kDouble);
      put(bytes, number);
    }
  } else if (value.isInt()) {
    const int64_t number = value.toInt();
    if (runtime && !special(static_cast<double>(number))) {
      bytes.push_back(kRuntimeInt);
    } else {
      bytes.push_back(kInt);
      put(bytes, number);
    }
  } else if (value.isBool()) {
    bytes.push_back(kBool);
    bytes.push_back(value.toBool() ? 1 : 0);
  } else if (value.isIntList()) {
    const auto list = value.toIntVector();
    bytes.push_back(kIntList);
    put(bytes, list.size());
    bytes.append(reinterpret_cast<const char*>(list.data()), list.size() * sizeof(int64_t));
  } else if (value.isTensorList() || value.isList()) {
    const auto list = value.toListRef();
    bytes.push_back(kList);
    put(bytes, list.size());
    for (const auto& item : list) {
      if (!put_value(bytes, item, false)) {
        return false;
      }
    }
  } else if (value.isComplexDouble()) {
    bytes.push_back(kComplex);
    put(bytes, value.toComplexDouble());
  } else if (value.isString()) {
    bytes.push_back(kString);
    put(bytes, value.toStringRef().size());
    bytes.append(value.toStringRef());
  } else if (value.isDevice()) {
    bytes.push_back(kDevice);
    bytes.push_back(static_cast<char>(value.toDevice().type()));
  } else if (value.isGenerator()) {
    bytes.push_back(kGenerator);
  } else {
    return false;
  }
  return true;
}

} // namespace

bool is_number(const at::Tensor& tensor) {
  return tensor.dim() == 0 && tensor.device().is_cpu();
}

bool append_signature(std::string& bytes, const Operator& op, const torch::jit::Stack& stack, size_t begin) {
  for (size_t i = begin; i < stack.size(); ++i) {
    if (!put_value(bytes, stack[i], op.runtime[i - begin])) {
      return false;
    }
  }
  return true;
}

} // namespace neuron
