#include "base/text/uncaught.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "base/text/terminal.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/harness/error_output_file.hpp"
#include "tests/support/harness/sanitized.hpp"

namespace train {
namespace {

template <class Thrown>
std::string text_of(const Thrown& thrown) {
  return exception_text(std::make_exception_ptr(thrown));
}

/// Throws std::bad_alloc, as `new` does where no memory is left.
void run_out_of_memory() {
  if (test::sanitized()) {
    std::get_new_handler()();  // The sanitizer's own `new` ends the process instead of calling it.
  }
  volatile std::size_t most = std::size_t{1} << 60;
  ::operator delete(::operator new(most));
}

/// Wait status of a child that calls `work`, and what it logs.
std::pair<int, std::string> end_of(const std::function<void()>& work) {
  const test::TempDirectory home;
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const test::ErrorOutputFile log(home / "log");
    std::signal(SIGABRT, SIG_DFL);  // Not the tests' own handler.
    work();
    ::_exit(99);
  }
  int end = 0;
  REQUIRE(::waitpid(child, &end, 0) == child);
  return {end, test::read_bytes(home / "log")};
}

}  // namespace

TEST_CASE("uncaught: a lack of memory or threads is named with a way out, other text stays",
          "[base][uncaught]") {
  CHECK_THAT(text_of(std::bad_alloc()),
             Catch::StartsWith("out of memory (std::bad_alloc); ") &&
                 Catch::EndsWith(", or let a run take less (batch.micro_batch)"));
  const auto lack = std::make_error_code(std::errc::resource_unavailable_try_again);
  CHECK_THAT(text_of(std::system_error(lack)),
             Catch::StartsWith("cannot start a thread: ") &&
                 Catch::EndsWith(", or let a run take fewer (runtime.threads)"));
  CHECK(text_of(std::runtime_error("two\nlines")) == "two lines");
  CHECK(exception_text(std::make_exception_ptr(7)) == "unknown exception");
}

TEST_CASE("uncaught: the end of a process is a line, and an exit code where memory ran out",
          "[base][uncaught]") {
  const auto [code, said] = end_of([] {
    report_uncaught("rank 3 ");
    std::thread([] { throw std::bad_alloc(); }).join();
  });
  INFO(said);
  CHECK((WIFEXITED(code) && WEXITSTATUS(code) == 1));
  CHECK_THAT(said, Catch::Contains("rank 3 failed: out of memory (std::bad_alloc); "));

  const auto [aborted, why] = end_of([] {
    report_uncaught("rank 3 ", UncaughtEnd::abort);
    std::thread([] { throw std::bad_alloc(); }).join();
  });
  INFO(why);
  CHECK((WIFSIGNALED(aborted) && WTERMSIG(aborted) == SIGABRT));
  CHECK_THAT(why, Catch::Contains("rank 3 failed: out of memory (std::bad_alloc); "));

  const auto [defect, what] = end_of([] {
    report_uncaught();
    std::thread([] { throw std::logic_error("a defect"); }).join();
  });
  INFO(what);
  CHECK((WIFSIGNALED(defect) && WTERMSIG(defect) == SIGABRT));
  CHECK_THAT(what, Catch::Contains("failed: a defect"));

  const auto [lost, blank] = end_of([] {
    report_uncaught();
    std::terminate();
  });
  INFO(blank);
  CHECK((WIFSIGNALED(lost) && WTERMSIG(lost) == SIGABRT));
  CHECK_THAT(blank, Catch::Contains("failed: terminated without an exception"));

  const auto [hidden, memory] = end_of([] {
    report_uncaught();
    // As a library does that destroys running threads while the exception is on its way.
    try {
      run_out_of_memory();
    } catch (const std::bad_alloc&) {
    }
    std::terminate();
  });
  INFO(memory);
  CHECK((WIFEXITED(hidden) && WEXITSTATUS(hidden) == 1));
  CHECK_THAT(memory, Catch::Contains("failed: out of memory; "));

  const auto [started, thread] = end_of([] {
    report_uncaught();
    try {
      const std::thread running([] { ::pause(); });
      throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
    } catch (const std::system_error&) {
    }
  });
  INFO(thread);
  CHECK((WIFEXITED(started) && WEXITSTATUS(started) == 1));
  CHECK_THAT(thread, Catch::Contains("as where one more cannot be started; "));
}

TEST_CASE("uncaught: where a library aborts because memory ran out, the end is a line, too",
          "[base][uncaught]") {
  const auto abort_without_memory = [](UncaughtEnd end) {
    return [end] {
      report_uncaught("", end);
      try {
        run_out_of_memory();
      } catch (const std::bad_alloc&) {
      }
      std::abort();
    };
  };
  const auto [code, said] = end_of(abort_without_memory(UncaughtEnd::exit_code));
  CHECK((WIFEXITED(code) && WEXITSTATUS(code) == 1));
  CHECK(said == "error failed: out of memory\n");
  const auto [rank, silent] = end_of(abort_without_memory(UncaughtEnd::abort));
  CHECK((WIFSIGNALED(rank) && WTERMSIG(rank) == SIGABRT));
  const auto [defect, nothing] = end_of([] {
    report_uncaught();
    std::abort();
  });
  CHECK((WIFSIGNALED(defect) && WTERMSIG(defect) == SIGABRT));
  CHECK(silent + nothing == "");
  // A defect stays one, though memory ran out before.
  const auto [later, what] = end_of([] {
    report_uncaught();
    try {
      run_out_of_memory();
    } catch (const std::bad_alloc&) {
    }
    std::thread([] { throw std::logic_error("a defect"); }).join();
  });
  INFO(what);
  CHECK((WIFSIGNALED(later) && WTERMSIG(later) == SIGABRT));
}

TEST_CASE("uncaught: a process ends although it holds what its last line needs",
          "[base][uncaught][P2]") {
  const auto [code, said] = end_of([] {
    report_uncaught();
    // Nothing is unwound on a thread without a handler: it holds the terminal.
    std::thread([] { above_live_block([] { throw std::bad_alloc(); }); }).join();
  });
  INFO(said);
  CHECK((WIFEXITED(code) && WEXITSTATUS(code) == 1));
  CHECK(said == "error failed: out of memory\n");
}

}  // namespace train
