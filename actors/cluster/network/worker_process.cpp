#include "actors/cluster/network/worker_process.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <utility>

#include "base/check.hpp"

namespace train::actors {
namespace {

constexpr const char* kShortOfMemory =
    " (the kernel has killed a process of this machine meanwhile because memory ran out: dmesg "
    "says "
    "which)";
constexpr std::array kOnlyForTheLauncher = {SIGINT, SIGTERM, SIGUSR1};

/// Whoever runs into an error of its own does so again; all else is the world's doing.
bool killed_from_outside(const ProcessEnd& end) {
  static constexpr std::array<int, 8> kOwnErrors = {0,      SIGSEGV, SIGABRT, SIGILL,
                                                    SIGFPE, SIGBUS,  SIGSYS,  SIGTRAP};
  return std::find(kOwnErrors.begin(), kOwnErrors.end(), end.signal) == kOwnErrors.end();
}

}  // namespace

WorkerProcesses::WorkerProcesses(OnEnd on_end) : on_end_(std::move(on_end)) {
  thread_ = std::thread([this] { serve(); });
}

WorkerProcesses::~WorkerProcesses() {
  terminate_all(std::chrono::milliseconds(0));
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.set();
  thread_.join();
}

void WorkerProcesses::start(std::int32_t rank, std::vector<std::string> words,
                            std::vector<int> inherited) {
  {
    const std::lock_guard lock(mutex_);
    orders_.push_back({rank, std::move(words), std::move(inherited)});
    ++running_;
  }
  wake_.set();
}

std::size_t WorkerProcesses::kill_all() {
  const std::lock_guard lock(mutex_);
  for (Child& child : children_) {
    child.told_to_end = true;
    child.process.kill();
  }
  return children_.size();
}

std::size_t WorkerProcesses::terminate_all(std::chrono::milliseconds grace) {
  std::unique_lock lock(mutex_);
  const auto nothing_runs = [this] { return running_ == 0; };
  if (ended_.wait_for(lock, grace, nothing_runs)) {
    return 0;
  }
  // Again and again: what had only been ordered may have been started meanwhile.
  std::size_t killed = 0;
  do {
    lock.unlock();
    killed = std::max(killed, kill_all());
    lock.lock();
  } while (!ended_.wait_for(lock, std::chrono::milliseconds(20), nothing_runs));
  return killed;
}

void WorkerProcesses::report(const WorkerEnd& end) {
  on_end_(end);
  const std::lock_guard lock(mutex_);
  --running_;
  ended_.notify_all();
}

void WorkerProcesses::take_orders() {
  std::vector<Order> orders;
  {
    const std::lock_guard lock(mutex_);
    orders.swap(orders_);
  }
  for (const Order& order : orders) {
    auto started =
        Process::start(order.words, {.inherited = order.inherited, .ignored = kOnlyForTheLauncher});
    if (!started) {
      report({.rank = order.rank,
              .text = fmt::format("{} could not be started: {}", order.words[0],
                                  started.error().message)});
      continue;
    }
    const std::lock_guard lock(mutex_);
    children_.push_back({.rank = order.rank,
                         .process = std::move(started).value(),
                         .oom_kills = count_oom_kills()});
  }
}

void WorkerProcesses::reap_ended() {
  std::vector<WorkerEnd> ends;
  {
    const std::lock_guard lock(mutex_);
    children_.remove_if([&ends](Child& child) {
      const auto end = child.process.try_reap();
      if (end) {
        const bool unasked = end->signal != 0 && !child.told_to_end;
        const bool short_of_memory = unasked && end->signal == SIGKILL && child.oom_kills &&
                                     count_oom_kills() > child.oom_kills;
        ends.push_back({.rank = child.rank,
                        .pid = child.process.pid(),
                        .text = end->text() + (short_of_memory ? kShortOfMemory : ""),
                        .clean = end->exit_code == 0,
                        .killed = killed_from_outside(*end),
                        .unasked = unasked});
      }
      return end.has_value();
    });
  }
  for (const WorkerEnd& end : ends) {
    report(end);
  }
}

void WorkerProcesses::serve() {
  std::vector<pollfd> watched;
  for (;;) {
    watched.assign(1, {.fd = wake_.descriptor(), .events = POLLIN, .revents = 0});
    {
      const std::lock_guard lock(mutex_);
      if (stop_) {
        return;
      }
      for (const Child& child : children_) {
        watched.push_back({.fd = child.process.handle(), .events = POLLIN, .revents = 0});
      }
    }
    const int ready = ::poll(watched.data(), watched.size(), -1);
    TRAIN_CHECK(ready >= 0 || errno == EINTR);
    wake_.clear();
    take_orders();
    reap_ended();
  }
}

std::optional<std::uint64_t> count_oom_kills(const std::filesystem::path& vmstat) {
  std::ifstream file(vmstat);
  std::string name;
  std::uint64_t count = 0;
  while (file >> name >> count) {
    if (name == "oom_kill") {
      return count;
    }
  }
  return std::nullopt;
}

std::vector<std::string> worker_words(std::int32_t rank, const std::string& head,
                                      const std::string& credentials) {
  return {"/proc/self/exe",        "worker",        "--head",   head, "--rank",
          fmt::format("{}", rank), "--credentials", credentials};
}

}  // namespace train::actors
