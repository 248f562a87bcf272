#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace train::engine {

/// A sum of doubles without rounding: a fixed-point number that holds every double and the sum of
/// 2^60 of the largest. So sums may be added up in any order and by anybody: the same bits.
class ExactSum {
 public:
  /// The number, two's complement, lowest word first, in units of 2^-1074; then not 0 if any addend
  /// was NaN or infinite.
  static constexpr std::size_t kWords = 35;
  using Words = std::array<std::uint64_t, kWords>;

  ExactSum() = default;
  explicit ExactSum(const Words& words) : words_(words) {}

  void add(double value);
  void add(const ExactSum& other);
  /// The nearest double (ties to even), +-infinity beyond the largest; NaN if an addend was not
  /// finite.
  [[nodiscard]] double value() const;
  [[nodiscard]] const Words& words() const { return words_; }

 private:
  static constexpr std::size_t kNumber = kWords - 1;
  static constexpr std::size_t kNonfinite = kWords - 1;

  void add_at(std::size_t word, std::uint64_t addend);
  void subtract_at(std::size_t word, std::uint64_t addend);

  Words words_{};
};

/// Sums as a message carries them: their words one after the other, and back.
[[nodiscard]] std::vector<std::uint64_t> words_of(std::span<const ExactSum> sums);
/// REQUIRES: a whole number of sums.
[[nodiscard]] std::vector<ExactSum> sums_of(std::span<const std::uint64_t> words);

/// Adds each of `from` to its counterpart. REQUIRES: as many.
void add_each(std::span<ExactSum> to, std::span<const ExactSum> from);

}  // namespace train::engine
