#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace train::storage {

/// Bytes of a source text, from `first` to before `last`.
struct TokenSpan {
  std::uint32_t first = 0;
  std::uint32_t last = 0;

  bool operator==(const TokenSpan&) const = default;
};

/// Of each byte of a text that was made of a source: the bytes of the source that it stands for.
using Origins = std::vector<TokenSpan>;

/// What a piece of such a text stands for. REQUIRES: not empty.
[[nodiscard]] inline TokenSpan span_of(std::string_view piece, const TokenSpan* origins) {
  return {origins[0].first, origins[piece.size() - 1].last};
}

/// Follows a step that makes a text of another, so that the origins of the one become those of the
/// other. Without origins it does nothing.
class OriginTrace {
 public:
  explicit OriginTrace(Origins* origins) : before_(origins) {}

  [[nodiscard]] bool follows() const { return before_ != nullptr; }

  /// The next bytes of the output are these of the input.
  void kept(std::size_t begin, std::size_t end) {
    if (before_ != nullptr) {
      const auto at = before_->begin();
      after_.insert(after_.end(), at + static_cast<std::ptrdiff_t>(begin),
                    at + static_cast<std::ptrdiff_t>(end));
    }
  }

  /// The next bytes of the output are made of these of the input, and stand for all of them. Of
  /// none (`begin` is `end`): they stand for nothing, at that place.
  void made(std::size_t bytes_count, std::size_t begin, std::size_t end) {
    if (before_ != nullptr) {
      after_.insert(after_.end(), bytes_count, source_of(begin, end));
    }
  }

  /// The output is complete.
  void finish() {
    if (before_ != nullptr) {
      before_->swap(after_);
      after_.clear();
    }
  }

 private:
  [[nodiscard]] TokenSpan source_of(std::size_t begin, std::size_t end) const {
    if (begin < end) {
      return {(*before_)[begin].first, (*before_)[end - 1].last};
    }
    const std::uint32_t place = begin < before_->size() ? (*before_)[begin].first
                                : before_->empty()      ? 0
                                                        : before_->back().last;
    return {place, place};
  }

  Origins* before_;
  Origins after_;
};

}  // namespace train::storage
