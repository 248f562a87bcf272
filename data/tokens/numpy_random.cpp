#include "data/tokens/numpy_random.hpp"

#include <array>
#include <bit>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.hpp"

namespace train::data {
namespace {

constexpr std::size_t kPoolWords = 4;
using Pool = std::array<std::uint32_t, kPoolWords>;

std::uint32_t fold(std::uint32_t value) { return value ^ (value >> 16U); }

/// Hashes words in sequence; each call has its own multiplier.
class WordHash {
 public:
  WordHash(std::uint32_t start, std::uint32_t factor) : constant_(start), factor_(factor) {}

  std::uint32_t operator()(std::uint32_t value) {
    value ^= constant_;
    constant_ *= factor_;
    return fold(value * constant_);
  }

 private:
  std::uint32_t constant_;
  std::uint32_t factor_;
};

std::uint32_t mix(std::uint32_t left, std::uint32_t right) {
  return fold(left * 0xca01f9ddU - right * 0x4973f715U);
}

/// Pool of the seed sequence: every word of the seed affects every word of the pool.
Pool seed_pool(std::uint64_t seed) {
  WordHash hash(0x43b0d7e5U, 0x931e8875U);
  Pool pool = {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U), 0, 0};
  for (std::uint32_t& word : pool) {
    word = hash(word);
  }
  for (std::size_t from = 0; from < kPoolWords; ++from) {
    for (std::size_t to = 0; to < kPoolWords; ++to) {
      if (from != to) {
        pool[to] = mix(pool[to], hash(pool[from]));
      }
    }
  }
  return pool;
}

std::array<std::uint64_t, 4> seed_words(std::uint64_t seed) {
  const Pool pool = seed_pool(seed);
  WordHash hash(0x8b51f9ddU, 0x58f38dedU);
  std::array<std::uint64_t, 4> words{};
  for (std::size_t i = 0; i < 2 * words.size(); ++i) {
    words[i / 2] |= static_cast<std::uint64_t>(hash(pool[i % kPoolWords])) << (32 * (i % 2));
  }
  return words;
}

/// 64 x 64 bits: {high, low}.
std::pair<std::uint64_t, std::uint64_t> product(std::uint64_t left, std::uint64_t right) {
  const std::uint64_t a = left >> 32U;
  const std::uint64_t b = left & 0xffffffffU;
  const std::uint64_t c = right >> 32U;
  const std::uint64_t d = right & 0xffffffffU;
  const std::uint64_t middle = a * d + ((b * d) >> 32U);
  const std::uint64_t carry = (middle & 0xffffffffU) + b * c;
  return {a * c + (middle >> 32U) + (carry >> 32U), left * right};
}

}  // namespace

NumpyGenerator::NumpyGenerator(std::uint64_t seed) {
  const auto words = seed_words(seed);
  increment_ = {(words[2] << 1U) | (words[3] >> 63U), (words[3] << 1U) | 1U};
  advance();
  const std::uint64_t low = state_.low + words[1];
  state_.high += words[0] + (low < words[1] ? 1U : 0U);
  state_.low = low;
  advance();
}

void NumpyGenerator::advance() {
  constexpr Wide factor = {0x2360ed051fc65da4U, 0x4385df649fccf645U};
  auto [high, low] = product(state_.low, factor.low);
  high += state_.high * factor.low + state_.low * factor.high;
  low += increment_.low;
  state_ = {high + increment_.high + (low < increment_.low ? 1U : 0U), low};
}

std::uint64_t NumpyGenerator::next64() {
  advance();
  return std::rotr(state_.high ^ state_.low, static_cast<int>(state_.high >> 58U));
}

std::uint32_t NumpyGenerator::next32() {
  if (has_half_) {
    has_half_ = false;
    return half_;
  }
  const std::uint64_t both = next64();
  half_ = static_cast<std::uint32_t>(both >> 32U);
  has_half_ = true;
  return static_cast<std::uint32_t>(both);
}

std::uint64_t NumpyGenerator::interval(std::uint64_t max) {
  if (max == 0) {
    return 0;
  }
  const std::uint64_t mask = ~std::uint64_t{0} >> std::countl_zero(max);
  std::uint64_t value = 0;
  do {
    value = mask & (max <= 0xffffffffU ? next32() : next64());
  } while (value > max);
  return value;
}

std::uint64_t NumpyGenerator::integers(std::uint64_t size) {
  constexpr std::uint64_t two_32 = std::uint64_t{1} << 32U;
  TRAIN_CHECK(size >= 1 && size <= two_32, "integers({})", size);
  if (size == 1) {
    return 0;  // NumPy draws nothing here either.
  }
  const std::uint64_t refused_below = two_32 % size;
  std::uint64_t scaled = 0;
  do {
    scaled = std::uint64_t{next32()} * size;
  } while ((scaled & 0xffffffffU) < refused_below);
  return scaled >> 32U;
}

template <class Index>
std::vector<Index> NumpyGenerator::permutation(std::uint64_t size) {
  TRAIN_CHECK(size == 0 || size - 1 <= std::numeric_limits<Index>::max());
  std::vector<Index> order(size);
  std::iota(order.begin(), order.end(), Index{0});
  for (std::uint64_t last = size; last > 1; --last) {
    std::swap(order[last - 1], order[interval(last - 1)]);
  }
  return order;
}

template std::vector<std::uint32_t> NumpyGenerator::permutation<std::uint32_t>(std::uint64_t);
template std::vector<std::uint64_t> NumpyGenerator::permutation<std::uint64_t>(std::uint64_t);

}  // namespace train::data
