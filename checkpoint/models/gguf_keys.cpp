#include "checkpoint/models/gguf_keys.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>
#include <variant>

namespace train::checkpoint {
namespace {

/// Formats a value for an error line: a list is given by its length.
std::string words_of(const storage::GgufValue& value) {
  return std::visit(
      [](const auto& one) -> std::string {
        using T = std::decay_t<decltype(one)>;
        if constexpr (std::is_same_v<T, std::string>) {
          return fmt::format("\"{}\"", one);
        } else if constexpr (std::is_arithmetic_v<T>) {
          return fmt::format("{}", one);
        } else {
          return fmt::format("a list of {}", one.size());
        }
      },
      value);
}

/// True for 0 and false, which mean the same as a missing key.
bool is_neutral(const storage::GgufValue& value) {
  return std::visit(
      [](const auto& one) {
        using T = std::decay_t<decltype(one)>;
        if constexpr (std::is_arithmetic_v<T>) {
          return one == T{};
        } else {
          return false;
        }
      },
      value);
}

std::optional<double> number_of(const storage::GgufValue& value) {
  if (const auto* real = std::get_if<double>(&value)) {
    return *real;
  }
  if (const auto* count = std::get_if<std::uint64_t>(&value)) {
    return static_cast<double>(*count);
  }
  const auto* whole = std::get_if<std::int64_t>(&value);
  return whole == nullptr ? std::nullopt : std::optional(static_cast<double>(*whole));
}

}  // namespace

std::string GgufKeys::full(std::string_view key) const {
  return fmt::format("{}.{}", architecture_, key);
}

const storage::GgufValue* GgufKeys::find(std::string_view key) const {
  const auto found = file_->metadata().find(full(key));
  return found == file_->metadata().end() ? nullptr : &found->second;
}

const storage::GgufValue* GgufKeys::value(std::string_view key) {
  read_.insert(full(key));
  return find(key);
}

std::uint64_t GgufKeys::count(std::string_view key, std::optional<std::uint64_t> otherwise) {
  const storage::GgufValue* found = value(key);
  if (found == nullptr) {
    if (!otherwise) {
      fail(fmt::format("{} is missing", full(key)));
    }
    return otherwise.value_or(1);
  }
  const auto whole = file_->count_of(full(key));
  if (!whole) {
    refuse(key, "it must be one number of 0 or more");
  }
  return whole.value_or(1);
}

double GgufKeys::real(std::string_view key, std::optional<double> otherwise) {
  const storage::GgufValue* found = value(key);
  if (found == nullptr) {
    if (!otherwise) {
      fail(fmt::format("{} is missing", full(key)));
    }
    return otherwise.value_or(1.0);
  }
  const auto number = number_of(*found);
  if (!number) {
    refuse(key, "it must be a number");
  }
  return number.value_or(1.0);
}

bool GgufKeys::flag(std::string_view key, bool otherwise) {
  const storage::GgufValue* found = value(key);
  if (found == nullptr) {
    return otherwise;
  }
  const bool* given = std::get_if<bool>(found);
  if (given == nullptr) {
    refuse(key, "it must be true or false");
  }
  return given == nullptr ? otherwise : *given;
}

std::string GgufKeys::text(std::string_view key, std::string_view otherwise) {
  const storage::GgufValue* found = value(key);
  if (found == nullptr) {
    return std::string(otherwise);
  }
  const auto* given = std::get_if<std::string>(found);
  if (given == nullptr) {
    refuse(key, "it must be text");
  }
  return given == nullptr ? std::string(otherwise) : *given;
}

void GgufKeys::ignore(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    read_.insert(full(key));
  }
}

void GgufKeys::refuse(std::string_view key, std::string_view reason) {
  const storage::GgufValue* found = find(key);
  fail(fmt::format("{} is {}: {}", full(key), found == nullptr ? "missing" : words_of(*found),
                   reason));
}

void GgufKeys::fail(std::string mistake) {
  if (mistake_.empty()) {
    mistake_ = std::move(mistake);
  }
}

Status GgufKeys::check() const {
  const std::string path = file_->file().path().string();
  if (!mistake_.empty()) {
    return user_error(fmt::format("{}: {}", path, mistake_));
  }
  const std::string prefix = architecture_ + ".";
  for (const auto& [key, value] : file_->metadata()) {
    if (key.starts_with(prefix) && !read_.contains(key) && !is_neutral(value)) {
      return user_error(
          fmt::format("{}: {} is {}, which is not supported; give the model's own directory", path,
                      key, words_of(value)));
    }
  }
  return {};
}

}  // namespace train::checkpoint
