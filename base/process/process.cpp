#include "base/process/process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>
#include <utility>

#include "base/process/own_program.hpp"
#include "base/process/stop_signals.hpp"
#include "base/process/wake.hpp"

namespace train {
namespace {

using ProcessClock = std::chrono::steady_clock;

constexpr int kExitNotStarted = 127;

/// Parameters of the child, read after vfork(), when nothing may be allocated.
struct ChildSpec {
  char* const* words;
  char* const* variables;
  pid_t parent;
  int null;
  int report;  ///< Receives the error number if exec fails.
  const Process::Options& options;
};

/// The number that a name consists of; -1: it is another name.
int number_of(const char* name) {
  int number = *name == '\0' ? -1 : 0;
  for (; *name != '\0' && number >= 0; ++name) {
    number = *name >= '0' && *name <= '9' ? 10 * number + (*name - '0') : -1;
  }
  return number;
}

/// As close_on_exec() for kernels before Linux 5.9. No function of the C library: see exec_child().
void close_each_on_exec() {
  const int folder = ::open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  constexpr std::size_t name_at = 19;  // In struct linux_dirent64; its length is at 16.
  std::array<char, 4096> entries{};
  while (folder >= 0) {
    const long size = ::syscall(SYS_getdents64, folder, entries.data(), entries.size());
    if (size <= 0) {
      break;
    }
    for (long at = 0; at < size;) {
      const char* const entry = entries.data() + at;
      if (const int descriptor = number_of(entry + name_at); descriptor > STDERR_FILENO) {
        ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
      }
      unsigned short length = 0;
      std::memcpy(&length, entry + 16, sizeof length);
      at += length;
    }
  }
}

/// Closes own sockets and locks that lack CLOEXEC.
void close_on_exec() {
  if (::syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC) != 0) {
    close_each_on_exec();
  }
}

bool set_up_child(const ChildSpec& child) {
  const Process::Options& options = child.options;
  if (options.isolated) {
    ::setpgid(0, 0);
    for (const int signal : kStopSignals) {
      ::signal(signal, SIG_DFL);
    }
    for (const int signal : {SIGPIPE, SIGXFSZ, SIGCHLD}) {
      ::signal(signal, SIG_DFL);
    }
  }
  for (const int signal : options.ignored) {
    ::signal(signal, SIG_IGN);
  }
  if (options.nice > 0 && ::getpriority(PRIO_PROCESS, 0) < options.nice) {
    ::setpriority(PRIO_PROCESS, 0, options.nice);
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const bool own_errors = options.errors >= 0;
  const int output = options.output >= 0 ? options.output : own_errors ? child.null : -1;
  if (::dup2(child.null, STDIN_FILENO) < 0 || (output >= 0 && ::dup2(output, STDOUT_FILENO) < 0) ||
      (own_errors && ::dup2(options.errors, STDERR_FILENO) < 0)) {
    return false;
  }
  close_on_exec();
  return std::all_of(options.inherited.begin(), options.inherited.end(),
                     [](int descriptor) { return ::fcntl(descriptor, F_SETFD, 0) == 0; });
}

/// Runs in the child, in the parent's memory, until exec: system calls only.
[[noreturn]] void exec_child(const ChildSpec& child) {
  const bool tied = ::prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
  if (::getppid() != child.parent) {
    ::_exit(kExitNotStarted);  // The parent ended before the line above could take effect.
  }
  if (tied && set_up_child(child)) {
    ::execve(child.words[0], child.words, child.variables);
  }
  const int error_number = errno;
  [[maybe_unused]] const ssize_t written =
      ::write(child.report, &error_number, sizeof(error_number));
  ::_exit(kExitNotStarted);
}

/// vfork() instead of fork(): copying the page tables of a training process would stall its
/// threads, which would then fault on each page they write.
pid_t spawn(const ChildSpec& child) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // No handler may run in the shared memory.
  const pid_t pid = ::vfork();
  if (pid == 0) {
    exec_child(child);
  }
  const int error_number = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error_number;
  return pid;
}

template <class Call>
auto retry(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) {
    result = call();
  }
  return result;
}

Error system_failure(int error_number) {
  return failure(std::generic_category().message(error_number));
}

Result<std::pair<Descriptor, Descriptor>> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    return system_failure(errno);
  }
  return std::pair(Descriptor(ends[0]), Descriptor(ends[1]));
}

