#include "ring.h"

#include <c10/util/Exception.h>

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

namespace neuron {

namespace {

constexpr size_t kHeaderBytes = 4096;
constexpr size_t kQueueBytes = 256 << 10;
constexpr size_t kRing = kHeaderBytes / 8;
constexpr size_t kRingWords = (kQueueBytes - kHeaderBytes) / 8;
constexpr size_t kMaxCommandWords = kRingWords / 4;
constexpr uint64_t kLayout = 0x4E45555100000002; // "NEUQ", layout version 2
constexpr uint64_t kWrap = 0xFFFFFFFF;

// Words the client writes.
constexpr size_t kLayoutWord = 0, kHead = 8, kSubmitted = 9, kWakeAt = 10, kErrorAck = 11, kUsage = 16;
// Words the executor writes.
constexpr size_t kTail = 32, kCompleted = 33, kExecutorSleeps = 34;
constexpr size_t kErrorCount = 40, kErrorSequence = 41, kErrorStatus = 42, kErrorLength = 43;
constexpr size_t kErrorTextAt = 2048;

#if defined(__x86_64__)
constexpr auto kSpin = std::chrono::microseconds(100);
#else
constexpr auto kSpin = std::chrono::microseconds(0);
#endif
constexpr int kFirstPauseMs = 5, kLongestPauseMs = 100;

using Clock = std::chrono::steady_clock;

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

void drain(int fd) {
  eventfd_t value;
  (void)eventfd_read(fd, &value);
}

} // namespace

Ring::Ring(
    int memory, uint64_t core, int wake_executor, int wake_client, double timeout, std::function<void()> alive)
    : wake_executor_(wake_executor),
      wake_client_(wake_client),
      timeout_(timeout),
      alive_(std::move(alive)),
      names_(new const char*[kNames]()) {
  void* mapped = mmap(
      nullptr, kQueueBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, static_cast<off_t>(core * kQueueBytes));
  TORCH_CHECK(mapped != MAP_FAILED, "cannot map the NeuronCore's queue: ", std::strerror(errno));
  words_ = static_cast<uint64_t*>(mapped);
  TORCH_CHECK(
      load(kLayoutWord) == kLayout,
      "the runtime's queue has layout ", load(kLayoutWord), ", this build of torch_neuronx writes ", kLayout,
      "; build torch_neuronx again");
  head_ = load(kHead);
  submitted_ = load(kSubmitted);
}

Ring::~Ring() {
  munmap(words_, kQueueBytes);
}

uint64_t Ring::load(size_t word) const {
  return __atomic_load_n(words_ + word, __ATOMIC_ACQUIRE);
}

void Ring::store(size_t word, uint64_t value) {
  __atomic_store_n(words_ + word, value, __ATOMIC_RELEASE);
}

uint64_t Ring::completed() const {
  return load(kCompleted);
}

bool Ring::fits(size_t length) const {
  const size_t at = head_ % kRingWords;
  const size_t gap = kRingWords - at < length ? kRingWords - at : 0;
  return head_ + gap + length - load(kTail) <= kRingWords;
}

uint64_t Ring::submit(
    Kind kind, uint64_t target, uint64_t inputs, const uint64_t* operands, size_t count, const char* operation,
    std::optional<std::array<uint64_t, 2>> stamps) {
  std::unique_lock<std::mutex> lock(writing_);
  if (stamps) {
    append(lock, Kind::Stamp, 0, 0, &(*stamps)[0], 1, operation);
  }
  const uint64_t sequence = append(lock, kind, target, inputs, operands, count, operation);
  if (stamps) {
    append(lock, Kind::Stamp, 0, 0, &(*stamps)[1], 1, operation);
  }
  return sequence;
}

uint64_t Ring::append(
    std::unique_lock<std::mutex>& lock, Kind kind, uint64_t target, uint64_t inputs, const uint64_t* operands,
    size_t count, const char* operation) {
  const size_t length = 4 + count;
  TORCH_CHECK(
      length <= kMaxCommandWords, "a command of ", count, " operands is over the limit of ", kMaxCommandWords - 4);
  while (!fits(length)) {
    // Room for this one would do; half the queue is a wake-up well spent.
    const uint64_t middle = (load(kCompleted) + submitted_.load(std::memory_order_relaxed) + 1) / 2;
    lock.unlock();
    wait(middle);
    lock.lock();
  }
  TORCH_CHECK(!closed_, "the Neuron runtime of this process has been closed");
  size_t at = head_ % kRingWords;
  if (kRingWords - at < length) {
    words_[kRing + at] = kWrap;
    head_ += kRingWords - at;
    at = 0;
  }
  if (load(kErrorCount) != words_[kErrorAck]) {
    remember_failure();
  }
  const uint64_t sequence = submitted_.load(std::memory_order_relaxed) + 1;
  uint64_t* command = words_ + kRing + at;
  command[0] = length | static_cast<uint64_t>(kind) << 32;
  command[1] = sequence;
  command[2] = target;
  command[3] = inputs;
  std::memcpy(command + 4, operands, count * sizeof(uint64_t));
  names_[sequence % kNames] = operation;
  head_ += length;
  store(kSubmitted, sequence);
  submitted_.store(sequence, std::memory_order_release);
  store(kHead, head_);
  // The store above and the load below must not cross, or a wake-up could be missed for a moment.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (load(kExecutorSleeps)) {
    eventfd_write(wake_executor_, 1);
  }
  return sequence;
}

