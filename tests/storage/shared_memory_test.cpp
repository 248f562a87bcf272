#include "storage/files/shared_memory.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstring>
#include <string>

#include "tests/support/disks/few_descriptors.hpp"
#include "tests/support/processes/leave.hpp"

using namespace train;
using storage::SharedMemory;

TEST_CASE("shared memory: what a process wrote outlives its SIGKILL",
          "[storage][shared_memory][fork]") {
  auto memory = SharedMemory::create("test", 10'000);
  REQUIRE(memory.ok());
  REQUIRE(memory->bytes().size() == 10'000);
  CHECK(memory->bytes()[9'999] == std::byte{0});
  const pid_t child = ::fork();
  if (child == 0) {
    const auto mine = SharedMemory::attach(::dup(memory->descriptor()));
    if (mine) {
      std::memset(mine->bytes().data(), 7, 10'000);
    }
    ::raise(SIGKILL);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(memory->bytes()[0] == std::byte{7});
  CHECK(memory->bytes()[9'999] == std::byte{7});
  CHECK((::fcntl(memory->descriptor(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(::ftruncate(memory->descriptor(), 5) != 0);  // nobody makes it smaller
}

TEST_CASE("shared memory: a limit is said before it is met", "[storage][shared_memory][fork]") {
  SECTION("of the machine or a control group") {
    const auto memory = SharedMemory::create("test", std::uint64_t{1} << 60);
    REQUIRE_FALSE(memory.ok());
    CHECK(memory.error().message.find("that are available") != std::string::npos);
  }
  SECTION("of file sizes, which would end the process") {
    const pid_t child = ::fork();
    if (child == 0) {
      rlimit before{};
      ::getrlimit(RLIMIT_FSIZE, &before);
      const rlimit limit{4096, before.rlim_max};
      ::setrlimit(RLIMIT_FSIZE, &limit);
      const auto memory = SharedMemory::create("test", 8192);
      const bool said = !memory && memory.error().message.find("ulimit -f") != std::string::npos;
      const bool fits = SharedMemory::create("test", 4096).ok();
      ::setrlimit(RLIMIT_FSIZE, &before);  // Counts of lines take larger files.
      test::leave(said && fits ? 0 : 1);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
  SECTION("of descriptors") {
    const test::FewDescriptors none(0);
    const auto memory = SharedMemory::create("test", 4096);
    REQUIRE_FALSE(memory.ok());
    CHECK(memory.error().message == "no shared memory: Too many open files");
  }
  SECTION("no descriptor at all") {
    const auto memory = SharedMemory::attach(-1);
    REQUIRE_FALSE(memory.ok());
    CHECK(memory.error().message == "descriptor -1: Bad file descriptor");
  }
  SECTION("one of shared memory is taken") {
    const auto memory = SharedMemory::create("test", 4096);
    REQUIRE(memory.ok());
    const auto again = SharedMemory::attach(::dup(memory->descriptor()));
    REQUIRE(again.ok());
    memory->bytes()[5] = std::byte{7};
    CHECK(again->bytes()[5] == std::byte{7});
    CHECK(again->bytes().size() == 4096);
  }
  SECTION("a descriptor of something else") {
    const auto memory = SharedMemory::attach(::open("/dev/null", O_RDWR));
    REQUIRE_FALSE(memory.ok());
    CHECK(memory.error().message.find("no shared memory") != std::string::npos);
  }
}
