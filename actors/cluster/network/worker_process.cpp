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

/// Those of one node. Each is watched by a coroutine of its own.
struct WorkerProcesses::Children {
  struct Child {
    Process process;
    bool told_to_end = false;
    std::optional<std::uint64_t> oom_kills = count_oom_kills();  // when it was started
  };

  OnEnd on_end;
  std::list<Child*> started = {};  // of the loop's thread
  std::mutex mutex = {};
  std::condition_variable ended = {};
  std::size_t running = 0;  // guarded by the mutex: ordered, and its end not yet reported

  static asio::awaitable<void> watch(std::shared_ptr<Children> all, std::int32_t rank,
                                     std::vector<std::string> words, std::vector<int> inherited) {
    auto process = Process::start(words, {.inherited = inherited, .ignored = kOnlyForTheLauncher});
    if (!process) {
      co_return all->report(
          {.rank = rank,
           .text = fmt::format("{} could not be started: {}", words[0], process.error().message)});
    }
    Child child{.process = std::move(process).value()};
    all->started.push_back(&child);
    std::optional<ProcessEnd> end;
    while (!end) {
      co_await wait_readable(child.process.handle());
      end = child.process.try_reap();
    }
    all->started.remove(&child);
    const bool unasked = end->signal != 0 && !child.told_to_end;
    const bool short_of_memory =
        unasked && end->signal == SIGKILL && child.oom_kills && count_oom_kills() > child.oom_kills;
    all->report({.rank = rank,
                 .pid = child.process.pid(),
                 .text = end->text() + (short_of_memory ? kShortOfMemory : ""),
                 .clean = end->exit_code == 0,
                 .killed = killed_from_outside(*end),
                 .unasked = unasked});
  }

  void report(const WorkerEnd& end) {
    on_end(end);
    const std::lock_guard lock(mutex);
    --running;
    ended.notify_all();
  }

  /// False: some still run after `time`.
  bool wait_for_all(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex);
    return ended.wait_for(lock, time, [this] { return running == 0; });
  }
};

WorkerProcesses::WorkerProcesses(const EventLoop& loop, OnEnd on_end)
    : loop_(loop), children_(new Children{.on_end = std::move(on_end)}) {}

WorkerProcesses::~WorkerProcesses() { terminate_all(std::chrono::milliseconds(0)); }

void WorkerProcesses::start(std::int32_t rank, std::vector<std::string> words,
                            std::vector<int> inherited) {
  {
    const std::lock_guard lock(children_->mutex);
    ++children_->running;
  }
  asio::co_spawn(loop_.context(),
                 Children::watch(children_, rank, std::move(words), std::move(inherited)),
                 log_failure);
}

std::size_t WorkerProcesses::terminate_all(std::chrono::milliseconds grace) {
  std::size_t killed = 0;
  // Again and again: what had only been ordered may have been started meanwhile.
  for (auto time = grace; !children_->wait_for_all(time); time = std::chrono::milliseconds(20)) {
    call_on(loop_, [&] {
      killed = std::max(killed, children_->started.size());
      for (Children::Child* const child : children_->started) {
        child->told_to_end = true;
        child->process.kill();
      }
    });
  }
  return killed;
}

std::vector<std::string> worker_words(std::int32_t rank, const std::string& head,
                                      const std::string& credentials) {
  return {"/proc/self/exe",        "worker",        "--head",   head, "--rank",
          fmt::format("{}", rank), "--credentials", credentials};
}

}  // namespace train::actors
