// The Python module torch_neuronx._C.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/utils/pybind.h>

#include "allocator.h"
#include "copy.h"
#include "device.h"
#include "dispatch.h"
#include "generator.h"
#include "gil.h"
#include "graph.h"
#include "profiler.h"
#include "recording.h"
#include "storage.h"

namespace py = pybind11;

namespace neuron {

namespace {

class PythonRuntime final : public Runtime {
 public:
  explicit PythonRuntime(py::object object) : object_(std::move(object)) {}

  int device_count() noexcept override {
    try {
      py::gil_scoped_acquire gil;
      return object_.attr("device_count")().cast<int>();
    } catch (const std::exception&) {
      return 0;
    }
  }

  void open(int index) override {
    py::gil_scoped_acquire gil;
    object_.attr("open")(index);
  }

  int64_t allocate(int index, size_t bytes, std::string& why) override {
    py::gil_scoped_acquire gil;
    const py::tuple answer = object_.attr("allocate")(index, bytes);
    why = answer[1].cast<std::string>();
    return answer[0].cast<int64_t>();
  }

  void release(int index, int64_t offset, uint64_t last_use) override {
    py::gil_scoped_acquire gil;
    object_.attr("release")(index, offset, last_use);
  }

  void check_alive() override {
    TORCH_CHECK(Py_IsInitialized(), "the Neuron device was waited for after the interpreter had ended");
    py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() != 0) {
      throw py::error_already_set();
    }
    object_.attr("check_alive")();
  }

 private:
  py::object object_;
};

py::dict stat_of(const c10::CachingAllocator::StatArray& array) {
  const auto& stat = array[0];
  py::dict made;
  made["current"] = stat.current;
  made["peak"] = stat.peak;
  made["allocated"] = stat.allocated;
  made["freed"] = stat.freed;
  return made;
}

py::dict memory_stats(int index) {
  const auto stats = allocator()->getDeviceStats(static_cast<c10::DeviceIndex>(index));
  const auto [requests, frees] = request_counts(index);
  py::dict made;
  made["allocated_bytes"] = stat_of(stats.allocated_bytes);
  made["reserved_bytes"] = stat_of(stats.reserved_bytes);
  made["active_bytes"] = stat_of(stats.active_bytes);
  made["num_alloc_retries"] = stats.num_alloc_retries;
  made["num_ooms"] = stats.num_ooms;
  made["num_tensor_frees"] = frees;
  made["allocation_requests"] = requests;
  return made;
}

void add_core_at(
    int index, uintptr_t base, size_t bytes, int memory, uint64_t queue, int wake_executor, int wake_client,
    double timeout) {
  auto ring = std::make_unique<Ring>(
      memory, queue, wake_executor, wake_client, timeout, [] { runtime().check_alive(); });
  auto core = std::make_unique<Core>(Core{index, reinterpret_cast<char*>(base), bytes, std::move(ring)});
  add_core(std::move(core));
}

Core& open_core(int index) {
  Core* core = core_if_open(index);
  TORCH_CHECK(core != nullptr, "NeuronCore ", index, " is not open");
  return *core;
}

// What runs on each thread that forks: the child must not use what its parent holds.
void init() {
  poison_fork();
  core(current_device());
}

} // namespace

} // namespace neuron

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  using namespace neuron;
  m.doc() = "The PrivateUse1 device `neuron`.";

  m.def("set_runtime", [](py::object object) {
    set_runtime(std::make_unique<PythonRuntime>(std::move(object)));
    register_hooks();
    register_profiler();
  });
  m.def("device_count", &device_count);
  m.def("current_device", &current_device);
  m.def("exchange_device", &exchange_device);
  m.def("init", [] { WithoutGil gil; init(); });
  m.def("is_initialized", [] { return initialized() && !in_bad_fork(); });
  m.def("in_bad_fork", &in_bad_fork);
  m.def("poison_fork", &poison_fork);
  m.def("open", [](int index) { WithoutGil gil; core(index); });
  m.def("close_cores", &close_cores);
  m.def("synchronize", [](int index) {
    WithoutGil gil;
    synchronize(core(index));
  });

  // The queue of an open core, for `neuron_runtime.client`, which keeps loading models while C++ submits.
  m.def("add_core", &add_core_at);
  m.def("submitted", [](int index) { return open_core(index).ring->submitted(); });
  m.def("completed", [](int index) { return open_core(index).ring->completed(); });
  m.def("submit", [](int index, uint64_t kind, uint64_t target, uint64_t inputs, std::vector<uint64_t> operands) {
    WithoutGil gil;
    return submit(
        open_core(index), static_cast<Kind>(kind), target, inputs, operands.data(), operands.size(), "client");
  });
  m.def("wait", [](int index, uint64_t sequence) {
    WithoutGil gil;
    open_core(index).ring->wait(sequence);
  });
  m.def("take_failure", [](int index) -> py::object {
    const auto failure = open_core(index).ring->take_failure();
    if (!failure) {
      return py::none();
    }
    return py::make_tuple(failure->sequence, failure->status, failure->detail, failure->count);
  });
  m.def("publish_usage", [](int index, std::array<uint64_t, 5> values) {
    uint64_t words[5];
    std::copy(values.begin(), values.end(), words);
    open_core(index).ring->publish_usage(words);
  });

  m.def("memory_stats", &memory_stats);
  m.def("memory_summary", &memory_summary);
  m.def("empty_cache", [] { WithoutGil gil; allocator()->emptyCache(); });
  m.def("reset_peak_memory_stats", [](int index) { allocator()->resetPeakStats(static_cast<c10::DeviceIndex>(index)); });
  m.def("reset_accumulated_memory_stats", [](int index) {
    allocator()->resetAccumulatedStats(static_cast<c10::DeviceIndex>(index));
  });

  m.def("default_generator", [](int index) {
    return py::reinterpret_steal<py::object>(
        THPGenerator_Wrap(default_generator(static_cast<c10::DeviceIndex>(index))));
  });

  m.def("host_view", [](const at::Tensor& tensor) {
    WithoutGil gil;
    return host_view(tensor);
  });
  m.def("tracked", [] {
    const Tracking tracking = tracked();
    return std::make_pair(tracking.executed, tracking.fallback);
  });
  m.def("clear_tracking", &clear_tracking);
  m.def("name_model", &name_model);
  m.def("plan_count", &plan_count);
  m.def("forget_plans", [] { WithoutGil gil; forget_plans(); });
  bind_graph(m);
}
