#include "actors/cluster/network/worker_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>
#include <system_error>

#include "base/check.hpp"

extern "C" {  // the C library's header leaves this to us before version 2.37
#include <sys/pidfd.h>
}

namespace train::actors {
namespace {

constexpr int kExitNotStarted = 127;
constexpr const char* kShortOfMemory =
    " (the kernel has killed a process of this machine meanwhile because memory ran out: dmesg "
    "says "
    "which)";
constexpr std::array kOnlyForTheLauncher = {SIGINT, SIGTERM, SIGUSR1};

std::string text_of(int error_number) { return std::generic_category().message(error_number); }

/// Between fork and exec of a program with threads: only calls that are safe in a signal handler.
/// Writes the error number to `report` if it fails.
[[noreturn]] void become(char* const* words, std::span<const int> inherited, pid_t launcher,
                         int report) {
  const auto give_up = [report](int error_number) {
    [[maybe_unused]] const ssize_t written = ::write(report, &error_number, sizeof(error_number));
    ::_exit(kExitNotStarted);
  };
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
    give_up(errno);
  }
  if (::getppid() != launcher) {
    ::_exit(kExitNotStarted);  // it ended before the line above could take effect
  }
  for (const int signal : kOnlyForTheLauncher) {
    ::signal(signal, SIG_IGN);
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null = ::open("/dev/null", O_RDONLY);
  if (null < 0 || ::dup2(null, STDIN_FILENO) < 0) {
    give_up(errno);
  }
  // Sockets and locks of the launcher are not the worker's; old kernels leave what lacks CLOEXEC.
  ::close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  for (const int descriptor : inherited) {
    if (::fcntl(descriptor, F_SETFD, 0) != 0) {
      give_up(errno);
    }
  }
  ::execv(words[0], words);
  give_up(errno);
  ::_exit(kExitNotStarted);
}

/// A started child and its pidfd, or why there is none.
struct Started {
  pid_t pid = -1;
  Descriptor handle;
  std::string failure;
};

Started start_process(const std::vector<std::string>& words, std::span<const int> inherited) {
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) {
    return {.pid = -1, .handle = {}, .failure = text_of(errno)};
  }
  const Descriptor read_end(pipe[0]);
  Descriptor write_end(pipe[1]);
  std::vector<char*> arguments;
  for (const std::string& word : words) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  const pid_t launcher = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    become(arguments.data(), inherited, launcher, write_end.get());
  }
  if (pid < 0) {
    return {.pid = -1, .handle = {}, .failure = text_of(errno)};
  }
  write_end.reset();
  int error_number = 0;
  ssize_t got = -1;
  do {
    got = ::read(read_end.get(), &error_number, sizeof(error_number));  // until exec or failure
  } while (got < 0 && errno == EINTR);
  Descriptor handle(::pidfd_open(pid, 0));
  if (got > 0 || !handle) {
    const std::string why = text_of(got > 0 ? error_number : errno);
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return {.pid = -1, .handle = {}, .failure = why};
  }
  return {.pid = pid, .handle = std::move(handle), .failure = {}};
}

/// How the process behind a pidfd ended; nothing while it runs.
std::optional<siginfo_t> end_of(int handle) {
  siginfo_t info{};
  if (::waitid(P_PIDFD, static_cast<id_t>(handle), &info, WEXITED | WNOHANG) != 0 ||
      info.si_pid == 0) {
    return std::nullopt;
  }
  return info;
}

/// Whoever runs into an error of its own does so again; all else is the world's doing.
bool killed_from_outside(const siginfo_t& info) {
  static constexpr std::array<int, 7> kOwnErrors = {SIGSEGV, SIGABRT, SIGILL, SIGFPE,
                                                    SIGBUS,  SIGSYS,  SIGTRAP};
  return info.si_code != CLD_EXITED &&
         std::find(kOwnErrors.begin(), kOwnErrors.end(), info.si_status) == kOwnErrors.end();
}

std::string describe(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) {
    return fmt::format("exit code {}", info.si_status);
  }
  const char* name = ::sigabbrev_np(info.si_status);
  return fmt::format("killed by {}", name != nullptr ? fmt::format("SIG{}", name)
                                                     : fmt::format("signal {}", info.si_status));
}

}  // namespace

