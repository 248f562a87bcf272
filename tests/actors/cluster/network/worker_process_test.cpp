#include "actors/cluster/network/worker_process.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "base/process/descriptor.hpp"
#include "base/process/stop_signals.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/harness/hang_limit.hpp"
#include "tests/support/harness/thread_sleep.hpp"
#include "tests/support/processes/process.hpp"
#include "tests/support/processes/until_killed.hpp"

namespace train::actors {
namespace {

using namespace std::chrono_literals;
using Words = std::vector<std::string>;

Words shell(const std::string& script) { return {"/bin/sh", "-c", script}; }

/// Collects ends on the watcher's thread; waits for them on the test's.
class Ends {
 public:
  WorkerProcesses::OnEnd collector() {
    return [this](const run::WorkerEnd& end) {
      const std::lock_guard lock(mutex_);
      ends_.push_back(end);
    };
  }
  std::vector<run::WorkerEnd> wait_for(std::size_t count) {
    test::comes_true([&] {
      const std::lock_guard lock(mutex_);
      return ends_.size() >= count;
    });
    const std::lock_guard lock(mutex_);
    return ends_;
  }

 private:
  std::mutex mutex_;
  std::vector<run::WorkerEnd> ends_;
};

bool wait_for_file(const std::filesystem::path& path) {
  return test::comes_true(
      [&] { return std::filesystem::exists(path) && std::filesystem::file_size(path) > 0; });
}

bool alive(pid_t pid) { return ::kill(pid, 0) == 0; }

/// A zombie that nobody has waited for counts as gone.
bool gone(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(stat)), {});
  const auto close = text.rfind(')');
  return close == std::string::npos || text[close + 2] == 'Z';
}

constexpr const char* kLasting = "exec tail -f /dev/null";

TEST_CASE("worker_process: each end is reported once, and how", "[actors][worker_process][world]") {
  Ends ends;
  const EventLoop loop;
  WorkerProcesses processes(loop, ends.collector());
  processes.start(0, shell("exit 0"));
  processes.start(1, shell("exit 5"));
  processes.start(2, shell("kill -KILL $$"));
  processes.start(3, shell("kill -SEGV $$"));
  processes.start(4, {"/no/such/program"});
  processes.start(5, shell(fmt::format("exit {}", kExitWithoutHead)));
  auto all = ends.wait_for(6);
  REQUIRE(all.size() == 6);
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  CHECK(all[0].text == "exit code 0");
  CHECK(all[0].clean);
  CHECK(all[1].text == "exit code 5");
  CHECK_FALSE(all[1].clean);
  CHECK(all[2].text.starts_with("killed by SIGKILL"));
  for (const run::WorkerEnd& end : all) {
    CHECK(end.unasked == (end.rank == 2 || end.rank == 3));
    CHECK(end.killed == (end.rank == 2 || end.rank == 5));
  }
  CHECK(all[3].text == "killed by SIGSEGV");
  CHECK(all[4].text == "/no/such/program could not be started: No such file or directory");
  CHECK(all[4].pid == -1);
  CHECK(all[5].text == "it had lost the head");
  CHECK(processes.terminate_all(120s) == 0);
  CHECK(ends.wait_for(6).size() == 6);
}

TEST_CASE("worker_process: signals for the launcher do not reach workers",
          "[actors][worker_process][world]") {
  const test::TempDirectory directory;
  Ends ends;
  const EventLoop loop;
  WorkerProcesses processes(loop, ends.collector());
  block_signals();  // as the launcher does; a worker must not inherit it
  // `exec`: a shell blocks signals itself while it starts another program.
  processes.start(
      0,
      shell("kill -INT $$; kill -TERM $$; kill -USR1 $$; cat >" + (directory / "stdin").string() +
            "; exec grep SigBlk /proc/self/status >" + (directory / "blocked").string()));
  const auto all = ends.wait_for(1);
  allow_signals();
  REQUIRE(all.size() == 1);
  CHECK(all[0].text == "exit code 0");
  CHECK(test::read_bytes(directory / "stdin").empty());
  CHECK(test::read_bytes(directory / "blocked") == "SigBlk:\t0000000000000000\n");
}

TEST_CASE("worker_process: a worker inherits no descriptor", "[actors][worker_process][world]") {
  const test::TempDirectory directory;
  const int open = ::open("/dev/null", O_RDONLY);  // without CLOEXEC, as a library may leave it
  REQUIRE(open >= 0);
  Ends ends;
  const EventLoop loop;
  WorkerProcesses processes(loop, ends.collector());
  // `ls` itself has its directory open as 3.
  processes.start(0, shell("ls /proc/self/fd >" + (directory / "list").string()));
  REQUIRE(ends.wait_for(1).size() == 1);
  ::close(open);
  CHECK(test::read_bytes(directory / "list") == "0\n1\n2\n3\n");
}

