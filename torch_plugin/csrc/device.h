// The NeuronCores of this process as PyTorch devices: each one's HBM, mapped here, and its queue.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <mutex>

#include "ring.h"

namespace neuron {

constexpr c10::DeviceType kNeuron = c10::DeviceType::PrivateUse1;
constexpr int kMaxDevices = 64;
constexpr uintptr_t kAlignment = 64; // bytes; the executor reads tensors in place only where they lie so

// What only Python knows. Each may be called without the GIL.
struct Runtime {
  virtual ~Runtime() = default;
  virtual int device_count() noexcept = 0;
  // Asks the daemon for this process's cores when nobody has, and opens one.
  virtual void open(int index) = 0;
  // Offset of a new range of the core's HBM; negative when there is none, `why` then says so.
  virtual int64_t allocate(int index, size_t bytes, std::string& why) = 0;
  // Gives a range back once command `last_use` has ended.
  virtual void release(int index, int64_t offset, uint64_t last_use) = 0;
  // Throws when the executor has gone, or what a signal handler throws.
  virtual void check_alive() = 0;
};

struct Core {
  int index;
  char* base;
  size_t bytes;
  std::unique_ptr<Ring> ring;

  uint64_t offset_of(const void* pointer) const {
    return static_cast<uint64_t>(static_cast<const char*>(pointer) - base);
  }
  bool holds(const void* pointer) const {
    const char* at = static_cast<const char*>(pointer);
    return at >= base && at < base + bytes;
  }
};

void set_runtime(std::unique_ptr<Runtime> runtime);
Runtime& runtime();

int device_count() noexcept;
int current_device();
// The former current device. Throws for one that does not exist.
int exchange_device(int index);
void unchecked_set_device(int index) noexcept;

// The open core, opened by the first use. Throws in a forked child, and when no core is to be had.
Core& core(int index);
Core* core_if_open(int index) noexcept;
void add_core(std::unique_ptr<Core> core);
bool initialized() noexcept;
// Marks the cores closed; from here on they take no work.
void close_cores() noexcept;

bool in_bad_fork() noexcept;
// After this call a forked child may not use the device.
void poison_fork();

// Waits for a core's commands and throws the first error since the last time, naming the operator.
void synchronize(Core& core);
// Throws that error, if there is one, without waiting.
void raise_failure(Core& core);
// With NEURON_LAUNCH_BLOCKING=1, each command is waited for.
void after_submit(Core& core);

} // namespace neuron