WorkerProcesses::WorkerProcesses(OnEnd on_end)
    : on_end_(std::move(on_end)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  TRAIN_CHECK(wake_);
  thread_ = std::thread([this] { serve(); });
}

WorkerProcesses::~WorkerProcesses() {
  terminate_all(std::chrono::milliseconds(0));
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake();
  thread_.join();
}

void WorkerProcesses::wake() const {
  const std::uint64_t one = 1;
  // An eventfd that is not full always takes it.
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof(one));
}

void WorkerProcesses::start(std::int32_t rank, std::vector<std::string> words,
                            std::vector<int> inherited) {
  TRAIN_CHECK(!words.empty());
  {
    const std::lock_guard lock(mutex_);
    orders_.push_back({rank, std::move(words), std::move(inherited)});
    ++running_;
  }
  wake();
}

std::size_t WorkerProcesses::kill_if(const std::function<bool(const Child&)>& condition) {
  const std::lock_guard lock(mutex_);
  std::size_t killed = 0;
  for (Child& child : children_) {
    if (condition(child) && ::pidfd_send_signal(child.handle.get(), SIGKILL, nullptr, 0) == 0) {
      child.told_to_end = true;
      ++killed;
    }
  }
  return killed;
}

void WorkerProcesses::kill(std::int32_t rank) {
  kill_if([rank](const Child& child) { return child.rank == rank; });
}

std::size_t WorkerProcesses::running() const {
  const std::lock_guard lock(mutex_);
  return running_;
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
    killed = std::max(killed, kill_if([](const Child&) { return true; }));
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
  for (Order& order : orders) {
    Started started = start_process(order.words, order.inherited);
    if (started.pid < 0) {
      report({.rank = order.rank,
              .pid = -1,
              .text = fmt::format("{} could not be started: {}", order.words[0], started.failure),
              .clean = false,
              .killed = false});
      continue;
    }
    const std::lock_guard lock(mutex_);
    children_.push_back({.rank = order.rank,
                         .pid = started.pid,
                         .handle = std::move(started.handle),
                         .oom_kills = count_oom_kills()});
  }
}

void WorkerProcesses::reap_ended() {
  std::vector<WorkerEnd> ends;
  {
    const std::lock_guard lock(mutex_);
    for (auto child = children_.begin(); child != children_.end();) {
      const auto info = end_of(child->handle.get());
      if (!info) {
        ++child;
        continue;
      }
      const bool unasked = info->si_code != CLD_EXITED && !child->told_to_end;
      const bool short_of_memory = unasked && info->si_status == SIGKILL && child->oom_kills &&
                                   count_oom_kills() > child->oom_kills;
      ends.push_back({.rank = child->rank,
                      .pid = child->pid,
                      .text = describe(*info) + (short_of_memory ? kShortOfMemory : ""),
                      .clean = info->si_code == CLD_EXITED && info->si_status == 0,
                      .killed = killed_from_outside(*info),
                      .unasked = unasked});
      child = children_.erase(child);
    }
  }
  for (const WorkerEnd& end : ends) {
    report(end);
  }
}

void WorkerProcesses::serve() {
  std::vector<pollfd> watched;
  for (;;) {
    watched.assign(1, {.fd = wake_.get(), .events = POLLIN, .revents = 0});
    {
      const std::lock_guard lock(mutex_);
      if (stop_) {
        return;
      }
      for (const Child& child : children_) {
        watched.push_back({.fd = child.handle.get(), .events = POLLIN, .revents = 0});
      }
    }
    const int ready = ::poll(watched.data(), watched.size(), -1);
    TRAIN_CHECK(ready >= 0 || errno == EINTR);
    std::uint64_t drained = 0;
    [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &drained, sizeof(drained));
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

bool die_with_parent(pid_t launcher) {
  for (const int signal : kOnlyForTheLauncher) {
    std::signal(signal, SIG_IGN);
  }
  return ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && ::getppid() == launcher;
}

}  // namespace train::actors
