#pragma once

#include <optional>
#include <utility>

#include "base/check.hpp"
#include "base/error.hpp"

namespace train {

/// Throw CheckFailed where a Result has the other alternative. They stand outside the template,
/// which is compiled for each type of each source.
[[noreturn]] void throw_no_value(const Error& error);
[[noreturn]] void throw_no_error();

/// A value or an Error. Accessing the wrong one is a programmer's error and throws CheckFailed.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit

  [[nodiscard]] bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }

  [[nodiscard]] T& value() & {
    require_value();
    return *value_;
  }
  [[nodiscard]] const T& value() const& {
    require_value();
    return *value_;
  }
  [[nodiscard]] T&& value() && {
    require_value();
    return *std::move(value_);
  }
  [[nodiscard]] const Error& error() const {
    if (ok()) [[unlikely]] {
      throw_no_error();
    }
    return error_;
  }

  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  void require_value() const {
    if (!ok()) [[unlikely]] {
      throw_no_value(error_);
    }
  }

  std::optional<T> value_;
  Error error_;  // That of a Result without a value.
};

/// Result without a value.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit

  [[nodiscard]] bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  [[nodiscard]] const Error& error() const {
    if (ok()) [[unlikely]] {
      throw_no_error();
    }
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace train

/// Returns the error of `expression` (a Result, which is not copied) to the caller, if it has one.
#define TRAIN_RETURN_IF_ERROR(expression)                      \
  do {                                                         \
    if (auto&& train_result_ = (expression); !train_result_) { \
      return train_result_.error();                            \
    }                                                          \
  } while (false)

/// Value of the expression (a Result), or, if that has an error, a return of the error to the
/// caller. The whole initializer of a variable:
///   const InputFile file = TRAIN_TRY(InputFile::open(path));
/// The Result is taken by value: one inside a temporary is gone with that at the end of the line.
#define TRAIN_TRY(...)                   \
  __extension__({                        \
    auto train_value_ = (__VA_ARGS__);   \
    TRAIN_RETURN_IF_ERROR(train_value_); \
    std::move(train_value_).value();     \
  })

/// TRAIN_RETURN_IF_ERROR in a coroutine.
#define TRAIN_CO_RETURN_IF_ERROR(expression)                   \
  do {                                                         \
    if (auto&& train_result_ = (expression); !train_result_) { \
      co_return train_result_.error();                         \
    }                                                          \
  } while (false)
