#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "configs/run_config.hpp"
#include "configs/validate_config.hpp"

namespace train::configs {

/// Keys that nothing reads under some values of others, and that are noted for it. (Keys of other
/// optimizers and objectives, and some more in rules/, are refused.)
struct IdleKeys {
  std::string_view keys;           ///< Joined by '|'.
  bool (*idle)(const RunConfig&);  ///< True: nothing reads them.
  std::string_view without;        ///< Names what they need, after "has no effect": "without ...".
};

[[nodiscard]] std::span<const IdleKeys> idle_key_table();

/// A note, beginning with its place, for each given key whose value is not the default and has no
/// effect in this configuration. REQUIRES: it is valid.
[[nodiscard]] std::vector<std::string> idle_key_notes(const RunConfig& config,
                                                      const KeyPositions& places);

}  // namespace train::configs
