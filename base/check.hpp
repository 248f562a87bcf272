#pragma once

#include <fmt/format.h>

#include <source_location>
#include <stdexcept>
#include <string>
#include <utility>

namespace train {

/// Broken invariant: a defect of the program, never of its input. Thrown by TRAIN_CHECK; ends the
/// actor (or stream) that threw it and, with it, the rank.
class CheckFailed : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Throws CheckFailed with the place, the condition and `text`.
[[noreturn]] void check_failed(const char* condition, const std::string& text,
                               const std::source_location& where);

inline std::string check_text() { return {}; }

template <class... Args>
std::string check_text(fmt::format_string<Args...> format, Args&&... args) {
  return fmt::format(format, std::forward<Args>(args)...);
}

}  // namespace train

/// Checks an invariant, in every build type; the condition must have no side effects. Further
/// arguments: a fmt format and its values.
#define TRAIN_CHECK(condition, ...)                                       \
  do {                                                                    \
    if (!(condition)) [[unlikely]] {                                      \
      ::train::check_failed(#condition, ::train::check_text(__VA_ARGS__), \
                            ::std::source_location::current());           \
    }                                                                     \
  } while (false)
