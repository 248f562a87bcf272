#pragma once

#include <cstdint>
#include <string>

#include "base/exit_codes.hpp"

namespace train {

/// Side that must act on an error: the user (exit 2) or the environment (exit 1).
enum class ErrorKind : std::uint8_t {
  user,     ///< User error: bad key, missing file, data that does not fit. Exit code 2.
  failure,  ///< Environment failure: disk full, corrupt file, dead peer. Exit code 1.
  damage,   ///< Failure: stored bytes differ, or may differ, from those saved.
};

/// Expected error as a value. `message` is one line: what (file, key, line), why, and the fix. It
/// may quote users and files, so the functions below replace control characters by spaces.
struct Error {
  ErrorKind kind = ErrorKind::failure;
  std::string message;

  [[nodiscard]] int exit_code() const {
    return kind == ErrorKind::user ? kExitUserError : kExitFailure;
  }
};

[[nodiscard]] Error user_error(std::string message);
[[nodiscard]] Error failure(std::string message);
[[nodiscard]] Error damage(std::string message);

}  // namespace train
