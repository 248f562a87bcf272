#include "storage/files/file_lock.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <future>
#include <optional>

#include "tests/support/disks/failing_disk.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/harness/hang_limit.hpp"
#include "tests/support/harness/thread_sleep.hpp"

using namespace train;
using namespace train::storage;
using train::test::TempDirectory;

TEST_CASE("file_lock: the second is told who is the first, and may come after it",
          "[storage][file_lock][ST-2]") {
  const TempDirectory directory;
  const auto acquire = [&] { return FileLock::acquire(directory.path(), ".lock"); };
  {
    const auto first = acquire();
    REQUIRE(first);
    CHECK(test::read_bytes(directory / ".lock") == fmt::format("{}\n", ::getpid()));
    const auto second = acquire();
    REQUIRE_FALSE(second);
    CHECK(second.error().kind == ErrorKind::user);
    CHECK(second.error().message ==
          fmt::format("{} is already in use by process {}; wait for it or stop it",
                      directory.path().string(), ::getpid()));
    test::write_bytes(directory / ".lock", "no number");
    CHECK_THAT(acquire().error().message, Catch::Contains("by process (unknown);"));
  }
  CHECK(acquire());
  CHECK(FileLock::acquire(directory / "none", ".lock").error().kind == ErrorKind::user);
}

TEST_CASE("file_lock: whatever call fails, nobody holds it afterwards",
          "[storage][file_lock][ST-2]") {
  const TempDirectory directory;
  for (std::int64_t at = 0;; ++at) {
    REQUIRE(at < 10);
    {
      const test::FailingDisk disk({.error_number = EIO, .at = at});
      const auto lock = FileLock::acquire(directory.path(), ".lock");
      if (disk.failed() == 0) {
        REQUIRE(lock);
        REQUIRE(at >= 3);  // It was opened, emptied and written.
        return;
      }
      REQUIRE_FALSE(lock);
      CHECK(lock.error().message ==
            fmt::format("cannot write {}: Input/output error", (directory / ".lock").string()));
    }
    REQUIRE(FileLock::acquire(directory.path(), ".lock"));
  }
}

TEST_CASE("file_lock: of a directory itself, one waits for another", "[storage][file_lock][ST-2]") {
  const TempDirectory directory;
  std::promise<pid_t> thread;
  std::future<bool> second;  // outlives what it waits for
  auto first = std::make_optional(FileLock::wait_for(directory.path()));
  REQUIRE(first->ok());
  second = std::async(std::launch::async, [&] {
    thread.set_value(::gettid());
    return FileLock::wait_for(directory.path()).ok();
  });
  REQUIRE(test::falls_asleep(thread.get_future().get(), second));
  REQUIRE(test::names_in(directory.path()).empty());
  first.reset();
  REQUIRE(second.wait_for(test::hang_limit) == std::future_status::ready);
  REQUIRE(second.get());
  test::write_bytes(directory / "file", "x");
  for (const char* name : {"none", "file"}) {
    const auto lock = FileLock::wait_for(directory / name);
    REQUIRE_FALSE(lock);
    REQUIRE_THAT(lock.error().message, Catch::Contains((directory / name).string()));
  }
}