TEST_CASE("worker_process: a worker inherits what it is handed",
          "[actors][worker_process][world]") {
  const test::TempDirectory directory;
  test::write_bytes(directory / "text", "handed over");
  const int handed = ::open((directory / "text").c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(handed >= 0);
  Ends ends;
  const EventLoop loop;
  WorkerProcesses processes(loop, ends.collector());
  const std::string read = (directory / "read").string();
  processes.start(0, shell("cat /proc/self/fd/" + std::to_string(handed) + " >" + read), {handed});
  processes.start(1, shell("true"), {1'000'000});  // there is none
  const auto found = ends.wait_for(2);
  ::close(handed);
  REQUIRE(found.size() == 2);
  for (const run::WorkerEnd& end : found) {
    CHECK(end.clean == (end.rank == 0));
    CHECK((end.text.find("could not be started") != std::string::npos) == (end.rank == 1));
  }
  CHECK(test::read_bytes(directory / "read") == "handed over");
}

TEST_CASE("worker_process: those that hang are killed", "[actors][worker_process][world]") {
  Ends ends;
  const EventLoop loop;
  WorkerProcesses processes(loop, ends.collector());
  processes.start(0, shell(kLasting));
  processes.start(1, shell(kLasting));
  CHECK(processes.terminate_all(20ms) >= 1);  // one may be killed before the other has started
  const auto all = ends.wait_for(2);
  REQUIRE(all.size() == 2);
  for (const run::WorkerEnd& end : all) {
    CHECK(end.text == "killed by SIGKILL");
    CHECK_FALSE(end.unasked);
    CHECK_FALSE(alive(end.pid));
  }
}

TEST_CASE("worker_process: who ends in time is not killed", "[actors][worker_process][world]") {
  Ends ends;
  const EventLoop loop;
  WorkerProcesses processes(loop, ends.collector());
  int ends_of_pipe[2];
  REQUIRE(::pipe2(ends_of_pipe, O_CLOEXEC) == 0);
  const Descriptor held_back(ends_of_pipe[0]);
  Descriptor holding_back(ends_of_pipe[1]);
  const std::string fd = std::to_string(held_back.get());
  processes.start(0, shell("cat /proc/self/fd/" + fd + "; exit 5"), {held_back.get()});
  // It may end when its end has been waited for: when the thread that waits has slept again and
  // again.
  constexpr long kLooks = 20;
  const pid_t waiting = ::gettid();
  const long sleeps = test::sleeps_of(waiting).count;
  std::thread release([&] {
    test::comes_true([&] { return test::sleeps_of(waiting).count >= sleeps + kLooks; });
    holding_back.reset();
  });
  const std::size_t killed = processes.terminate_all(test::beyond_hang_limit);
  release.join();
  CHECK(killed == 0);
  CHECK(ends.wait_for(1)[0].text == "exit code 5");
}

TEST_CASE("worker_process: the destructor leaves nothing running",
          "[actors][worker_process][world]") {
  const test::TempDirectory directory;
  Ends ends;
  pid_t pid = -1;
  {
    const EventLoop loop;
    WorkerProcesses processes(loop, ends.collector());
    processes.start(0, shell("echo $$ >" + (directory / "pid").string() + ";" + kLasting));
    REQUIRE(wait_for_file(directory / "pid"));
    pid = std::stoi(test::read_bytes(directory / "pid"));
    CHECK(alive(pid));
  }
  CHECK_FALSE(alive(pid));
  CHECK(ends.wait_for(1).size() == 1);
}

// Run as a process of its own by the test below: a launcher with one worker. The thread that
// ordered the worker has ended when the worker is told to go on.
TEST_CASE("worker_process: (a launcher)", "[.launcher_of_test]") {
  const EventLoop loop;
  WorkerProcesses processes(loop, [](const run::WorkerEnd&) {});
  pid_t orderer = -1;
  std::thread([&] {
    orderer = ::gettid();
    processes.start(
        0, shell("echo $$ >worker; read word <go; echo $word >answer; " + std::string(kLasting)));
  }).join();
  // The kernel tells the children of a thread that it is gone after it has told who joins it.
  const auto task = "/proc/self/task/" + std::to_string(orderer);
  test::comes_true([&] { return !std::filesystem::exists(task); });
  std::ofstream("go") << "on\n";
  test::last_until_killed();
}

TEST_CASE("worker_process: no worker outlives a killed launcher",
          "[actors][worker_process][world]") {
  const test::TempDirectory directory;
  REQUIRE(::mkfifo((directory / "go").c_str(), 0600) == 0);
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  pid_t pid = -1;
  {
    const test::Process launcher({self, "[.launcher_of_test]"}, directory.path());
    REQUIRE(wait_for_file(directory / "worker"));
    pid = std::stoi(test::read_bytes(directory / "worker"));
    // One that the end of that thread had killed would not answer.
    REQUIRE(wait_for_file(directory / "answer"));
    REQUIRE_FALSE(gone(pid));
  }  // SIGKILL
  CHECK(test::comes_true([&] { return gone(pid); }));
}

TEST_CASE("worker_process: the words of a worker name its rank and its head",
          "[actors][worker_process]") {
  CHECK(worker_words(3, "127.0.0.1:5", "run/control") == Words{"/proc/self/exe", "worker", "--head",
                                                               "127.0.0.1:5", "--rank", "3",
                                                               "--credentials", "run/control"});
}

}  // namespace
}  // namespace train::actors
