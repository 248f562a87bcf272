#include "data/tokenizer/formats/base64.hpp"

#include <array>
#include <cstdint>

namespace train::data {
namespace {

constexpr std::uint8_t kNoDigit = 64;

constexpr std::array<std::uint8_t, 256> digit_table() {
  std::array<std::uint8_t, 256> table{};
  table.fill(kNoDigit);
  std::uint8_t value = 0;
  for (const char letter :
       std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")) {
    table[static_cast<unsigned char>(letter)] = value++;
  }
  return table;
}

}  // namespace

std::optional<std::string> from_base64(std::string_view text) {
  static constexpr auto digits = digit_table();
  while (text.ends_with('=')) {
    text.remove_suffix(1);
  }
  std::string bytes;
  std::uint32_t bits = 0;
  unsigned count = 0;
  for (const char letter : text) {
    const std::uint8_t digit = digits[static_cast<unsigned char>(letter)];
    if (digit == kNoDigit) {
      return std::nullopt;
    }
    bits = (bits << 6U) | digit;
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes.push_back(static_cast<char>(static_cast<unsigned char>(bits >> count)));
    }
  }
  return bytes;
}

}  // namespace train::data
