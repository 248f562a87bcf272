#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>

namespace train::bench {

/// Writes `count` tokens with some structure, so that values stay in an ordinary range; content
/// does not affect the speed.
inline void write_tokens(const std::filesystem::path& path, std::size_t count) {
  std::ofstream file(path, std::ios::binary);
  std::uint32_t state = 12345;
  for (std::size_t i = 0; i < count; ++i) {
    state = state * 1664525U + 1013904223U;
    const auto token = static_cast<std::uint16_t>(97 + (state >> 24) % 26);
    file.write(reinterpret_cast<const char*>(&token), sizeof(token));
  }
}

}  // namespace train::bench
