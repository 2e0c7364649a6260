#include "profiler.h"

#include <unistd.h>

// The macro is that of PyTorch's own build; its wheels for Linux have Kineto in them.
#ifndef USE_KINETO
#define USE_KINETO
#endif
#include <Config.h>
#include <IActivityProfiler.h>
#include <libkineto.h>
#include <output_base.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>

#include "gil.h"
#include "recording.h"

namespace neuron {

namespace {

using libkineto::ActivityType;

ActivityType type_of(Kind kind) {
  switch (kind) {
    case Kind::Execute:
      return ActivityType::CONCURRENT_KERNEL;
    case Kind::Fill:
    case Kind::FillStrided:
      return ActivityType::GPU_MEMSET;
    default:
      return ActivityType::GPU_MEMCPY;
  }
}

const char* call_of(Kind kind) {
  switch (type_of(kind)) {
    case ActivityType::CONCURRENT_KERNEL:
      return "nrt execute";
    case ActivityType::GPU_MEMSET:
      return "nrt fill";
    default:
      return "nrt copy";
  }
}

std::string device_name(int device) {
  return "neuron:" + std::to_string(device);
}

// One profile: records between start and stop, then gives Kineto the spans of host and device.
class Session final : public libkineto::IActivityProfilerSession {
 public:
  explicit Session(std::string custom) : custom_(std::move(custom)) {}

  void start() override {
    WithoutGil gil;
    start_recording();
    status_ = libkineto::TraceStatus::RECORDING;
  }

  void stop() override {
    if (status_ != libkineto::TraceStatus::RECORDING) {
      return;
    }
    WithoutGil gil;
    status_ = libkineto::TraceStatus::PROCESSING;
    try {
      recording_ = stop_recording();
    } catch (const std::exception& error) {
      errors_.push_back(error.what());
    }
    if (recording_.lost > 0) {
      errors_.push_back(std::to_string(recording_.lost) + " commands were not timed: the device's memory was full");
    }
  }

  std::vector<std::string> errors() override {
    return errors_;
  }

  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(logger, [](int32_t) { return nullptr; }, 0, INT64_MAX);
  }

