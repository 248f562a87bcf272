#include "actors/system/supervision.hpp"

#include <caf/exit_reason.hpp>
#include <caf/make_message.hpp>
#include <catch2/catch.hpp>
#include <new>

namespace train::actors {
namespace {

caf::error error_of(const std::exception_ptr& thrown) {
  return exception_error("layer 1", 4, thrown);
}

}  // namespace

TEST_CASE("supervision: a part's end is told by its exception, also where the framework lost it",
          "[actors][supervision]") {
  CHECK_THAT(failure_text(error_of(std::make_exception_ptr(std::bad_alloc()))),
             Catch::StartsWith("layer 1, step 5: out of memory (std::bad_alloc); "));
  std::exception_ptr early = std::make_exception_ptr(std::bad_alloc());
  CHECK_THAT(failure_text(nameless_error(early)),
             Catch::StartsWith("a part at its start: out of memory (std::bad_alloc); "));
  CHECK(failure_text(caf::make_error(caf::sec::runtime_error)) ==
        "an exception whose text is lost");
  CHECK(failure_text(caf::make_error(caf::exit_reason::user_shutdown)).empty());
  CHECK(failure_text(caf::error()).empty());
  CHECK_THAT(failure_text(caf::make_error(caf::exit_reason::kill)), Catch::Contains("kill"));
}

}  // namespace train::actors
