#include "graph.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <torch/csrc/Dtype.h>

#include <set>

#include "allocator.h"
#include "copy.h"
#include "device.h"
#include "dispatch.h"
#include "generator.h"
#include "recording.h"

namespace py = pybind11;

namespace neuron {

namespace {

using Sizes = std::vector<int64_t>;

// An argument that the graph reads; `strides` are how the graph expects it to lie.
struct Operand {
  int argument;
  Sizes strides;
};

struct Number {
  int argument; // one of the call's, or kSeed, kOffset
  at::ScalarType dtype;
};

constexpr int kSeed = -1;
constexpr int kOffset = -2;

// A new tensor, or the argument that the graph overwrites.
struct Made {
  int target; // argument, or -1
  Sizes sizes;
  Sizes strides;
  at::ScalarType dtype;
};

// The runtime keeps names by pointer, for errors that surface late.
const char* interned(const std::string& name) {
  static std::mutex mutex;
  static auto* names = new std::set<std::string>();
  std::lock_guard<std::mutex> lock(mutex);
  return names->insert(name).first->c_str();
}

bool lies_so(const at::Tensor& tensor, at::IntArrayRef strides) {
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.size(dim) != 1 && tensor.stride(dim) != strides[dim]) {
      return false;
    }
  }
  return reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % kAlignment == 0;
}

class GraphModel {
 public:
  GraphModel(
      const std::string& name, uint64_t model, int device, uint64_t random_numbers,
      const std::vector<std::tuple<int, Sizes>>& operands, const std::vector<std::tuple<int, py::object>>& numbers,
      const std::vector<std::tuple<int, Sizes, Sizes, py::object>>& made)
      : name_(interned(name)), model_(model), device_(device), random_numbers_(random_numbers) {
    for (const auto& [argument, strides] : operands) {
      operands_.push_back({argument, strides});
    }
    for (const auto& [argument, dtype] : numbers) {
      numbers_.push_back({argument, dtype_of(dtype)});
    }
    for (const auto& [target, sizes, strides, dtype] : made) {
      made_.push_back({target, sizes, strides, dtype_of(dtype)});
    }
  }

  // The new tensors, in order. Only queues the work, in stream order with everything else of this device.
  std::vector<at::Tensor> run(const std::vector<at::Tensor>& arguments) {
    Core& core = neuron::core(device_);
    c10::SmallVector<uint64_t, 64> addresses;
    c10::SmallVector<at::Tensor, 64> used;
    const auto use = [&](const at::Tensor& tensor) {
      addresses.push_back(tensor.numel() == 0 ? 0 : core.offset_of(tensor.const_data_ptr()));
      used.push_back(tensor);
    };
    for (const Operand& operand : operands_) {
      use(readable(arguments.at(operand.argument), operand.strides));
    }
    std::vector<at::Tensor> results;
    c10::SmallVector<std::pair<at::Tensor, at::Tensor>, 4> written_back;
    for (const Made& made : made_) {
      if (made.target >= 0 && overwritable(arguments.at(made.target), made)) {
        use(arguments[made.target]);
        continue;
      }
      const at::Tensor fresh = empty_on_device(made.sizes, made.strides, made.dtype, device_);
      use(fresh);
      if (made.target < 0) {
        results.push_back(fresh);
      } else {
        written_back.emplace_back(arguments[made.target], fresh);
      }
    }
    append_numbers(addresses, arguments);
    const uint64_t inputs = operands_.size() | static_cast<uint64_t>(numbers_.size()) << 32;
    const uint64_t sequence =
        submit(core, Kind::Execute, model_, inputs, addresses.data(), addresses.size(), name_);
    for (const at::Tensor& tensor : used) {
      mark_use(tensor, sequence);
    }
    for (const auto& [target, fresh] : written_back) {
      copy_tensor(target, fresh);
    }
    after_submit(core);
    return results;
  }

 private:
  static at::ScalarType dtype_of(const py::object& given) {
    return reinterpret_cast<THPDtype*>(given.ptr())->scalar_type;
  }

  at::Tensor readable(const at::Tensor& tensor, at::IntArrayRef strides) const {
    const bool here = tensor.device().type() == kNeuron;
    TORCH_CHECK(
        !here || tensor.device().index() == device_,
        "Expected all tensors to be on the same device, but found at least two devices, neuron:", device_, " and ",
        tensor.device(), "!");
    const bool plain = !tensor.is_conj() && !tensor.is_neg();
    if (here && plain && (tensor.numel() == 0 || lies_so(tensor, strides))) {
      return tensor;
    }
    at::Tensor copy = empty_on_device(tensor.sizes(), strides, tensor.scalar_type(), device_);
    copy_tensor(copy, tensor);
    return copy;
  }

  bool overwritable(const at::Tensor& tensor, const Made& made) const {
    return tensor.device().type() == kNeuron && (tensor.numel() == 0 || lies_so(tensor, made.strides));
  }

  void append_numbers(c10::SmallVector<uint64_t, 64>& addresses, const std::vector<at::Tensor>& arguments) const {
    std::pair<uint64_t, uint64_t> stream{};
    if (random_numbers_ > 0) {
      stream = generator_or_default(std::nullopt, device_).take(random_numbers_);
    }
    for (const Number& number : numbers_) {
      if (number.argument == kSeed) {
        addresses.push_back(stream.first);
      } else if (number.argument == kOffset) {
        addresses.push_back(stream.second);
      } else {
        addresses.push_back(bits_of(arguments.at(number.argument).item(), number.dtype)[0]);
      }
    }
  }

  const char* name_;
  uint64_t model_;
  int device_;
  uint64_t random_numbers_;
  std::vector<Operand> operands_;
  std::vector<Number> numbers_;
  std::vector<Made> made_;
};

} // namespace

void bind_graph(py::module_& module) {
  py::class_<GraphModel>(
      module, "GraphModel",
      "A loaded model and how a call's tensors become its operands. Arguments are given by number.\n\n"
      "operands: (argument, strides); numbers: (argument, or -1 for the seed and -2 for the offset of the random\n"
      "stream, dtype); made: (argument to overwrite, or -1 for a new tensor, sizes, strides, dtype).")
      .def(
          py::init<
              const std::string&, uint64_t, int, uint64_t, const std::vector<std::tuple<int, Sizes>>&,
              const std::vector<std::tuple<int, py::object>>&,
              const std::vector<std::tuple<int, Sizes, Sizes, py::object>>&>(),
          py::arg("name"), py::arg("model"), py::arg("device"), py::arg("random_numbers"), py::arg("operands"),
          py::arg("numbers"), py::arg("made"))
      .def("run", &GraphModel::run, py::call_guard<py::gil_scoped_release>(), py::arg("arguments"));
}

} // namespace neuron
