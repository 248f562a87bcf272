#include "base/result.hpp"

namespace train {

void throw_no_value(const Error& error) {
  check_failed("the result has a value", error.message, std::source_location::current());
}

void throw_no_error() {
  check_failed("the result has an error", {}, std::source_location::current());
}

}  // namespace train
