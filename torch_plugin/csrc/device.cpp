#include "device.h"

#include <c10/util/Exception.h>
#include <pthread.h>

#include <cstdlib>
#include <cstring>

namespace neuron {

namespace {

std::unique_ptr<Runtime>& runtime_slot() {
  // Leaked: tensors may outlive every static object.
  static auto* slot = new std::unique_ptr<Runtime>();
  return *slot;
}

std::atomic<Core*> cores[kMaxDevices];
std::mutex opening;
std::atomic<bool> bad_fork{false};
std::atomic<int> known_count{-1};
thread_local int current = 0;

void check_index(int index) {
  const int count = device_count();
  TORCH_CHECK(
      index >= 0 && index < count, "The device index is out of range. It must be in [0, ", count, "), but got ",
      index, ".");
}

// The vendor's names, as neuron_runtime/status.py has them, for what a command can end with.
const char* status_name(uint64_t status) {
  switch (status) {
    case 1:
      return "NRT_FAILURE";
    case 2:
      return "NRT_INVALID";
    case 3:
      return "NRT_INVALID_HANDLE";
    case 4:
      return "NRT_RESOURCE";
    case 11:
      return "NRT_FAIL_HOST_MEM_ALLOC";
    case 1002:
      return "NRT_EXEC_BAD_INPUT";
    case 1004:
      return "NRT_EXEC_COMPLETED_WITH_ERR";
    case 1006:
      return "NRT_EXEC_OOB";
    default:
      return "NRT_STATUS";
  }
}

} // namespace

void set_runtime(std::unique_ptr<Runtime> made) {
  runtime_slot() = std::move(made);
}

Runtime& runtime() {
  TORCH_CHECK(runtime_slot(), "torch_neuronx has not been initialised");
  return *runtime_slot();
}

int device_count() noexcept {
  int count = known_count.load(std::memory_order_relaxed);
  if (count < 0) {
    count = runtime_slot() ? std::min(runtime_slot()->device_count(), kMaxDevices) : 0;
    known_count = count;
  }
  return count;
}

int current_device() {
  return current;
}

int exchange_device(int index) {
  const int former = current;
  if (index != former) {
    check_index(index);
    current = index;
  }
  return former;
}

void unchecked_set_device(int index) noexcept {
  current = index;
}

Core* core_if_open(int index) noexcept {
  return index >= 0 && index < kMaxDevices ? cores[index].load(std::memory_order_acquire) : nullptr;
}

Core& core(int index) {
  Core* found = core_if_open(index);
  if (found != nullptr && !bad_fork.load(std::memory_order_relaxed)) {
    return *found;
  }
  TORCH_CHECK(
      !bad_fork,
      "Cannot re-initialize Neuron runtime in forked subprocess. To use the device with multiprocessing, start the "
      "workers with the 'spawn' method");
  check_index(index);
  std::lock_guard<std::mutex> lock(opening);
  if (core_if_open(index) == nullptr) {
    runtime().open(index);
  }
  found = core_if_open(index);
  TORCH_CHECK(found != nullptr, "the runtime did not open NeuronCore ", index);
  return *found;
}

void add_core(std::unique_ptr<Core> core) {
  const int index = core->index;
  cores[index].store(core.release(), std::memory_order_release);
}

bool initialized() noexcept {
  for (const auto& slot : cores) {
    if (slot.load(std::memory_order_relaxed) != nullptr) {
      return true;
    }
  }
  return false;
}

void close_cores() noexcept {
  for (auto& slot : cores) {
    if (Core* core = slot.load()) {
      core->ring->close();
    }
  }
}

bool in_bad_fork() noexcept {
  return bad_fork;
}

void poison_fork() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, [] { bad_fork = true; }); });
}

void raise_failure(Core& core) {
  const auto failure = core.ring->take_failure();
  if (!failure) {
    return;
  }
  const std::string more =
      failure->count > 1 ? "; " + std::to_string(failure->count - 1) + " more commands failed after it" : "";
  TORCH_CHECK(
      false, "NRT Execution error occurred on Neuron for operation=", failure->operation,
      "; error message=\"NRT EXECUTION FAILED: ", status_name(failure->status), '(', failure->status, "): ",
      failure->detail, more, "\"");
}

void synchronize(Core& core) {
  core.ring->wait(core.ring->submitted());
  raise_failure(core);
}

void after_submit(Core& core) {
  static const bool blocking = [] {
    const char* value = std::getenv("NEURON_LAUNCH_BLOCKING");
    return value != nullptr && std::strcmp(value, "1") == 0;
  }();
  if (blocking) {
    synchronize(core);
  }
}

} // namespace neuron
