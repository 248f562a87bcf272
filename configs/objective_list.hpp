#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "configs/fields/option_key.hpp"

namespace train::configs {

// Keys of each objective's section besides its name. Objectives may share a list.

inline constexpr std::array<OptionKey, 0> kPretrainKeys = {};

inline constexpr auto kSftKeys = std::to_array<OptionKey>({{"label_smoothing", 0.0}});

inline constexpr auto kDpoKeys =
    std::to_array<OptionKey>({{"loss", std::string_view("sigmoid")},
                              {"beta", 0.1},
                              {"label_smoothing", 0.0},
                              {"discopop_tau", 0.05},
                              {"reference", std::string_view("cache")}});
inline constexpr auto kDpoNormKeys = std::to_array<OptionKey>(
    {{"beta", 5.0}, {"label_smoothing", 0.0}, {"reference", std::string_view("cache")}});
inline constexpr auto kSimpoKeys =
    std::to_array<OptionKey>({{"beta", 2.0}, {"gamma_beta_ratio", 0.3}});
inline constexpr auto kWpoKeys = std::to_array<OptionKey>(
    {{"beta", 0.1}, {"label_smoothing", 0.0}, {"reference", std::string_view("cache")}});
inline constexpr auto kOrpoKeys = std::to_array<OptionKey>({{"beta", 0.1}});
inline constexpr auto kKtoKeys =
    std::to_array<OptionKey>({{"beta", 0.1},
                              {"desirable_weight", 1.0},
                              {"undesirable_weight", 1.0},
                              {"reference", std::string_view("cache")}});

inline constexpr auto kUnlearningKeys =
    std::to_array<OptionKey>({{"first_layer", std::int64_t{-1}},
                              {"last_layer", std::int64_t{0}},
                              {"layer_stride", std::int64_t{4}},
                              {"steps_per_layer", std::int64_t{64}},
                              {"retain_loss", std::string_view("nll")},
                              {"forget_loss", std::string_view("random_targets")},
                              {"beta", 0.1},
                              {"top_k", std::int64_t{100}},
                              {"retain_coefficient", 20.0},
                              {"forget_coefficient", 5.0},
                              {"ramp_retain_from_zero", false},
                              {"l2sp_coefficient", 0.0},
                              {"forget_layer_scale", 1.0},
                              {"gradient_join", std::string_view("sum")},
                              {"frozen_layers", std::string_view("skip_update")},
                              {"maintain_unlearned", false},
                              {"target_seed", std::uint64_t{0}}});

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
/// calls make_<identifier>() (engine/objective/registry.hpp).
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
