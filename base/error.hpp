#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/exit_codes.hpp"
#include "base/one_line.hpp"

namespace train {

/// Who has to act on an error: the user (exit 2) or the world (exit 1).
enum class ErrorKind : std::uint8_t {
  user,     ///< The user's mistake: bad key, missing file, data that does not fit. Exit code 2.
  failure,  ///< A failure of the world: disk full, corrupt file, dead peer. Exit code 1.
  damage,   ///< A failure, too: stored bytes are not, or may not be, those that were saved.
};

/// An expected error as a value. `message` is one line: what (file, key, line), why, and the fix.
/// It may quote what users and files say, so the functions below put spaces for control characters.
struct Error {
  ErrorKind kind = ErrorKind::failure;
  std::string message;

  [[nodiscard]] int exit_code() const {
    return kind == ErrorKind::user ? kExitUserError : kExitFailure;
  }
};

[[nodiscard]] inline Error user_error(std::string message) {
  return {ErrorKind::user, without_controls(std::move(message))};
}

[[nodiscard]] inline Error failure(std::string message) {
  return {ErrorKind::failure, without_controls(std::move(message))};
}

[[nodiscard]] inline Error damage(std::string message) {
  return {ErrorKind::damage, without_controls(std::move(message))};
}

}  // namespace train