void Ring::wait(uint64_t sequence) {
  if (load(kCompleted) >= sequence) {
    return;
  }
  const auto until = Clock::now() + kSpin;
  do {
    if (load(kCompleted) >= sequence) {
      return;
    }
    relax();
  } while (Clock::now() < until);
  sleep_until([&] { return load(kCompleted) >= sequence; }, [&] { return sequence; });
}

void Ring::sleep_until(const std::function<bool()>& done, const std::function<uint64_t()>& wake_at) {
  // One sleeper at a time, since there is one word for the command it waits for.
  while (!sleeping_.try_lock_for(std::chrono::milliseconds(kLongestPauseMs))) {
    if (done()) {
      return;
    }
    alive_();
  }
  std::lock_guard<std::timed_mutex> lock(sleeping_, std::adopt_lock);
  uint64_t progress = load(kCompleted);
  auto since = Clock::now();
  int pause = kFirstPauseMs;
  while (true) {
    store(kWakeAt, wake_at());
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (done()) {
      break;
    }
    pollfd entry{wake_client_, POLLIN, 0};
    if (poll(&entry, 1, pause) > 0) {
      drain(wake_client_);
    } else {
      pause = std::min(pause * 2, kLongestPauseMs);
    }
    if (done()) {
      break;
    }
    TORCH_CHECK(!closed_, "the Neuron runtime of this process has been closed");
    try {
      alive_();
    } catch (...) {
      store(kWakeAt, 0);
      throw;
    }
    if (load(kCompleted) != progress) {
      progress = load(kCompleted);
      since = Clock::now();
    } else if (std::chrono::duration<double>(Clock::now() - since).count() > timeout_) {
      store(kWakeAt, 0);
      TORCH_CHECK(
          false, "NRT Error NRT_TIMEOUT(5): no command ended on this NeuronCore for ", timeout_,
          " s; raise `NEURON_RT_EXEC_TIMEOUT` (seconds) when the graph is known to take longer");
    }
  }
  store(kWakeAt, 0);
}

void Ring::remember_failure() {
  if (!failure_remembered_) {
    const char* name = names_[load(kErrorSequence) % kNames];
    failed_operation_ = name ? name : "unknown";
    failure_remembered_ = true;
  }
}

std::optional<CommandFailure> Ring::take_failure() {
  if (load(kErrorCount) == __atomic_load_n(words_ + kErrorAck, __ATOMIC_RELAXED)) {
    return std::nullopt;
  }
  std::lock_guard<std::mutex> lock(writing_);
  const uint64_t count = load(kErrorCount);
  if (count == words_[kErrorAck]) {
    return std::nullopt;
  }
  remember_failure();
  const size_t length = std::min<size_t>(load(kErrorLength), kHeaderBytes - kErrorTextAt);
  CommandFailure failure{
      load(kErrorSequence),
      load(kErrorStatus),
      count - words_[kErrorAck],
      std::string(reinterpret_cast<const char*>(words_) + kErrorTextAt, length),
      failed_operation_};
  store(kErrorAck, count);
  failure_remembered_ = false;
  return failure;
}

void Ring::publish_usage(const uint64_t (&values)[5]) {
  for (size_t i = 0; i < 5; ++i) {
    store(kUsage + i, values[i]);
  }
}

void Ring::close() {
  closed_ = true;
}

} // namespace neuron
