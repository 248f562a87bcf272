#include "storage/child_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "base/descriptor.hpp"
#include "storage/files/atomic_file.hpp"

extern "C" {  // the C library's header leaves this to us before version 2.37
#include <sys/pidfd.h>
}

namespace train::storage {
namespace {

using Clock = std::chrono::steady_clock;

Error cannot_start(const std::string& program, int error_number) {
  return failure(
      fmt::format("cannot start {}: {}", program, std::generic_category().message(error_number)));
}

/// What the child needs to know; read after vfork(), when nothing may be made any more.
struct Birth {
  char* const* words = nullptr;
  pid_t parent = -1;
  int errors = -1;
  int null = -1;
  int nice = 0;
  volatile int error_number = 0;  ///< Written by the child: why it could not become the program.
};

/// In the child, in the parent's memory, until exec: system calls only.
[[noreturn]] void become(Birth& birth) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != birth.parent) {
    ::_exit(127);  // it ended before the line above could take effect
  }
  ::setpgid(0, 0);
  errno = 0;
  const int own = ::getpriority(PRIO_PROCESS, 0);
  if (own < birth.nice) {
    ::setpriority(PRIO_PROCESS, 0, birth.nice);
  }
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGPIPE, SIGHUP, SIGCHLD}) {
    ::signal(signal, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const bool redirected = ::dup2(birth.null, STDIN_FILENO) >= 0 &&
                          ::dup2(birth.null, STDOUT_FILENO) >= 0 &&
                          ::dup2(birth.errors, STDERR_FILENO) >= 0;
  ::close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  if (redirected) {
    ::execve(birth.words[0], birth.words, environ);
  }
  birth.error_number = errno;
  ::_exit(127);
}

/// vfork() and not fork(): the pages of a process that trains are many, and copying their tables
/// would hold up its threads, which would then fault on each page they write.
pid_t give_birth(Birth& birth) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // no handler may run in the shared memory
  const pid_t pid = ::vfork();
  if (pid == 0) {
    become(birth);
  }
  const int error_number = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) {
    birth.error_number = error_number;
  }
  return pid;
}

/// A started child, its standard error, and what is known of its end.
class Child {
 public:
  Child(pid_t pid, Descriptor errors)
      : pid_(pid), handle_(::pidfd_open(pid, 0)), errors_(std::move(errors)) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (!reaped_) {
      reap();
    }
  }

  /// And the leader, which has no group yet where vfork() is fork(), as under a thread sanitizer.
  void kill_group() const {
    ::kill(pid_, SIGKILL);
    ::kill(-pid_, SIGKILL);
  }

  /// Waits for the end of the leader, a byte in `stop`, or `deadline`.
  void wait(int stop, std::optional<Clock::time_point> deadline, ChildEnd& end) {
    while (true) {
      std::array<pollfd, 3> watched = {
          pollfd{.fd = handle_.get(), .events = POLLIN, .revents = 0},
          pollfd{.fd = stop, .events = POLLIN, .revents = 0},
          pollfd{.fd = open_ ? errors_.get() : -1, .events = POLLIN, .revents = 0}};
      const int ready = ::poll(watched.data(), watched.size(), rest_of(deadline));
      if (ready < 0 && errno != EINTR) {
        return;  // of memory: the group is killed then
      }
      if (watched[2].revents != 0) {
        read_errors();
      }
      if (ready > 0 && watched[0].revents != 0) {
        return;
      }
      end.stopped = ready > 0 && watched[1].revents != 0;
      end.timed_out = deadline && Clock::now() >= *deadline;
      if (end.stopped || end.timed_out) {
        return;
      }
    }
  }

  /// Kills what is left of the group, and sees it gone: each of its processes holds the pipe of
  /// standard errors open.
  siginfo_t reap() {
    kill_group();
    siginfo_t info{};
    while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) != 0 &&
           errno == EINTR) {
    }
    kill_group();  // the leader, not yet reaped, keeps the group's number from being used again
    const auto deadline = Clock::now() + std::chrono::seconds(5);
    while (open_ && Clock::now() < deadline) {
      pollfd watched{.fd = errors_.get(), .events = POLLIN, .revents = 0};
      if (::poll(&watched, 1, rest_of(deadline)) > 0) {
        read_errors();
      }
    }
    while (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED) != 0 && errno == EINTR) {
    }
    reaped_ = true;
    return info;
  }

  [[nodiscard]] std::string text() const { return text_; }

 private:
  static int rest_of(std::optional<Clock::time_point> deadline) {
    if (!deadline) {
      return -1;
    }
    const auto rest =
        std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now()).count();
    return static_cast<int>(std::clamp<std::int64_t>(rest, 0, 60'000));
  }

  void read_errors() {
    constexpr std::size_t kept = 4096;
    std::array<char, kept> piece{};
    const ssize_t got = ::read(errors_.get(), piece.data(), piece.size());
    if (got > 0) {
      text_.append(piece.data(), static_cast<std::size_t>(got));
      text_.erase(0, text_.size() > kept ? text_.size() - kept : 0);
    } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
      open_ = false;
    }
  }

  pid_t pid_;
  Descriptor handle_;
  Descriptor errors_;
  bool open_ = true;
  bool reaped_ = false;
  std::string text_;
};

}  // namespace

Result<ChildEnd> run_child(const std::vector<std::string>& words, const ChildOptions& options) {
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) {
    return cannot_start(words.at(0), errno);
  }
  Descriptor read_end(pipe[0]);
  Descriptor write_end(pipe[1]);
  const Descriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const Descriptor wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (null.get() < 0 || wake.get() < 0) {
    return cannot_start(words[0], errno);
  }
  std::vector<char*> arguments;
  for (const std::string& word : words) {
    arguments.push_back(const_cast<char*>(word.c_str()));
  }
  arguments.push_back(nullptr);
  Birth birth{.words = arguments.data(),
              .parent = ::getpid(),
              .errors = write_end.get(),
              .null = null.get(),
              .nice = options.nice};
  const pid_t pid = give_birth(birth);
  if (pid < 0) {
    return cannot_start(words[0], birth.error_number);
  }
  write_end = Descriptor();
  Child child(pid, std::move(read_end));
  if (birth.error_number != 0) {
    return cannot_start(words[0], birth.error_number);
  }
  if (options.started) {
    options.started();
  }
  ChildEnd end;
  {
    const std::stop_callback on_stop(options.stop, [&wake] {
      const std::uint64_t one = 1;
      [[maybe_unused]] const ssize_t written = ::write(wake.get(), &one, sizeof(one));
    });
    child.wait(
        wake.get(),
        options.timeout.count() > 0 ? std::optional(Clock::now() + options.timeout) : std::nullopt,
        end);
  }
  const siginfo_t info = child.reap();
  end.exit_code = info.si_code == CLD_EXITED ? info.si_status : -1;
  end.signal = info.si_code == CLD_EXITED ? 0 : info.si_status;
  end.errors = child.text();
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

}  // namespace train::storage
