#include "data/tokens/lane_order.hpp"

#include <bit>

#include "base/check.hpp"

namespace train::data {
namespace {

constexpr int kFeistelRounds = 8;

/// Spreads every input bit over the output: two rounds of multiply and fold.
std::uint64_t mix(std::uint64_t value) {
  constexpr std::uint64_t odd_first = 0xd1342543de82ef95U;
  constexpr std::uint64_t odd_second = 0xaf251af3b0f025b5U;
  value ^= value >> 32U;
  value *= odd_first;
  value ^= value >> 29U;
  value *= odd_second;
  value ^= value >> 32U;
  return value;
}

}  // namespace

std::uint64_t shuffled_index(std::uint64_t seed, std::uint64_t epoch, std::uint64_t position,
                             std::uint64_t size) {
  TRAIN_CHECK(position < size, "position {} of {}", position, size);
  if (size == 1) {
    return 0;
  }
  // Both halves have equal width, so the domain is less than 4 * size.
  const auto half_bits = static_cast<unsigned>((std::bit_width(size - 1) + 1) / 2);
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  const std::uint64_t key = mix(mix(seed + 0x5851f42d4c957f2dU) ^ epoch);
  std::uint64_t value = position;
  do {
    std::uint64_t left = value >> half_bits;
    std::uint64_t right = value & mask;
    for (std::uint64_t round = 1; round <= kFeistelRounds; ++round) {
      const std::uint64_t next = left ^ (mix(key ^ mix((right << 8U) | round)) & mask);
      left = right;
      right = next;
    }
    value = (left << half_bits) | right;
  } while (value >= size);
  return value;
}

std::uint64_t LaneOrder::sequence(std::uint64_t step, std::uint64_t lane, std::uint64_t row) const {
  TRAIN_CHECK(lane < lanes && row < micro_batch && sequences > 0);
  const std::uint64_t global = (step * lanes + lane) * micro_batch + row;
  return shuffled_index(seed, global / sequences, global % sequences, sequences);
}

std::uint64_t LaneOrder::epoch(std::uint64_t step) const {
  TRAIN_CHECK(sequences > 0);
  return step * lanes * micro_batch / sequences;
}

std::optional<std::uint64_t> validation_sequence(std::uint64_t lane, std::uint64_t row,
                                                 std::uint64_t micro_batch,
                                                 std::uint64_t sequences) {
  TRAIN_CHECK(row < micro_batch && sequences > 0);
  const std::uint64_t sequence = lane * micro_batch + row;
  return sequence < sequences ? std::optional(sequence) : std::nullopt;
}

}  // namespace train::data