/// Pointers to `texts` and a null pointer, as exec takes them.
std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) {
    pointers.push_back(const_cast<char*>(text.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

ProcessEnd end_of(const siginfo_t& info) {
  const bool exited = info.si_code == CLD_EXITED;
  return {.exit_code = exited ? info.si_status : -1, .signal = exited ? 0 : info.si_status};
}

}  // namespace

std::string ProcessEnd::text() const {
  if (signal == 0) {
    return fmt::format("exit code {}", exit_code);
  }
  const char* const name = ::sigabbrev_np(signal);
  return name != nullptr ? fmt::format("killed by SIG{}", name)
                         : fmt::format("killed by signal {}", signal);
}

namespace {

/// The handle of a child and, where the kernel makes none (before Linux 5.3), the thread that waits
/// for its end to make the handle readable.
struct Watched {
  Descriptor handle;
  std::unique_ptr<JoinedThread> watch = {};
};

Watched watched_child(pid_t pid) {
  Watched child{.handle = Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)))};
  if (child.handle || errno != ENOSYS) {
    return child;
  }
  Descriptor ended(::eventfd(0, EFD_CLOEXEC));
  if (!ended) {
    return child;
  }
  try {
    child.watch = std::make_unique<JoinedThread>([pid, to = ended.get()] {
      siginfo_t info{};
      retry([&] { return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT); });
      ::eventfd_write(to, 1);
    });
    child.handle = std::move(ended);
  } catch (const std::system_error& error) {
    errno = error.code().value();
  }
  return child;
}

}  // namespace

Process::Process(pid_t pid, bool isolated) : pid_(pid), isolated_(isolated) {
  Watched child = watched_child(pid);
  watch_ = std::move(child.watch);
  handle_ = std::move(child.handle);
}

Result<Process> Process::start(const std::vector<std::string>& words, const Options& options) {
  auto report = make_pipe();
  if (!report) {
    return report.error();
  }
  const Descriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null) {  // Otherwise the program would seem to be what is missing.
    return failure(fmt::format("/dev/null: {}", system_failure(errno).message));
  }
  const std::vector<std::string> environment = environment_of_others();
  const std::vector<char*> arguments = pointers_to(words);
  const std::vector<char*> variables = pointers_to(environment);
  const pid_t pid = spawn({.words = arguments.data(),
                           .variables = variables.data(),
                           .parent = ::getpid(),
                           .null = null.get(),
                           .report = report->second.get(),
                           .options = options});
  if (pid < 0) {
    return system_failure(errno);
  }
  report->second.reset();
  Process process(pid, options.isolated);
  const int no_handle = process.handle_ ? 0 : errno;
  int error_number = 0;
  // Blocks until exec or failure.
  const auto got =
      retry([&] { return ::read(report->first.get(), &error_number, sizeof(error_number)); });
  if (got > 0 || no_handle != 0) {
    if (no_handle != 0) {  // Without a handle it could not be waited for.
      process.kill();
      ::waitpid(pid, nullptr, 0);
    }
    return system_failure(got > 0 ? error_number : no_handle);
  }
  return process;
}

Process::~Process() {
  if (handle_) {
    kill();
    reap();
  }
}

/// Also kills the leader, which has no group yet if vfork() is fork(), as under a thread sanitizer.
void Process::kill() const {
  ::kill(pid_, SIGKILL);
  if (isolated_) {
    ::kill(-pid_, SIGKILL);
  }
}

void Process::await_end() const {
  siginfo_t info{};
  retry([&] { return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT); });
}

std::optional<ProcessEnd> Process::try_reap() {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0) {
    return std::nullopt;
  }
  watch_.reset();  // Its thread has seen the end, too.
  handle_.reset();
  return end_of(info);
}

ProcessEnd Process::reap() {
  await_end();
  return try_reap().value_or(ProcessEnd());
}

