#pragma once

#include <condition_variable>
#include <mutex>

namespace train::kernels {

/// Keeps two kinds of device work of one process apart: exchanges with other processes, whose
/// kernels spin until their peers' have started, and calls that may wait for all kernels of the
/// device, such as allocating and freeing memory. Otherwise two ranks deadlock: each one's call
/// waits for one exchange, behind which the rank's part of the other exchange cannot be launched.
///
/// A call waits until no exchange is running; an exchange waits for a running call, never for a
/// waiting one. Every wait ends: a running exchange needs nothing more from the device once its
/// peers have passed their own gates, and a running call waits only for kernels that wait for no
/// peer.
///
/// Threading: from any thread. Exchanges and calls must not be nested in each other.
class DeviceGate {
 public:
  /// The gate of this process.
  static DeviceGate& instance();

  /// Scope of a running exchange. The constructor blocks while a call runs.
  class Exchange {
   public:
    explicit Exchange(DeviceGate& gate = instance());
    ~Exchange();
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;

   private:
    DeviceGate& gate_;
  };

  /// Scope of a running call that may wait for the whole device. The constructor blocks while
  /// exchanges run.
  class Call {
   public:
    explicit Call(DeviceGate& gate = instance());
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    DeviceGate& gate_;
  };

  /// Number of calls that wait for exchanges to end.
  [[nodiscard]] int waiting_calls() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int exchanges_ = 0;
  int calls_ = 0;
  int waiting_calls_ = 0;
};

}  // namespace train::kernels
