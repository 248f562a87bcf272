#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace train::engine {

/// Treatment of a config.json key that an architecture does not read.
enum class KeyUse : std::uint8_t {
  refused,    ///< It changes the function, unless its value is ConfigKey::neutral or null.
  dropout,    ///< Affects training alone: a run reports that it trains without.
  no_effect,  ///< No effect on the function of a causal language model.
};

/// A key that is known and not read. What an architecture reads is in ModelArchitecture::keys,
/// which goes before this; a key that is in neither is named in ModelSpec::unread_keys.
struct ConfigKey {
  std::string_view name;
  KeyUse use;
  std::string_view neutral = {};  ///< refused: the value that changes nothing, as JSON.
  std::string_view why = {};      ///< refused: the cause and a way out. no_effect: what it is for.
};

/// All of them, in groups.
[[nodiscard]] std::span<const ConfigKey> config_keys();
/// nullptr if it is unknown.
[[nodiscard]] const ConfigKey* find_config_key(std::string_view name);

/// The table of docs/models.md: what every architecture reads, with the value that it takes where
/// the file has none, and what becomes of the other keys. Ends with a line break.
[[nodiscard]] std::string describe_config_keys_markdown();

}  // namespace train::engine