  void processTrace(
      libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback linked, int64_t begin,
      int64_t end) override {
    buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
    buffer_->span = libkineto::TraceSpan(begin, end, "neuron");
    buffer_->gpuOpCount = static_cast<int>(recording_.executions.size());
    for (const Planning& planning : recording_.plannings) {
      add_planning(planning, linked);
    }
    std::set<int> devices;
    for (const Execution& execution : recording_.executions) {
      if (execution.begin >= begin && execution.end <= end) {
        add_execution(execution, linked);
        devices.insert(execution.device);
      }
    }
    for (const int device : devices) {
      const int64_t row = libkineto::kExceedMaxPid + device;
      logger.handleDeviceInfo({device, row, device_name(device), "NeuronCore " + std::to_string(device)}, begin);
      logger.handleResourceInfo({0, row, device, "queue"}, begin);
    }
    for (const auto& activity : buffer_->activities) {
      activity->log(logger);
    }
    write();
  }

  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    return nullptr; // each device is described with its spans
  }

  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    return {};
  }

  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override {
    return std::move(buffer_);
  }

  void pushCorrelationId(uint64_t id) override {
    push_correlation(id);
  }

  void popCorrelationId() override {
    pop_correlation();
  }

 private:
  libkineto::GenericTraceActivity& add(
      ActivityType type, const std::string& name, const Happened& what, int64_t begin, int64_t end,
      const libkineto::getLinkedActivityCallback& linked) {
    buffer_->emplace_activity(buffer_->span, type, name);
    auto& activity = *buffer_->activities.back();
    activity.startTime = begin;
    activity.endTime = std::max(begin, end);
    activity.threadId = what.thread;
    if (what.correlation != 0) {
      activity.linked = linked(static_cast<int32_t>(what.correlation));
    }
    return activity;
  }

  void add_on_host(libkineto::GenericTraceActivity& activity, const Happened& what) {
    activity.device = static_cast<int32_t>(getpid());
    activity.resource = what.thread;
  }

  void describe(libkineto::GenericTraceActivity& activity, const Happened& what, const ModelName& model) {
    activity.addMetadataQuoted("operator", what.operation);
    if (!model.key.empty()) {
      activity.addMetadataQuoted("neff", model.key);
    }
  }

  void add_planning(const Planning& planning, const libkineto::getLinkedActivityCallback& linked) {
    const ModelName model = model_name(planning.device, planning.model);
    auto& activity = add(
        ActivityType::PRIVATEUSE1_RUNTIME, "compile " + planning.operation, planning, planning.begin, planning.end,
        linked);
    add_on_host(activity, planning);
    describe(activity, planning, model);
    if (!model.outcome.empty()) {
      activity.addMetadataQuoted("cache", model.outcome);
    }
  }

  void add_execution(const Execution& execution, const libkineto::getLinkedActivityCallback& linked) {
    const ModelName model = model_name(execution.device, execution.model);
    const auto number = static_cast<int32_t>(buffer_->activities.size() + 1);
    auto& call = add(
        ActivityType::PRIVATEUSE1_RUNTIME, call_of(execution.kind), execution, execution.submit_begin,
        execution.submit_end, linked);
    add_on_host(call, execution);
    call.id = number;
    call.flow.id = static_cast<uint32_t>(number);
    call.flow.type = libkineto::kLinkAsyncCpuGpu;
    call.flow.start = 1;
    const std::string name = model.key.empty() ? execution.operation : execution.operation + " " + model.key;
    auto& work = add(type_of(execution.kind), name, execution, execution.begin, execution.end, linked);
    work.device = execution.device;
    work.resource = 0;
    work.id = number;
    work.flow.id = static_cast<uint32_t>(number);
    work.flow.type = libkineto::kLinkAsyncCpuGpu;
    work.flow.start = 0;
    describe(work, execution, model);
  }

  // The device's spans for `NeuronConfig(profile_output_dir=...)`.
  void write() {
    if (custom_.empty()) {
      return;
    }
    try {
      pybind11::gil_scoped_acquire gil;
      pybind11::list spans;
      for (const Execution& execution : recording_.executions) {
        spans.append(pybind11::make_tuple(
            execution.operation, model_name(execution.device, execution.model).key, execution.device,
            execution.begin, execution.end));
      }
      for (const Planning& planning : recording_.plannings) {
        spans.append(pybind11::make_tuple(
            "compile " + planning.operation, model_name(planning.device, planning.model).key, -planning.thread,
            planning.begin, planning.end));
      }
      pybind11::module_::import("torch_neuronx.profiling").attr("write_spans")(custom_, spans);
    } catch (const std::exception& error) {
      errors_.push_back(error.what());
      TORCH_WARN("the profile was not written: ", error.what());
    }
  }

  std::string custom_;
  Recording recording_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_;
  std::vector<std::string> errors_;
};

class Profiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override {
    return name_;
  }

  const std::set<ActivityType>& availableActivities() const override {
    return types_;
  }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      const std::set<ActivityType>& types, const libkineto::Config& config) override {
    // Host activities are asked for by profiles of the CPU alone, too.
    if (types.count(ActivityType::CONCURRENT_KERNEL) == 0) {
      return nullptr;
    }
    return std::make_unique<Session>(config.getCustomConfig());
  }

  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      int64_t, int64_t, const std::set<ActivityType>& types, const libkineto::Config& config) override {
    return configure(types, config);
  }

 private:
  std::string name_ = "neuron";
  std::set<ActivityType> types_ = {
      ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY, ActivityType::GPU_MEMSET,
      ActivityType::PRIVATEUSE1_RUNTIME};
};

} // namespace

void register_profiler() {
  torch::profiler::impl::PrivateUse1ProfilerRegistry::instance().registerFactory(
      [] { return std::make_unique<Profiler>(); });
}

} // namespace neuron
