#pragma once

#include <fmt/format.h>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace train::fuzz {

/// A reader of other people's bytes, as libFuzzer and the tests call it.
struct Target {
  std::string_view name;
  /// Reads `input` and throws Broken if what came out breaks a promise of the reader.
  void (*run)(std::string_view input);
  /// Good inputs, made by the product's own writers.
  std::vector<std::string> (*seeds)();
  std::vector<std::string> words;  ///< What inputs are made of.
};

/// A promise that an input broke.
class Broken : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

inline void require(bool holds, std::string_view promise) {
  if (!holds) {
    throw Broken(fmt::format("broken: {}", promise));
  }
}

/// Whatever the input, an error is one short line that a terminal can show.
inline void require_readable(const Error& error) {
  require(!error.message.empty(), "an error says something");
  require(error.message.size() <= 2000, "an error is short");
  for (const char letter : error.message) {
    require(static_cast<unsigned char>(letter) >= ' ' && letter != '\x7f',
            "an error is one line without control characters");
  }
}

/// Cuts `input` at every `separator`.
inline std::vector<std::string_view> cut(std::string_view input, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = input.find(separator);
    parts.push_back(input.substr(0, end));
    if (end == std::string_view::npos) {
      return parts;
    }
    input.remove_prefix(end + 1);
  }
}

// One per file of this folder.
[[nodiscard]] Target config_target();
[[nodiscard]] Target control_target();
[[nodiscard]] Target dataset_target();
[[nodiscard]] Target documents_target();
[[nodiscard]] Target index_target();
[[nodiscard]] Target manifest_target();
[[nodiscard]] Target run_files_target();
[[nodiscard]] Target safetensors_target();
[[nodiscard]] Target shard_target();

}  // namespace train::fuzz
