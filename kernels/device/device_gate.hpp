#pragma once

#include <condition_variable>
#include <mutex>

namespace train::kernels {

/// Keeps two kinds of work of one process on its device apart: exchanges with other processes,
/// whose kernels spin until the peer's have come, and calls that may wait for all kernels of the
/// device, as memory is allocated and freed. Two ranks whose calls wait for one exchange each,
/// behind which the other rank's part of the other exchange cannot be launched, would wait forever.
///
/// A call waits until no exchange is under way; an exchange waits for a call that has begun, never
/// for one that waits. So what waits ends by itself: an exchange that is under way needs no more of
/// the device than it has, once its peers have passed their own gates, and a call that has begun
/// waits for kernels that wait for nobody.
///
/// Threading: from any thread. The two are not nested in each other.
class DeviceGate {
 public:
  /// Of this process.
  static DeviceGate& instance();

  /// While it lives, an exchange is under way. Blocks while a call runs.
  class Exchange {
   public:
    explicit Exchange(DeviceGate& gate = instance());
    ~Exchange();
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;

   private:
    DeviceGate& gate_;
  };

  /// While it lives, a call runs that may wait for the whole device. Blocks while there are
  /// exchanges.
  class Call {
   public:
    explicit Call(DeviceGate& gate = instance());
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    DeviceGate& gate_;
  };

  /// Calls that wait for exchanges to end.
  [[nodiscard]] int waiting_calls() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  int exchanges_ = 0;
  int calls_ = 0;
  int waiting_calls_ = 0;
};

}  // namespace train::kernels
