#include "storage/files/run_lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <future>
#include <string>
#include <thread>

#include "base/process/descriptor.hpp"
#include "storage/files/file_calls.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/harness/hang_limit.hpp"
#include "tests/support/harness/thread_sleep.hpp"
#include "tests/support/processes/leave.hpp"

namespace train::storage {
namespace {

using namespace std::chrono_literals;
using test::TempDirectory;

/// Nobody watches for long; whoever owns it counts no beat while a test goes on.
constexpr RunLock::Timing kShort = {
    .beat = 1h, .look = 1ms, .unlocked = 60ms, .locked = 120ms, .same_job = test::hang_limit};

Result<RunLock> acquired(const TempDirectory& directory, bool* lost = nullptr,
                         const RunLock::Timing& timing = kShort) {
  return RunLock::acquire(
      directory.path(),
      [lost](const std::string& text) {
        INFO(text);
        REQUIRE(lost != nullptr);
        *lost = true;
      },
      timing);
}

/// What an owner has written, of this or another machine.
std::string record(std::int64_t pid, const std::string& boot, int beat,
                   const std::string& state = "held", const std::string& job = "") {
  return fmt::format("{}\nhost far\nboot {}\njob {}\nlock w\ntoken 7\nbeat {}\nstate {}\n", pid,
                     boot, job, beat, state);
}

std::string this_boot() {
  std::string boot = test::read_bytes("/proc/sys/kernel/random/boot_id");
  boot.resize(boot.find('\n'));
  return boot;
}

/// Another owner that lives: it counts its beat in the file's bytes.
class Beating {
 public:
  Beating(const TempDirectory& directory, std::int64_t pid, const std::string& boot)
      : file_(::open((directory / "run.lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600)) {
    write(record(pid, boot, 10));
    thread_ = std::thread([this, pid, boot] {
      for (int beat = 11; !done_; beat = beat < 99 ? beat + 1 : 11) {  // of one length
        write(record(pid, boot, beat));
        std::this_thread::yield();
      }
    });
  }
  ~Beating() {
    done_ = true;
    thread_.join();
  }
  Beating(const Beating&) = delete;
  Beating& operator=(const Beating&) = delete;

 private:
  void write(const std::string& text) const {
    if (::pwrite(file_.get(), text.data(), text.size(), 0) < 0) {
      std::abort();
    }
  }

  Descriptor file_;
  std::atomic<bool> done_{false};
  std::thread thread_;
};

}  // namespace

TEST_CASE("run_lock: a second process is told who holds it", "[storage][run_lock][ST-2]") {
  const TempDirectory directory;
  {
    const auto lock = acquired(directory);
    REQUIRE(lock);
    const auto second = acquired(directory);
    REQUIRE_FALSE(second);
    REQUIRE(second.error().exit_code() == 2);
    REQUIRE_THAT(second.error().message,
                 Catch::Contains("already in use by process " + std::to_string(::getpid())));
  }
  REQUIRE(acquired(directory));
}

TEST_CASE("run_lock: a killed owner leaves no lock", "[storage][run_lock][ST-2]") {
  const TempDirectory directory;
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto lock = acquired(directory);
    const char mark = lock ? '1' : '0';
    [[maybe_unused]] const auto written = ::write(ready[1], &mark, 1);
    ::pause();
    test::leave(0);
  }
  char mark = 0;
  REQUIRE(::read(ready[0], &mark, 1) == 1);
  REQUIRE(mark == '1');
  const auto held = acquired(directory);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  REQUIRE_FALSE(held);
  REQUIRE_THAT(held.error().message, Catch::Contains(std::to_string(child)));
  REQUIRE(acquired(directory));
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_CASE("run_lock: another machine's that stands still is taken over, and not before",
          "[storage][run_lock][ST-2][P4]") {
  const TempDirectory directory;
  test::write_bytes(directory / "run.lock", record(1, "another", 3));
  const auto begun = std::chrono::steady_clock::now();
  const auto lock = acquired(directory);
  REQUIRE(lock);
  CHECK(std::chrono::steady_clock::now() - begun >= kShort.unlocked);
  CHECK(test::read_bytes(directory / "run.lock").find("\ntoken 8\n") != std::string::npos);
  CHECK(lock->check());
}

TEST_CASE("run_lock: one that was given back, or that an older version left, is taken at once",
          "[storage][run_lock][ST-2]") {
  const TempDirectory directory;
  constexpr RunLock::Timing kNever = {
      .beat = 1h, .look = 1ms, .unlocked = 1h, .locked = 1h, .same_job = 1h};
  for (const std::string& left :
       {record(1, "another", 3, "given_back"), std::string("12345\n"), std::string()}) {
    test::write_bytes(directory / "run.lock", left);
    REQUIRE(acquired(directory, nullptr, kNever));
  }
  CHECK(test::read_bytes(directory / "run.lock").find("\nstate given_back\n") != std::string::npos);
}

TEST_CASE("run_lock: bytes behind the record, which a power cut may leave, are no part of it",
          "[storage][run_lock][ST-2][P3]") {
  const TempDirectory directory;
  const std::string given_back = record(1, "another", 3, "given_back");
  test::write_bytes(
      directory / "run.lock",
      given_back + std::string(512 - given_back.size() % 512, ' ') + record(1, "yet another", 9));
  bool lost = false;
  const auto lock = acquired(directory, &lost);
  REQUIRE(lock);
  CHECK(lock->check());
  CHECK_FALSE(lost);
}

/// Waits for a beat as long as a test may take.
constexpr RunLock::Timing kPatient = {.beat = 1h,
                                      .look = 1ms,
                                      .unlocked = test::hang_limit,
                                      .locked = test::hang_limit,
                                      .same_job = test::hang_limit};

TEST_CASE("run_lock: whose beat goes on is alive, whatever the file system says of locks",
          "[storage][run_lock][ST-2]") {
  const TempDirectory directory;
  const bool here = GENERATE(true, false);
  const Beating owner(directory, ::getppid(), here ? this_boot() : "another");
  const auto second = acquired(directory, nullptr, kPatient);
  REQUIRE_FALSE(second);
  CHECK(second.error().exit_code() == 2);
  CHECK_THAT(second.error().message,
             Catch::Contains(fmt::format("already in use by process {} of far", ::getppid())));
}

TEST_CASE("run_lock: one that a dead machine keeps locked is replaced, and its owner finds out",
          "[storage][run_lock][ST-2][P3][P4]") {
  const TempDirectory directory;
  bool lost = false;
  const auto first = acquired(directory, &lost);
  REQUIRE(first);
  CHECK(first->check());
  // It is another machine's, as the second sees it; the file keeps its lock.
  std::string text = test::read_bytes(directory / "run.lock");
  const std::string boot = this_boot();
  text.replace(text.find(boot), boot.size(), std::string(boot.size(), 'x'));
  const Descriptor file(::open((directory / "run.lock").c_str(), O_WRONLY | O_CLOEXEC));
  REQUIRE(::pwrite(file.get(), text.data(), text.size(), 0) > 0);
  const auto begun = std::chrono::steady_clock::now();
  const auto second = acquired(directory);
  REQUIRE(second);
  CHECK(std::chrono::steady_clock::now() - begun >= kShort.locked);
  CHECK(second->check());
  CHECK_FALSE(lost);
  const auto checks = first->checks();
  CHECK_FALSE(checks());
  CHECK(lost);
  CHECK(test::names_in(directory.path()) == std::vector<std::string>{"run.lock"});
}

TEST_CASE("run_lock: an earlier start of the same batch job is waited for",
          "[storage][run_lock][ST-2][P4]") {
  const TempDirectory directory;
  REQUIRE(::setenv("SLURM_JOB_ID", "77", 1) == 0);
  Descriptor held(::open((directory / "run.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  REQUIRE(::flock(held.get(), LOCK_EX | LOCK_NB) == 0);
  std::string text = record(::getppid(), this_boot(), 1, "held", "77");
  REQUIRE(::pwrite(held.get(), text.data(), text.size(), 0) > 0);
  std::promise<pid_t> thread;
  auto taken = std::async(std::launch::async, [&] {
    thread.set_value(::gettid());
    return acquired(directory).ok();
  });
  // It has looked, and looks once more: it sleeps between two looks alone.
  const pid_t requeued = thread.get_future().get();
  CHECK(test::falls_asleep(requeued, taken));
  CHECK(test::falls_asleep(requeued, taken, test::sleep_of(requeued).value_or(-1)));
  SECTION("while it ends") {
    held.reset();
    CHECK(taken.get());
  }
  SECTION("and no other job's is") {
    held.reset();
    taken.wait();
    held.reset(::open((directory / "run.lock").c_str(), O_RDWR | O_CLOEXEC));
    REQUIRE(::flock(held.get(), LOCK_EX | LOCK_NB) == 0);
    text = record(::getppid(), this_boot(), 1, "held", "78");
    test::write_bytes(directory / "run.lock", text);
    const auto other = acquired(directory);
    REQUIRE_FALSE(other);
    CHECK_THAT(other.error().message, Catch::Contains("(Slurm job 78)"));
  }
  ::unsetenv("SLURM_JOB_ID");
}

TEST_CASE("run_lock: whoever cannot read the file has not lost the run",
          "[storage][run_lock][ST-2][P4]") {
  const TempDirectory directory;
  const auto lock = acquired(directory);  // losing it would end the test
  REQUIRE(lock);
  class Failing final : public FileCallHook {
   public:
    int before(FileCall& /*call*/) override { return 0; }
    void after(const FileCall& /*call*/, int /*error_number*/) override {}
    int before_read(FileRead& read) override { return read.size_bytes > 0 ? ESTALE : 0; }
  } failing;
  install_file_call_hook(&failing);
  const Status unread = lock->check();
  const auto second = acquired(directory);
  install_file_call_hook(nullptr);
  CHECK_FALSE(unread);
  CHECK_THAT(unread.error().message, Catch::Contains("cannot read"));
  CHECK_FALSE(second);  // nor is what it does not say anybody's leave
  CHECK_THAT(second.error().message, Catch::Contains("cannot read"));
  CHECK(lock->check());
  test::write_bytes(directory / "run.lock", "");
  CHECK(lock->check());
}

TEST_CASE(
    "run_lock: where there are no locks, the number of a process says nothing of another "
    "container's",
    "[storage][run_lock][ST-2][P3]") {
  const TempDirectory directory;
  const pid_t ended = ::fork();
  if (ended == 0) {
    test::leave(0);
  }
  ::waitpid(ended, nullptr, 0);
  // Alive, and by its number in its container nobody that could be found here.
  const Beating owner(directory, ended, this_boot() + "\nprocesses pid:[7]");
  const auto second = acquired(directory, nullptr, kPatient);
  REQUIRE_FALSE(second);
  CHECK(second.error().exit_code() == 2);
}

}  // namespace train::storage
