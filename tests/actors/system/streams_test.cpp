#include "actors/system/streams.hpp"

#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <new>

#include "base/text/uncaught.hpp"
#include "tests/support/harness/sanitized.hpp"
#include "tests/support/processes/child_end.hpp"

namespace train::actors {
namespace {

/// The end of a process on whose stream work fails that an actor waits for.
template <class Make>
void check_end(const Make& make) {
  const auto [end, said] = test::end_of_child([&] {
    report_uncaught();
    const auto stream = make();
    stream->enqueue([] { throw std::bad_alloc(); });
    stream->synchronize();
  });
  INFO(said);
  REQUIRE(WIFEXITED(end));
  CHECK(WEXITSTATUS(end) == 1);
  CHECK_THAT(said, Catch::Contains("error failed: out of memory (std::bad_alloc)"));
}

}  // namespace

TEST_CASE("streams: a failure that no actor takes ends the process with its cause",
          "[actors][streams][P2][world]") {
  if (test::sanitized()) {
    return;  // A sanitizer does not let a child of a process with threads start threads.
  }
  check_end([] { return make_stream(StreamKind::threads, "status"); });
  check_end(make_disk_stream);
}

TEST_CASE("streams: a failure that an actor takes ends nothing", "[actors][streams][world]") {
  const auto stream = make_stream(StreamKind::threads, "status");
  int taken = 0;
  stream->on_failure([&taken](const kernels::StreamFailure& /*failure*/) { ++taken; });
  stream->enqueue([] { throw std::bad_alloc(); });
  CHECK_THROWS_AS(stream->synchronize(), std::bad_alloc);
  stream->enqueue([] {});
  CHECK_THROWS_AS(stream->synchronize(), std::bad_alloc);
  CHECK(taken == 1);
}

}  // namespace train::actors
