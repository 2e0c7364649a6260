#include "recording.h"

#include <c10/util/ApproximateClock.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <map>
#include <shared_mutex>

#include "allocator.h"

namespace neuron {

std::atomic<bool> is_recording{false};

namespace {

constexpr size_t kStampsPerChunk = 4096;
using Stamps = std::array<int64_t, 2>; // begin and end, by the executor's monotonic clock

struct Pending {
  Execution execution;
  const Stamps* stamps;
};

struct Chunk {
  c10::DataPtr memory;
  size_t used = 0;
};

struct Recorder {
  // Shared by who submits, so that no command with stamps is on its way when their memory is given back.
  std::shared_mutex open;
  std::mutex mutex; // of the rest
  std::vector<Pending> pending;
  std::vector<Planning> plannings;
  std::array<std::vector<Chunk>, kMaxDevices> chunks;
  std::map<std::pair<int, uint64_t>, ModelName> models;
  uint64_t lost = 0;
};

Recorder& recorder() {
  static auto* made = new Recorder();
  return *made;
}

std::vector<uint64_t>& correlations() {
  thread_local std::vector<uint64_t> open;
  return open;
}

uint64_t correlation() {
  return correlations().empty() ? 0 : correlations().back();
}

int32_t thread_number() {
  thread_local const auto number = static_cast<int32_t>(syscall(SYS_gettid));
  return number;
}

// Memory of the device for one command's times. Throws when there is none.
Stamps* stamps_on(int device) {
  auto& chunks = recorder().chunks[device];
  {
    std::lock_guard<std::mutex> lock(recorder().mutex);
    if (!chunks.empty() && chunks.back().used < kStampsPerChunk) {
      return static_cast<Stamps*>(chunks.back().memory.get()) + chunks.back().used++;
    }
  }
  const int former = exchange_device(device);
  c10::DataPtr memory;
  try {
    memory = allocator()->allocate(kStampsPerChunk * sizeof(Stamps));
  } catch (...) {
    unchecked_set_device(former);
    throw;
  }
  unchecked_set_device(former);
  std::lock_guard<std::mutex> lock(recorder().mutex);
  chunks.push_back({std::move(memory), 1});
  return static_cast<Stamps*>(chunks.back().memory.get());
}

} // namespace

void start_recording() {
  std::unique_lock<std::shared_mutex> closed(recorder().open);
  std::lock_guard<std::mutex> lock(recorder().mutex);
  recorder().pending.clear();
  recorder().plannings.clear();
  recorder().lost = 0;
  is_recording = true;
}

Recording stop_recording() {
  std::unique_lock<std::shared_mutex> closed(recorder().open);
  is_recording = false;
  for (int device = 0; device < kMaxDevices; ++device) {
    if (!recorder().chunks[device].empty()) {
      Core& used = core(device);
      used.ring->wait(used.ring->submitted());
    }
  }
  const int64_t to_epoch = c10::getTime() - c10::getTime(/*allow_monotonic=*/true);
  Recording made;
  std::array<std::vector<Chunk>, kMaxDevices> given_back;
  {
    std::lock_guard<std::mutex> lock(recorder().mutex);
    for (Pending& pending : recorder().pending) {
      pending.execution.begin = (*pending.stamps)[0] + to_epoch;
      pending.execution.end = (*pending.stamps)[1] + to_epoch;
      made.executions.push_back(std::move(pending.execution));
    }
    recorder().pending.clear();
    made.plannings.swap(recorder().plannings);
    made.lost = recorder().lost;
    given_back.swap(recorder().chunks);
  }
  return made;
}

void push_correlation(uint64_t id) {
  correlations().push_back(id);
}

void pop_correlation() {
  if (!correlations().empty()) {
    correlations().pop_back();
  }
}

void name_model(int device, uint64_t model, std::string key, std::string outcome) {
  std::lock_guard<std::mutex> lock(recorder().mutex);
  recorder().models[{device, model}] = {std::move(key), std::move(outcome)};
}

ModelName model_name(int device, uint64_t model) {
  std::lock_guard<std::mutex> lock(recorder().mutex);
  const auto found = recorder().models.find({device, model});
  return found == recorder().models.end() ? ModelName{} : found->second;
}

uint64_t submit(
    Core& core, Kind kind, uint64_t target, uint64_t inputs, const uint64_t* operands, size_t count,
    const char* operation) {
  if (!is_recording.load(std::memory_order_relaxed)) {
    return core.ring->submit(kind, target, inputs, operands, count, operation);
  }
  std::shared_lock<std::shared_mutex> open(recorder().open);
  Stamps* stamps = nullptr;
  if (is_recording) {
    try {
      stamps = stamps_on(core.index);
    } catch (const c10::OutOfMemoryError&) {
      std::lock_guard<std::mutex> lock(recorder().mutex);
      ++recorder().lost;
    }
  }
  if (stamps == nullptr) {
    return core.ring->submit(kind, target, inputs, operands, count, operation);
  }
  const uint64_t at = core.offset_of(stamps);
  const int64_t submit_begin = c10::getTime();
  const uint64_t sequence =
      core.ring->submit(kind, target, inputs, operands, count, operation, std::array{at, at + sizeof(int64_t)});
  const int64_t submit_end = c10::getTime();
  const uint64_t model = kind == Kind::Execute ? target : 0;
  std::lock_guard<std::mutex> lock(recorder().mutex);
  recorder().pending.push_back(
      {Execution{
           {operation, core.index, model, correlation(), thread_number(), 0, 0}, kind, submit_begin, submit_end},
       stamps});
  return sequence;
}

PlanningTimer::PlanningTimer(const std::string& operation, int device) : operation_(operation), device_(device) {
  if (is_recording.load(std::memory_order_relaxed)) {
    begin_ = c10::getTime();
  }
}

PlanningTimer::~PlanningTimer() {
  if (begin_ != 0) {
    std::lock_guard<std::mutex> lock(recorder().mutex);
    recorder().plannings.push_back(
        {operation_, device_, model_, correlation(), thread_number(), begin_, c10::getTime()});
  }
}

} // namespace neuron
