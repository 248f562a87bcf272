#pragma once

#include <array>

#include "configs/option_key.hpp"

namespace train::configs {

// What each objective's section may say besides its name. Objectives may share one.

inline constexpr std::array<OptionKey, 0> kPretrainKeys = {};

inline constexpr auto kSftKeys = std::to_array<OptionKey>({{"label_smoothing", 0.0}});

/// Every objective, a line each: an identifier, its name in objective.name, its keys. From this
/// list are made what a run file may say (named_options.hpp) and the engine's registry, where
/// make_<identifier>() is what makes it (engine/objective/registry.hpp).
#define TRAIN_OBJECTIVES(OBJECTIVE)              \
  OBJECTIVE(pretrain, "pretrain", kPretrainKeys) \
  OBJECTIVE(sft, "sft", kSftKeys)

}  // namespace train::configs
