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
#include "tests/support/harness/sanitized.hpp"
#include "tests/support/processes/child_end.hpp"

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
  const auto [code, said] = test::end_of_child([] {
    report_uncaught("rank 3 ");
    std::thread([] { throw std::bad_alloc(); }).join();
  });
  INFO(said);
  CHECK((WIFEXITED(code) && WEXITSTATUS(code) == 1));
  CHECK_THAT(said, Catch::Contains("rank 3 failed: out of memory (std::bad_alloc); "));

  const auto [aborted, why] = test::end_of_child([] {
    report_uncaught("rank 3 ", UncaughtEnd::abort);
    std::thread([] { throw std::bad_alloc(); }).join();
  });
  INFO(why);
  CHECK((WIFSIGNALED(aborted) && WTERMSIG(aborted) == SIGABRT));
  CHECK_THAT(why, Catch::Contains("rank 3 failed: out of memory (std::bad_alloc); "));

  const auto [defect, what] = test::end_of_child([] {
    report_uncaught();
    std::thread([] { throw std::logic_error("a defect"); }).join();
  });
  INFO(what);
  CHECK((WIFSIGNALED(defect) && WTERMSIG(defect) == SIGABRT));
  CHECK_THAT(what, Catch::Contains("failed: a defect"));

  const auto [lost, blank] = test::end_of_child([] {
    report_uncaught();
    std::terminate();
  });
  INFO(blank);
  CHECK((WIFSIGNALED(lost) && WTERMSIG(lost) == SIGABRT));
  CHECK_THAT(blank, Catch::Contains("failed: terminated without an exception"));

  const auto [hidden, memory] = test::end_of_child([] {
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

  const auto [started, thread] = test::end_of_child([] {
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
  const auto [code, said] = test::end_of_child(abort_without_memory(UncaughtEnd::exit_code));
  CHECK((WIFEXITED(code) && WEXITSTATUS(code) == 1));
  CHECK(said == "error failed: out of memory\n");
  const auto [rank, silent] = test::end_of_child(abort_without_memory(UncaughtEnd::abort));
  CHECK((WIFSIGNALED(rank) && WTERMSIG(rank) == SIGABRT));
  const auto [defect, nothing] = test::end_of_child([] {
    report_uncaught();
    std::abort();
  });
  CHECK((WIFSIGNALED(defect) && WTERMSIG(defect) == SIGABRT));
  CHECK(silent + nothing == "");
  // A defect stays one, though memory ran out before.
  const auto [later, what] = test::end_of_child([] {
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

TEST_CASE("uncaught: where a library uses memory that it did not get, the end is a line, too",
          "[base][uncaught]") {
  if (test::sanitized()) {
    return;  // Faults are the sanitizer's to tell.
  }
  const auto use_null = [](UncaughtEnd end, bool without_memory) {
    return [end, without_memory] {
      report_uncaught("", end);
      if (without_memory) {
        try {
          run_out_of_memory();
        } catch (const std::bad_alloc&) {
        }
      }
      volatile int* const not_given = nullptr;
      *not_given = 1;
    };
  };
  const auto [code, said] = test::end_of_child(use_null(UncaughtEnd::exit_code, true));
  CHECK((WIFEXITED(code) && WEXITSTATUS(code) == 1));
  CHECK(said == "error failed: out of memory\n");
  const auto [rank, silent] = test::end_of_child(use_null(UncaughtEnd::abort, true));
  CHECK((WIFSIGNALED(rank) && WTERMSIG(rank) == SIGSEGV));
  const auto [defect, nothing] = test::end_of_child(use_null(UncaughtEnd::exit_code, false));
  CHECK((WIFSIGNALED(defect) && WTERMSIG(defect) == SIGSEGV));
  CHECK(silent + nothing == "");
}

TEST_CASE("uncaught: a process ends although it holds what its last line needs",
          "[base][uncaught][P2]") {
  const auto [code, said] = test::end_of_child([] {
    report_uncaught();
    // Nothing is unwound on a thread without a handler: it holds the terminal.
    std::thread([] { above_live_block([] { throw std::bad_alloc(); }); }).join();
  });
  INFO(said);
  CHECK((WIFEXITED(code) && WEXITSTATUS(code) == 1));
  CHECK(said == "error failed: out of memory\n");
}

}  // namespace train
