#pragma once

#include <array>
#include <cstdint>

namespace train::engine {

/// Last word of the counter, which keeps uses of one seed from sharing random numbers.
enum class RandomDomain : std::uint32_t { initial_weights = 1, sampling = 2, targets = 3 };

/// Philox4x32-10, a counter-based generator: four random words of a counter and a key. Pure.
/// Salmon, Moraes, Dror, Shaw: Parallel random numbers, as easy as 1, 2, 3 (SC 2011).
[[nodiscard]] constexpr std::array<std::uint32_t, 4> philox4x32(
    std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53U;
  constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57U;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9U;
  constexpr std::uint32_t kWeyl1 = 0xBB67AE85U;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = kMultiplier0 * counter[0];
    const std::uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32U) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32U) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(product0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

/// philox4x32() with a 64-bit position and key, as the engine uses it.
[[nodiscard]] constexpr std::array<std::uint32_t, 4> philox_at(std::uint64_t key,
                                                               std::uint64_t position,
                                                               RandomDomain domain) {
  return philox4x32(
      {static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32U), 0,
       static_cast<std::uint32_t>(domain)},
      {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32U)});
}

/// A word as a number strictly between 0 and 1.
[[nodiscard]] constexpr double open_unit(std::uint32_t word) {
  return (static_cast<double>(word) + 0.5) / 4294967296.0;
}

}  // namespace train::engine
