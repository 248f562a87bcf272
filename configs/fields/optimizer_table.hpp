#pragma once

#include <span>
#include <string_view>

#include "configs/fields/named_options.hpp"
#include "configs/fields/optimizer_list.hpp"
#include "configs/run_config.hpp"
#include "configs/validate_config.hpp"

namespace train::configs {

/// Names in optimizer_list.hpp, joined by '|'.
#define TRAIN_OPTIMIZER_NAME(identifier, name, keys) "|" name
inline constexpr std::string_view kOptimizerNames =
    std::string_view(TRAIN_OPTIMIZERS(TRAIN_OPTIMIZER_NAME)).substr(1);
#undef TRAIN_OPTIMIZER_NAME

/// [optimizer], from optimizer_list.hpp.
[[nodiscard]] const NamedSection& optimizer_options();
[[nodiscard]] std::span<const NamedOptions> all_optimizers();

/// Entry of the optimizer, or null.
[[nodiscard]] const NamedOptions* find_optimizer(std::string_view name);

/// True if the optimizer has the key, such as "wd_ts". An unknown optimizer has every key.
[[nodiscard]] bool has_key(std::string_view optimizer, std::string_view key);

/// Section with the defaults of the optimizer `name`. REQUIRES: it exists.
[[nodiscard]] OptimizerSection default_optimizer(std::string_view name);

}  // namespace train::configs
