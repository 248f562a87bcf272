#include "actors/cluster/network/worker_process.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <csignal>
#include <list>
#include <optional>
#include <thread>
#include <utility>

#include "actors/cluster/network/coroutines.hpp"
#include "base/process/own_program.hpp"
#include "base/process/stop_signals.hpp"

namespace train::actors {
namespace {

constexpr const char* kShortOfMemory =
    " (the kernel has killed a process of this machine meanwhile because memory ran out: dmesg "
    "says which)";
// Polling interval for the last child's end.
constexpr std::chrono::milliseconds kBetweenLooksAtChildren{2};

/// A process with an error of its own would fail again; every other end is an environment failure.
bool killed_from_outside(const ProcessEnd& end) {
  static constexpr std::array<int, 8> kOwnErrors = {0,      SIGSEGV, SIGABRT, SIGILL,
                                                    SIGFPE, SIGBUS,  SIGSYS,  SIGTRAP};
  return end.exit_code == kExitWithoutHead ||
         std::find(kOwnErrors.begin(), kOwnErrors.end(), end.signal) == kOwnErrors.end();
}

std::string text_of(const ProcessEnd& end) {
  return end.exit_code == kExitWithoutHead ? "it had lost the head" : end.text();
}

}  // namespace

/// Worker processes of one node, each watched by its own coroutine.
struct WorkerProcesses::Children {
  struct Child {
    Process process;
    bool told_to_end = false;
    std::optional<std::uint64_t> oom_kills = count_oom_kills();  // At its start.
  };

  OnEnd on_end;
  std::list<Child*> started = {};        // Used on the loop's thread.
  std::atomic<std::size_t> running = 0;  // Started or ordered to start, with its end not yet
                                         // reported.

  static asio::awaitable<void> watch(std::shared_ptr<Children> all, std::int32_t rank,
                                     std::vector<std::string> words, std::vector<int> inherited) {
    auto process = Process::start(words, {.inherited = inherited, .ignored = kStopSignals});
    if (!process) {
      co_return all->report(
          {.rank = rank,
           .text = fmt::format("{} could not be started: {}", words[0], process.error().message)});
    }
    Child child{.process = std::move(process).value()};
    all->started.push_back(&child);
    asio::posix::stream_descriptor handle(co_await asio::this_coro::executor,
                                          child.process.handle());
    const std::shared_ptr<void> releases_handle(nullptr,
                                                [&handle](void*) { (void)handle.release(); });
    std::optional<ProcessEnd> end;
    while (!end) {
      co_await handle.async_wait(asio::posix::stream_descriptor::wait_read, kUseTuple);
      end = child.process.try_reap();
    }
    all->started.remove(&child);
    const bool unasked = end->signal != 0 && !child.told_to_end;
    const bool short_of_memory =
        unasked && end->signal == SIGKILL && child.oom_kills && count_oom_kills() > child.oom_kills;
    all->report({.rank = rank,
                 .pid = child.process.pid(),
                 .text = text_of(*end) + (short_of_memory ? kShortOfMemory : ""),
                 .clean = end->exit_code == 0,
                 .killed = killed_from_outside(*end),
                 .unasked = unasked});
  }

  void report(const run::WorkerEnd& end) {
    on_end(end);
    --running;
  }
};

WorkerProcesses::WorkerProcesses(const EventLoop& loop, OnEnd on_end)
    : loop_(loop), children_(new Children{.on_end = std::move(on_end)}) {}

WorkerProcesses::~WorkerProcesses() { terminate_all(std::chrono::milliseconds(0)); }

void WorkerProcesses::start(std::int32_t rank, std::vector<std::string> words,
                            std::vector<int> inherited) {
  ++children_->running;
  asio::co_spawn(loop_.context(),
                 Children::watch(children_, rank, std::move(words), std::move(inherited)),
                 log_failure);
}

std::size_t WorkerProcesses::terminate_all(std::chrono::milliseconds grace) {
  const auto patient_until = std::chrono::steady_clock::now() + grace;
  std::size_t killed = 0;
  for (; children_->running > 0; std::this_thread::sleep_for(kBetweenLooksAtChildren)) {
    if (std::chrono::steady_clock::now() < patient_until) {
      continue;
    }
    // Repeated, as ordered processes may have been started meanwhile.
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
  return {own_program_now(),       "worker",        "--head",   head, "--rank",
          fmt::format("{}", rank), "--credentials", credentials};
}

}  // namespace train::actors
