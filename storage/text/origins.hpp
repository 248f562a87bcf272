#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace train::storage {

/// Bytes [first, last) of a source text.
struct TokenSpan {
  std::uint32_t first = 0;
  std::uint32_t last = 0;

  bool operator==(const TokenSpan&) const = default;
};

/// For each byte of a derived text: the source bytes that it stands for.
using Origins = std::vector<TokenSpan>;

/// Source span of a piece of such a text. REQUIRES: not empty.
[[nodiscard]] inline TokenSpan span_of(std::string_view piece, const TokenSpan* origins) {
  return {origins[0].first, origins[piece.size() - 1].last};
}

/// Tracks a text transformation, to turn the input's origins into the output's. Without origins a
/// no-op.
class OriginTrace {
 public:
  explicit OriginTrace(Origins* origins) : before_(origins) {}

  [[nodiscard]] bool follows() const { return before_ != nullptr; }

  /// The next output bytes equal these input bytes.
  void kept(std::size_t begin, std::size_t end) {
    if (before_ != nullptr) {
      const auto at = before_->begin();
      after_.insert(after_.end(), at + static_cast<std::ptrdiff_t>(begin),
                    at + static_cast<std::ptrdiff_t>(end));
    }
  }

  /// The next output bytes are made of these input bytes, and stand for all of them; if none
  /// (`begin` is `end`), for the empty span at that place.
  void made(std::size_t bytes_count, std::size_t begin, std::size_t end) {
    if (before_ != nullptr) {
      after_.insert(after_.end(), bytes_count, source_of(begin, end));
    }
  }

  /// Call when the output is complete.
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
