#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/activation/elementwise.hpp"
#include "kernels/backend.hpp"
#include "kernels/device/buffer.hpp"
#include "tests/support/devices/guarded_memory.hpp"

namespace train::test {
namespace {

using kernels::Buffer;
using kernels::MemoryKind;

/// What a child says before it ends by a signal; empty if it does not.
template <class Act>
std::string last_words(const Act& act) {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::signal(SIGSEGV, SIG_DFL);  // Else the test program would report it.
    watch_device_memory();
    act();
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string said;
  std::array<char, 4096> some{};
  for (ssize_t got = 0; (got = ::read(ends[0], some.data(), some.size())) > 0;) {
    said.append(some.data(), static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV ? said : "";
}

TEST_CASE("guard: the host cannot touch memory of the device", "[guarded][fork]") {
  const Buffer buffer(4096, "weights", MemoryKind::device);
  const Buffer pinned(4096, "sums", MemoryKind::pinned);
  pinned.as<float>()[3] = 1.0F;
  const std::string reading = last_words(
      [&] { pinned.as<float>()[0] = *static_cast<volatile float*>(buffer.as<float>()); });
  CHECK(reading.find("the host has touched memory of the device") != std::string::npos);
  const std::string writing = last_words([&] { buffer.as<float>()[0] = 1.0F; });
  CHECK(writing.find("the host has touched memory of the device") != std::string::npos);
  const std::string after = last_words([&] {
    { const DeviceWork work; }
    buffer.as<float>()[0] = 1.0F;
  });
  CHECK_FALSE(after.empty());
  CHECK(last_words([&] {
          const DeviceWork work;
          buffer.as<float>()[0] = 1.0F;
        }).empty());
}

TEST_CASE("guard: work of the host on the device's stream cannot either", "[guarded][fork]") {
  const Buffer buffer(64, "weights", MemoryKind::device);
  CHECK_FALSE(last_words([&] {
                const auto stream = kernels::cuda_backend()->device->make_stream("compute", 1);
                stream->enqueue([&] { buffer.as<float>()[0] = 1.0F; });
                stream->synchronize();
              }).empty());
}

TEST_CASE("guard: a kernel comes late, and gets no memory of the host", "[guarded]") {
  const kernels::KernelTable& table = *kernels::cuda_backend();
  const auto stream = table.device->make_stream("compute", 1);
  const Buffer buffer(16, "values", MemoryKind::device);
  const Buffer pinned(16, "read", MemoryKind::pinned);
  table.fill(*stream, {.out = buffer.as<float>(), .value = 3.0F, .count = 4});
  table.copy(*stream, {.out = pinned.data(), .in = buffer.data(), .size_bytes = 16});
  stream->submit([] {});
  CHECK(pinned.as<float>()[2] == 0.0F);
  stream->synchronize();
  CHECK(pinned.as<float>()[2] == 3.0F);

  const Buffer offloaded(16, "optimizer state", table.device->offload);
  table.fill(*stream, {.out = offloaded.as<float>(), .value = 5.0F, .count = 4});
  table.copy(*stream, {.out = pinned.data(), .in = offloaded.data(), .size_bytes = 16});
  stream->synchronize();
  CHECK(pinned.as<float>()[2] == 5.0F);

  std::vector<float> plain(4);
  CHECK_THROWS_AS(table.fill(*stream, {.out = plain.data(), .value = 1.0F, .count = 4}),
                  std::logic_error);
  CHECK_THROWS_AS(table.fill(*stream, {.out = pinned.as<float>(), .value = 1.0F, .count = 4}),
                  std::logic_error);
  CHECK_THROWS_AS(table.copy(*stream, {.out = plain.data(), .in = buffer.data(), .size_bytes = 16}),
                  std::logic_error);
}

}  // namespace
}  // namespace train::test
