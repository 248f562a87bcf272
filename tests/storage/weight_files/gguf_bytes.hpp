#pragma once

#include <bit>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "storage/weight_files/gguf_file.hpp"

// Bytes of GGUF files, as tests/reference/gguf/make_gguf_fixtures.py made them, or put together
// here.
namespace train::test {

inline std::string bytes_of_hex(std::string_view hex) {
  const auto digit = [](char letter) { return letter <= '9' ? letter - '0' : letter - 'a' + 10; };
  REQUIRE(hex.size() % 2 == 0);
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(digit(hex[i]) * 16 + digit(hex[i + 1])));
  }
  return bytes;
}

inline std::vector<float> floats_of_hex(std::string_view hex) {
  const std::string bytes = bytes_of_hex(hex);
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

/// Whether they have the same bits, those of zeros and NaNs too.
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

/// Appends parts of a file.
class GgufBytes {
 public:
  GgufBytes& number(std::uint64_t value, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) {
      bytes.push_back(static_cast<char>(static_cast<unsigned char>(value >> (8 * i))));
    }
    return *this;
  }
  GgufBytes& text(std::string_view value) {
    number(value.size(), 8);
    bytes += value;
    return *this;
  }
  GgufBytes& start(std::uint64_t tensors, std::uint64_t keys, std::uint32_t version = 3) {
    bytes += "GGUF";
    return number(version, 4).number(tensors, 8).number(keys, 8);
  }
  /// A key with a number of this kind and size.
  GgufBytes& key(std::string_view name, std::uint32_t kind, std::uint64_t value, std::size_t size) {
    return text(name).number(kind, 4).number(value, size);
  }
  GgufBytes& tensor(std::string_view name, const std::vector<std::uint64_t>& dimensions,
                    std::uint32_t type, std::uint64_t offset) {
    text(name).number(dimensions.size(), 4);
    for (const std::uint64_t dimension : dimensions) {
      number(dimension, 8);
    }
    return number(type, 4).number(offset, 8);
  }
  /// Up to the next multiple of `alignment`, and so many bytes.
  GgufBytes& data(std::size_t size, std::size_t alignment = 32) {
    bytes.append((alignment - bytes.size() % alignment) % alignment, '\0');
    bytes.append(size, '\x01');
    return *this;
  }

  std::string bytes;
};

}  // namespace train::test
