#include "actors/system/run_queue.hpp"

#include <caf/actor_system_config.hpp>
#include <caf/policy/unprofiled.hpp>
#include <caf/resumable.hpp>
#include <caf/scheduler/coordinator.hpp>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <vector>

namespace train::actors {
namespace {

/// First in, first out.
class Ring {
 public:
  Ring() : slots_(kAtFirst) {}

  [[nodiscard]] bool empty() const { return count_ == 0; }
  void push(caf::resumable* job) noexcept {
    if (count_ == slots_.size()) {
      grow();
    }
    slots_[(first_ + count_++) % slots_.size()] = job;
  }
  caf::resumable* pop() {
    caf::resumable* const job = slots_[first_];
    first_ = (first_ + 1) % slots_.size();
    --count_;
    return job;
  }

 private:
  static constexpr std::size_t kAtFirst = 4096;

  void grow() {
    std::vector<caf::resumable*> more;
    more.reserve(2 * slots_.size());
    for (std::size_t i = 0; i < count_; ++i) {
      more.push_back(slots_[(first_ + i) % slots_.size()]);
    }
    more.resize(2 * slots_.size());
    slots_.swap(more);
    first_ = 0;
  }

  std::vector<caf::resumable*> slots_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
};

/// The policy of CAF's coordinator and workers, by the names that these call.
class RunQueuePolicy : public caf::policy::unprofiled {
 public:
  struct coordinator_data {
    explicit coordinator_data(caf::scheduler::abstract_coordinator* /*coordinator*/) {}
    std::mutex mutex;
    std::condition_variable added;
    Ring jobs;
  };
  struct worker_data {
    explicit worker_data(caf::scheduler::abstract_coordinator* /*coordinator*/) {}
  };

  template <class Coordinator>
  void central_enqueue(Coordinator* self, caf::resumable* job) noexcept {
    coordinator_data& queue = self->data();
    {
      const std::lock_guard lock(queue.mutex);
      queue.jobs.push(job);
    }
    queue.added.notify_one();
  }
  template <class Worker>
  void external_enqueue(Worker* self, caf::resumable* job) noexcept {
    central_enqueue(self->parent(), job);
  }
  template <class Worker>
  void internal_enqueue(Worker* self, caf::resumable* job) noexcept {
    central_enqueue(self->parent(), job);
  }
  /// A job that has let go of its thread for others.
  template <class Worker>
  void resume_job_later(Worker* self, caf::resumable* job) noexcept {
    central_enqueue(self->parent(), job);
  }
  template <class Worker>
  caf::resumable* dequeue(Worker* self) {
    coordinator_data& queue = self->parent()->data();
    std::unique_lock lock(queue.mutex);
    queue.added.wait(lock, [&] { return !queue.jobs.empty(); });
    return queue.jobs.pop();
  }
  template <class Worker, class Function>
  void foreach_resumable(Worker* /*self*/, Function /*function*/) {}
  template <class Coordinator, class Function>
  void foreach_central_resumable(Coordinator* self, Function function) {
    coordinator_data& queue = self->data();
    const std::lock_guard lock(queue.mutex);
    while (!queue.jobs.empty()) {
      function(queue.jobs.pop());
    }
  }
};

}  // namespace

void use_run_queue(caf::actor_system_config& config) {
  config.load<caf::scheduler::coordinator<RunQueuePolicy>>();
}

}  // namespace train::actors
