#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <vector>

#include "base/process/joined_thread.hpp"

namespace train::data {

/// Thread pool that lives as long as this object, for work with per-thread state (an encoder's
/// cache, a template's process). Threading: one owner, who works too, as worker 0.
class OrderedWorkers {
 public:
  using Work = std::function<void(unsigned worker, std::size_t index)>;

  /// Throws std::system_error if a thread cannot be started.
  explicit OrderedWorkers(unsigned count);
  OrderedWorkers(const OrderedWorkers&) = delete;
  OrderedWorkers& operator=(const OrderedWorkers&) = delete;
  ~OrderedWorkers();

  /// Calls `work` once for every index below `count`, on any worker. Blocks. Rethrows the first
  /// exception when all workers are done.
  void run(std::size_t count, const Work& work);

 private:
  void end();
  void serve(unsigned worker);
  void take_part(unsigned worker);

  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_, except that work_ and count_ are constant during a round.
  const Work* work_ = nullptr;
  std::size_t count_ = 0;
  std::uint64_t round_ = 0;
  unsigned busy_ = 0;
  bool ended_ = false;
  std::exception_ptr failure_;
  std::atomic<std::size_t> next_{0};
  std::vector<JoinedThread> threads_;
};

}  // namespace train::data
