#include "base/process/process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <string>
#include <vector>

#include "base/process/own_program.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/processes/child_end.hpp"
#include "tests/support/processes/leave.hpp"

namespace train {
namespace {

std::vector<std::string> shell(const std::string& line) { return {"/bin/sh", "-c", line}; }

/// Waits as others do: by the handle, then for the result.
ProcessEnd end_of(Process& process) {
  pollfd watched{.fd = process.handle(), .events = POLLIN, .revents = 0};
  REQUIRE(::poll(&watched, 1, -1) == 1);
  const auto ended = process.try_reap();
  REQUIRE(ended);
  return *ended;
}

/// All that a kernel may do otherwise.
void check_children() {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);  // Without CLOEXEC, as a library may open them.
  const Descriptor reader(ends[0]);
  const Descriptor writer(ends[1]);
  auto ended = Process::start(
      shell(fmt::format("test -e /proc/self/fd/{} && exit 6; exit 7", writer.get())), {});
  REQUIRE(ended.ok());
  CHECK(end_of(*ended).exit_code == 7);

  auto killed = Process::start(shell("exec tail -f /dev/null"), {.isolated = true});
  REQUIRE(killed.ok());
  CHECK_FALSE(killed->try_reap());
  killed->kill();
  CHECK(end_of(*killed).signal == SIGKILL);

  {
    const auto left = Process::start(shell("exec tail -f /dev/null"), {});
    REQUIRE(left.ok());
  }  // Its destructor ends it.
  const auto run =
      run_child(shell("exec tail -f /dev/null"), {.timeout = std::chrono::milliseconds(1)});
  REQUIRE(run.ok());
  CHECK(run->timed_out);
  CHECK(run->signal == SIGKILL);
}

/// From here on this process and its children have no such calls, as on Linux 4.18.
void forget_calls() {
  constexpr auto number_at = static_cast<std::uint32_t>(offsetof(seccomp_data, nr));
  const auto is = [](std::uint32_t call, std::uint8_t jump) {
    return sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, jump, 0);
  };
  std::array<sock_filter, 6> filter = {
      sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, number_at),
      is(SYS_pidfd_open, 3),
      is(SYS_close_range, 2),
      is(SYS_openat2, 1),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS)};
  const sock_fprog program{.len = filter.size(), .filter = filter.data()};
  REQUIRE(::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  REQUIRE(::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
  REQUIRE(::syscall(SYS_pidfd_open, ::getpid(), 0) == -1);
  REQUIRE(errno == ENOSYS);
}

TEST_CASE("process: children are waited for, killed, and inherit no descriptor",
          "[base][process]") {
  check_children();
}

TEST_CASE("process: child on an old kernel", "[.old_kernel_of_test]") {
  forget_calls();
  check_children();
}

TEST_CASE("process: so they are where the kernel lacks calls of later ones", "[base][process]") {
  auto test = Process::start({own_program_now(), "[.old_kernel_of_test]"}, {});
  REQUIRE(test.ok());
  CHECK(test->reap().exit_code == 0);
}

TEST_CASE("process: the error of a missing device names it, not the program", "[base][process]") {
  constexpr int kForbidden = 77;
  const auto [end, error] = test::end_of_child([] {
    // A root directory that has no dev/.
    if ((::geteuid() != 0 && ::unshare(CLONE_NEWUSER) != 0) || ::chroot("/proc") != 0) {
      test::leave(kForbidden);
    }
    const auto child = Process::start({"/bin/sh"}, {});
    std::fputs(child.ok() ? "started" : child.error().message.c_str(), stderr);
    test::leave(0);  // A sanitizer's look for leaks would need the old root directory.
  });
  REQUIRE(WIFEXITED(end));
  if (WEXITSTATUS(end) == kForbidden) {
    std::puts("skipped: process: the root directory may not be changed here");
    return;
  }
  CHECK(error == "/dev/null: No such file or directory");
}

TEST_CASE("process: the kernel's count of kills for want of memory is read", "[base][process]") {
  const test::TempDirectory directory;
  const auto count = [&](const std::string& text) {
    test::write_bytes(directory / "vmstat", text);
    return count_oom_kills(directory / "vmstat");
  };
  CHECK(count(std::string("nr_free_pages 5\noom_kill 3\nother 9\n")) == 3);
  CHECK_FALSE(count(std::string("nr_free_pages 5\n")));
  CHECK_FALSE(count_oom_kills(directory / "none"));
}

}  // namespace
}  // namespace train
