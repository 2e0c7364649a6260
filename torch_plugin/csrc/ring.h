// The producer's end of one NeuronCore's submission queue; the layout is that of neuron_runtime/protocol/queue.py.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace neuron {

enum class Kind : uint64_t { Execute = 1, Copy = 2, Fill = 3, CopyStrided = 4, FillStrided = 5, Stamp = 6 };

// The first error since the last time somebody asked, and the operator whose command it was.
struct CommandFailure {
  uint64_t sequence;
  uint64_t status;
  uint64_t count;
  std::string detail;
  std::string operation;
};

// Thread-safe. Never call it with the GIL held where a call may wait: the liveness check takes the GIL.
class Ring {
 public:
  // `alive` is asked while waiting; it throws when the executor is gone or a signal wants to be handled.
  Ring(int memory, uint64_t core, int wake_executor, int wake_client, double timeout, std::function<void()> alive);
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // Appends a command and gives its sequence number; waits while the ring is full. `operation` must live on.
  // `stamps`: addresses that get the times at which the command begins and ends, nanoseconds of the monotonic clock.
  uint64_t submit(
      Kind kind, uint64_t target, uint64_t inputs, const uint64_t* operands, size_t count, const char* operation,
      std::optional<std::array<uint64_t, 2>> stamps = std::nullopt);

  uint64_t submitted() const {
    return submitted_.load(std::memory_order_acquire);
  }
  uint64_t completed() const;
  // Until command `sequence` has ended. Throws what `alive` throws, and on a command that outlasts the timeout.
  void wait(uint64_t sequence);
  std::optional<CommandFailure> take_failure();
  void publish_usage(const uint64_t (&values)[5]);
  void close();

 private:
  uint64_t append(
      std::unique_lock<std::mutex>& lock, Kind kind, uint64_t target, uint64_t inputs, const uint64_t* operands,
      size_t count, const char* operation);
  uint64_t load(size_t word) const;
  void store(size_t word, uint64_t value);
  void remember_failure();
  void sleep_until(const std::function<bool()>& done, const std::function<uint64_t()>& wake_at);
  bool fits(size_t length) const;

  uint64_t* words_;
  int wake_executor_;
  int wake_client_;
  double timeout_;
  std::function<void()> alive_;
  std::mutex writing_;
  std::timed_mutex sleeping_;
  uint64_t head_;
  std::atomic<uint64_t> submitted_;
  std::atomic<bool> closed_{false};
  // Who submitted what: an error surfaces late, and must name its operator then.
  static constexpr size_t kNames = 8192;
  std::unique_ptr<const char*[]> names_;
  std::string failed_operation_;
  bool failure_remembered_ = false;
};

} // namespace neuron
