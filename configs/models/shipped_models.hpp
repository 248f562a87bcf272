#pragma once

#include <span>
#include <string_view>

namespace train::configs {

/// Shape of a published model: a file of configs/models/, compiled into the program.
struct ShippedModel {
  std::string_view name;         ///< "llama-3.2-1b".
  std::string_view config_json;  ///< Text of its config.json.
};

/// All shipped shapes, sorted by name.
[[nodiscard]] std::span<const ShippedModel> shipped_models();

}  // namespace train::configs
