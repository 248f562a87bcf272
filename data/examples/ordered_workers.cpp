#include "data/examples/ordered_workers.hpp"

#include <utility>

#include "base/process/joined_thread.hpp"

namespace train::data {

OrderedWorkers::OrderedWorkers(unsigned count) {
  try {
    for (unsigned worker = 1; worker < count; ++worker) {
      threads_.emplace_back([this, worker] { serve(worker); });
    }
  } catch (...) {
    end();  // One that cannot be started: the ones before it are joined next.
    throw;
  }
}

OrderedWorkers::~OrderedWorkers() { end(); }

void OrderedWorkers::end() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  threads_.clear();  // Joins them.
}

void OrderedWorkers::run(std::size_t count, const Work& work) {
  {
    const std::lock_guard lock(mutex_);
    work_ = &work;
    count_ = count;
    next_ = 0;
    busy_ = static_cast<unsigned>(threads_.size());
    ++round_;
  }
  changed_.notify_all();
  take_part(0);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return busy_ == 0; });
  if (const auto failure = std::exchange(failure_, nullptr)) {
    std::rethrow_exception(failure);
  }
}

void OrderedWorkers::serve(unsigned worker) {
  std::uint64_t seen = 0;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ended_ || round_ != seen; });
      if (ended_) {
        return;
      }
      seen = round_;
    }
    take_part(worker);
    {
      const std::lock_guard lock(mutex_);
      --busy_;
    }
    changed_.notify_all();
  }
}

void OrderedWorkers::take_part(unsigned worker) {
  try {
    for (std::size_t index = next_++; index < count_; index = next_++) {
      (*work_)(worker, index);
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = failure_ ? failure_ : std::current_exception();
  }
}

}  // namespace train::data
