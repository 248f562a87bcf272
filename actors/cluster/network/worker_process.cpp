#include "actors/cluster/network/worker_process.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <condition_variable>
#include <csignal>
#include <list>
#include <mutex>
#include <optional>
#include <utility>

#include "actors/cluster/network/coroutines.hpp"

namespace train::actors {
namespace {

constexpr const char* kShortOfMemory =
    " (the kernel has killed a process of this machine meanwhile because memory ran out: dmesg "
    "says which)";
constexpr std::array kOnlyForTheLauncher = {SIGINT, SIGTERM, SIGUSR1};

/// Whoever runs into an error of its own does so again; all else is the world's doing.
bool killed_from_outside(const ProcessEnd& end) {
  static constexpr std::array<int, 8> kOwnErrors = {0,      SIGSEGV, SIGABRT, SIGILL,
                                                    SIGFPE, SIGBUS,  SIGSYS,  SIGTRAP};
  return std::find(kOwnErrors.begin(), kOwnErrors.end(), end.signal) == kOwnErrors.end();
}

/// Does not own it.
asio::awaitable<void> wait_readable(int descriptor) {
  struct Borrowed {
    asio::posix::stream_descriptor handle;
    ~Borrowed() { (void)handle.release(); }
  };
  const auto executor = co_await asio::this_coro::executor;
  Borrowed borrowed{asio::posix::stream_descriptor(executor, descriptor)};
  co_await borrowed.handle.async_wait(asio::posix::stream_descriptor::wait_read, use_tuple);
}

}  // namespace

/// Each is watched by a coroutine of its own.
class WorkerProcesses::Children : public std::enable_shared_from_this<Children> {
 public:
  explicit Children(OnEnd on_end) : on_end_(std::move(on_end)) {}

  struct Order {
    std::int32_t rank = 0;
    std::vector<std::string> words;
    std::vector<int> inherited;
  };
  void start(const EventLoop& loop, Order order) {
    {
      const std::lock_guard lock(mutex_);
      ++running_;
    }
    asio::co_spawn(loop.context(), watch(shared_from_this(), std::move(order)), log_failure);
  }

  /// False: some still run after `time`.
  bool wait_for_all(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    return ended_.wait_for(lock, time, [this] { return running_ == 0; });
  }

  /// On the loop's thread, as all that follows.
  std::size_t kill_all() {
    for (Child* const child : children_) {
      child->told_to_end = true;
      child->process.kill();
    }
    return children_.size();
  }

 private:
  struct Child {
    Process process;
    bool told_to_end = false;
    std::optional<std::uint64_t> oom_kills = count_oom_kills();  // when it was started
  };

  static asio::awaitable<void> watch(std::shared_ptr<Children> all, Order order) {
    auto started =
        Process::start(order.words, {.inherited = order.inherited, .ignored = kOnlyForTheLauncher});
    if (!started) {
      all->report({.rank = order.rank,
                   .text = fmt::format("{} could not be started: {}", order.words[0],
                                       started.error().message)});
      co_return;
    }
    Child child{.process = std::move(started).value()};
    all->children_.push_back(&child);
    std::optional<ProcessEnd> end;
    while (!end) {
      co_await wait_readable(child.process.handle());
      end = child.process.try_reap();
    }
    all->children_.remove(&child);
    all->report(describe(order.rank, child, *end));
  }

  static WorkerEnd describe(std::int32_t rank, const Child& child, const ProcessEnd& end) {
    const bool unasked = end.signal != 0 && !child.told_to_end;
    const bool short_of_memory =
        unasked && end.signal == SIGKILL && child.oom_kills && count_oom_kills() > child.oom_kills;
    return {.rank = rank,
            .pid = child.process.pid(),
            .text = end.text() + (short_of_memory ? kShortOfMemory : ""),
            .clean = end.exit_code == 0,
            .killed = killed_from_outside(end),
            .unasked = unasked};
  }

  void report(const WorkerEnd& end) {
    on_end_(end);
    const std::lock_guard lock(mutex_);
    --running_;
    ended_.notify_all();
  }

  OnEnd on_end_;
  std::list<Child*> children_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::size_t running_ = 0;  // guarded by mutex_: ordered, and its end not yet reported
};

WorkerProcesses::WorkerProcesses(const EventLoop& loop, OnEnd on_end)
    : loop_(loop), children_(std::make_shared<Children>(std::move(on_end))) {}

WorkerProcesses::~WorkerProcesses() { terminate_all(std::chrono::milliseconds(0)); }

void WorkerProcesses::start(std::int32_t rank, std::vector<std::string> words,
                            std::vector<int> inherited) {
  children_->start(loop_, {rank, std::move(words), std::move(inherited)});
}

std::size_t WorkerProcesses::terminate_all(std::chrono::milliseconds grace) {
  if (children_->wait_for_all(grace)) {
    return 0;
  }
  // Again and again: what had only been ordered may have been started meanwhile.
  std::size_t killed = 0;
  do {
    call_on(loop_, [&] { killed = std::max(killed, children_->kill_all()); });
  } while (!children_->wait_for_all(std::chrono::milliseconds(20)));
  return killed;
}

std::vector<std::string> worker_words(std::int32_t rank, const std::string& head,
                                      const std::string& credentials) {
  return {"/proc/self/exe",        "worker",        "--head",   head, "--rank",
          fmt::format("{}", rank), "--credentials", credentials};
}

}  // namespace train::actors
