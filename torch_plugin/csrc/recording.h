// What the cores did while a profile was taken. While none is, a command costs one look at a flag more.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "device.h"

namespace neuron {

// Times are nanoseconds of the Unix epoch. `correlation` is the profiler's number of the operator on the host that was
// at work, 0 for none; `thread` is that thread's number in the system.
struct Happened {
  std::string operation;
  int device;
  uint64_t model; // 0 for a command that runs none
  uint64_t correlation;
  int32_t thread;
  int64_t begin;
  int64_t end;
};

// The host took from `submit_begin` to `submit_end` to append it to the queue.
struct Execution : Happened {
  Kind kind;
  int64_t submit_begin;
  int64_t submit_end;
};

// A signature's way to its plan: traced, lowered, compiled or found in the cache, loaded.
using Planning = Happened;

struct Recording {
  std::vector<Execution> executions;
  std::vector<Planning> plannings;
  uint64_t lost = 0; // commands for whose times there was no memory
};

struct ModelName {
  std::string key;     // the beginning of the NEFF's key in the cache
  std::string outcome; // how the cache came by it
};

extern std::atomic<bool> is_recording;

// One profile at a time; the latest start wins.
void start_recording();
// Waits for the commands that were recorded. Call it without the GIL.
Recording stop_recording();

void push_correlation(uint64_t id);
void pop_correlation();

void name_model(int device, uint64_t model, std::string key, std::string outcome);
ModelName model_name(int device, uint64_t model);

// Appends a command to the core's queue, as `Ring::submit`, and records it while a profile is taken.
uint64_t submit(
    Core& core, Kind kind, uint64_t target, uint64_t inputs, const uint64_t* operands, size_t count,
    const char* operation);

// Records its own life as the planning of an operator.
class PlanningTimer {
 public:
  PlanningTimer(const std::string& operation, int device);
  ~PlanningTimer();
  PlanningTimer(const PlanningTimer&) = delete;
  PlanningTimer& operator=(const PlanningTimer&) = delete;
  void made(uint64_t model) {
    model_ = model;
  }

 private:
  const std::string& operation_;
  int device_;
  uint64_t model_ = 0;
  int64_t begin_ = 0; // 0 where nothing is recorded
};

} // namespace neuron