namespace {

int rest_of(std::optional<ProcessClock::time_point> deadline) {
  if (!deadline) {
    return -1;
  }
  const auto rest = std::chrono::ceil<std::chrono::milliseconds>(*deadline - ProcessClock::now());
  return static_cast<int>(std::clamp<std::int64_t>(rest.count(), 0, 60'000));
}

/// Standard error of a child.
class ChildErrors {
 public:
  explicit ChildErrors(Descriptor pipe) : pipe_(std::move(pipe)) {}

  /// Descriptor to wait for; -1: every process has closed it.
  [[nodiscard]] int descriptor() const { return pipe_.get(); }
  [[nodiscard]] const std::string& text() const { return text_; }
  void read() {
    constexpr std::size_t kept = 4096;
    std::array<char, kept> piece{};
    const ssize_t got = ::read(pipe_.get(), piece.data(), piece.size());
    if (got > 0) {
      text_.append(piece.data(), static_cast<std::size_t>(got));
      text_.erase(0, text_.size() > kept ? text_.size() - kept : 0);
    } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
      pipe_.reset();
    }
  }

 private:
  Descriptor pipe_;
  std::string text_;
};

/// Waits until the leader ends, `stop` becomes readable, or `deadline` passes.
void wait_for_child(const Process& child, ChildErrors& errors, int stop,
                    std::optional<ProcessClock::time_point> deadline, ChildEnd& end) {
  while (true) {
    std::array<pollfd, 3> watched = {
        {{child.handle(), POLLIN, 0}, {stop, POLLIN, 0}, {errors.descriptor(), POLLIN, 0}}};
    const int ready = ::poll(watched.data(), watched.size(), rest_of(deadline));
    if (ready < 0 && errno != EINTR) {
      return;  // Out of memory: the group is then killed.
    }
    if (ready > 0 && watched[2].revents != 0) {
      errors.read();
    }
    if (ready > 0 && watched[0].revents != 0) {
      return;
    }
    end.stopped = ready > 0 && watched[1].revents != 0;
    end.timed_out = deadline && ProcessClock::now() >= *deadline;
    if (end.stopped || end.timed_out) {
      return;
    }
  }
}

/// Kills the rest of the group and waits until it is gone: each of its processes holds the standard
/// error pipe open.
ProcessEnd end_group(Process& child, ChildErrors& errors) {
  child.kill();
  child.await_end();
  child.kill();  // The unreaped leader keeps the group's number from being reused.
  const auto deadline = ProcessClock::now() + std::chrono::seconds(5);
  while (errors.descriptor() >= 0 && ProcessClock::now() < deadline) {
    pollfd watched{.fd = errors.descriptor(), .events = POLLIN, .revents = 0};
    if (::poll(&watched, 1, rest_of(deadline)) > 0) {
      errors.read();
    }
  }
  return child.reap();
}

}  // namespace

Result<ChildEnd> run_child(const std::vector<std::string>& words, const ChildOptions& options) {
  const auto cannot_start = [&](const Error& error) {
    return failure(fmt::format("cannot start {}: {}", words.at(0), error.message));
  };
  auto pipe = make_pipe();
  if (!pipe) {
    return cannot_start(pipe.error());
  }
  auto child =
      Process::start(words, {.errors = pipe->second.get(), .isolated = true, .nice = options.nice});
  if (!child) {
    return cannot_start(child.error());
  }
  pipe->second.reset();
  ChildErrors errors(std::move(pipe->first));
  if (options.started) {
    options.started();
  }
  const auto deadline = options.timeout.count() > 0
                            ? std::optional(ProcessClock::now() + options.timeout)
                            : std::nullopt;
  ChildEnd end;
  {
    const Wake stop;
    const std::stop_callback on_stop(options.stop, [&stop] { stop.set(); });
    wait_for_child(*child, errors, stop.descriptor(), deadline, end);
  }
  static_cast<ProcessEnd&>(end) = end_group(*child, errors);
  end.errors = errors.text();
  return end;
}

std::optional<std::string> find_program(const std::string& program) {
  if (program.find('/') != std::string::npos) {
    return ::access(program.c_str(), X_OK) == 0 ? std::optional(program) : std::nullopt;
  }
  const char* const path = std::getenv("PATH");
  std::string rest = path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
  while (!rest.empty()) {
    const std::size_t end = rest.find(':');
    const std::string directory = rest.substr(0, end);
    rest = end == std::string::npos ? "" : rest.substr(end + 1);
    const std::string candidate =
        fmt::format("{}/{}", directory.empty() ? "." : directory, program);
    std::error_code code;
    if (std::filesystem::is_regular_file(candidate, code) &&
        ::access(candidate.c_str(), X_OK) == 0) {
      return candidate;
    }
  }
  return std::nullopt;
}

std::vector<std::string> python_programs() {
  std::vector<std::string> programs = {"python3", "/usr/bin/python3"};
  const char* const named = std::getenv("ACTORTRAIN_PYTHON");
  if (named != nullptr && *named != '\0') {
    programs.insert(programs.begin(), named);
  }
  return programs;
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

}  // namespace train
