#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "configs/fields/option_key.hpp"

namespace train::configs {

// Keys of each objective's section besides its name, with a default where it is not that of
// ObjectiveSection. Objectives may share a list.

inline constexpr std::array<OptionKey, 0> kPretrainKeys = {};

inline constexpr auto kSftKeys = std::to_array<OptionKey>({"label_smoothing"});

inline constexpr auto kDpoKeys =
    std::to_array<OptionKey>({"loss", "beta", "label_smoothing", "discopop_tau", "reference"});
inline constexpr auto kDpoNormKeys =
    std::to_array<OptionKey>({OptionKey("beta", 5.0), "label_smoothing", "reference"});
inline constexpr auto kSimpoKeys =
    std::to_array<OptionKey>({OptionKey("beta", 2.0), "gamma_beta_ratio"});
inline constexpr auto kWpoKeys = std::to_array<OptionKey>({"beta", "label_smoothing", "reference"});
inline constexpr auto kOrpoKeys = std::to_array<OptionKey>({"beta"});
inline constexpr auto kKtoKeys =
    std::to_array<OptionKey>({"beta", "desirable_weight", "undesirable_weight", "reference"});

inline constexpr auto kUnlearningKeys = std::to_array<OptionKey>(
    {"first_layer", "last_layer", "layer_stride", "steps_per_layer", "retain_loss", "forget_loss",
     "beta", "top_k", "retain_coefficient", "forget_coefficient", "ramp_retain_from_zero",
     "l2sp_coefficient", "forget_layer_scale", "gradient_join", "frozen_layers",
     "maintain_unlearned", "target_seed"});

/// Form of an objective's loss, on which rules between keys and messages depend.
enum class ObjectiveForm : std::uint8_t {
  targets,     ///< Over each target of a row: a cross-entropy, with a perplexity and a z-loss.
  answers,     ///< Over answers: pairs or labelled examples.
  two_passes,  ///< Two passes per step, over data.dir and data.forget_dir.
};

/// Values of objective.loss, joined by '|'.
inline constexpr std::string_view kPairLosses =
    "sigmoid|hinge|ipo|robust|exo_pair|nca_pair|bco_pair|sppo_hard|apo_zero|apo_down|discopop";

/// All objectives, one per line: identifier, name in objective.name, form, keys. Generated from
/// this list: the keys allowed in a run file (named_options.hpp) and the engine's registry, which
/// calls make_<identifier>() (engine/objective/registry.hpp). A macro, because no constexpr table
/// declares a function.
#define TRAIN_OBJECTIVES(OBJECTIVE)                       \
  OBJECTIVE(pretrain, "pretrain", targets, kPretrainKeys) \
  OBJECTIVE(sft, "sft", targets, kSftKeys)                \
  OBJECTIVE(dpo, "dpo", answers, kDpoKeys)                \
  OBJECTIVE(dpo_norm, "dpo_norm", answers, kDpoNormKeys)  \
  OBJECTIVE(simpo, "simpo", answers, kSimpoKeys)          \
  OBJECTIVE(wpo, "wpo", answers, kWpoKeys)                \
  OBJECTIVE(orpo, "orpo", answers, kOrpoKeys)             \
  OBJECTIVE(kto, "kto", answers, kKtoKeys)                \
  OBJECTIVE(sequential_unlearning, "sequential_unlearning", two_passes, kUnlearningKeys)

}  // namespace train::configs
