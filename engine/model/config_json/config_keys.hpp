#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace train::engine {

/// Treatment of a config.json key that an architecture does not read.
enum class KeyUse : std::uint8_t {
  refused,    ///< It changes the function, unless its value is ConfigKeys::neutral or null.
  dropout,    ///< Affects training alone: a run reports that it trains without.
  no_effect,  ///< No effect on the function of a causal language model.
};

/// Keys that are known, not read and treated alike. What an architecture reads is in
/// ModelArchitecture::keys, which goes before this; a key that is in neither is named in
/// ModelSpec::unread_keys.
struct ConfigKeys {
  std::string_view names;  ///< With a space between.
  KeyUse use;
  std::string_view why = {};  ///< refused: the cause and a way out. no_effect: what they are for.
  std::string_view neutral = {};  ///< refused: the value that changes nothing, as JSON.
};

/// All of them, in the order of the table of docs/models.md.
[[nodiscard]] std::span<const ConfigKeys> config_keys();
/// The keys that `name` is one of; nullptr if it is unknown.
[[nodiscard]] const ConfigKeys* find_config_key(std::string_view name);

}  // namespace train::engine
