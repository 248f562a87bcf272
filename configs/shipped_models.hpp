#pragma once

#include <span>
#include <string_view>

namespace train::configs {

/// The shape of a published model: a file of configs/models/, part of the program.
struct ShippedModel {
  std::string_view name;         ///< "llama-3.2-1b".
  std::string_view config_json;  ///< As its config.json says it.
};

/// All of them, by name, rising.
[[nodiscard]] std::span<const ShippedModel> shipped_models();

}  // namespace train::configs
