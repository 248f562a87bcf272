#pragma once

#include <optional>
#include <utility>
#include <variant>

#include "base/check.hpp"
#include "base/error.hpp"

namespace train {

/// A value or an Error. Accessing the wrong one is a programmer's error and throws CheckFailed.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  [[nodiscard]] bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  [[nodiscard]] T& value() & {
    TRAIN_CHECK(ok(), "{}", std::get<1>(state_).message);
    return std::get<0>(state_);
  }
  [[nodiscard]] const T& value() const& {
    TRAIN_CHECK(ok(), "{}", std::get<1>(state_).message);
    return std::get<0>(state_);
  }
  [[nodiscard]] T&& value() && {
    TRAIN_CHECK(ok(), "{}", std::get<1>(state_).message);
    return std::get<0>(std::move(state_));
  }
  [[nodiscard]] const Error& error() const {
    TRAIN_CHECK(!ok());
    return std::get<1>(state_);
  }

  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Error> state_;
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
    TRAIN_CHECK(error_.has_value());
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
