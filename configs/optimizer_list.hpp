#pragma once

#include <array>
#include <cstdint>

#include "configs/fields/option_key.hpp"

namespace train::configs {

// Keys of each optimizer's section. Optimizers may share a list.

inline constexpr auto kAdamWKeys = std::to_array<OptionKey>({{"lr", 1e-3},
                                                             {"beta1", 0.9},
                                                             {"beta2", 0.95},
                                                             {"eps", 1e-8},
                                                             {"weight_decay", 0.1},
                                                             {"grad_clip", 1.0}});

inline constexpr auto kAdamWDecayingKeys =
    std::to_array<OptionKey>({{"lr", 1e-3},
                              {"beta1", 0.9},
                              {"beta2", 0.999},
                              {"eps", 1e-8},
                              {"weight_decay", 0.1},
                              {"grad_clip", 1.0},
                              {"wd_decaying", true},
                              {"wd_ts", 1.0},
                              {"wd_coupling", "schedule_only"}});

inline constexpr auto kAdanaKeys = std::to_array<OptionKey>({{"lr", 1e-3},
                                                             {"eps", 1e-8},
                                                             {"weight_decay", 0.1},
                                                             {"grad_clip", 1.0},
                                                             {"delta", 8.0},
                                                             {"kappa", 0.85},
                                                             {"gamma_3_factor", 1.0},
                                                             {"wd_decaying", true},
                                                             {"wd_ts", 1.0},
                                                             {"wd_coupling", "schedule_only"}});

inline constexpr auto kDanaMk4Keys = std::to_array<OptionKey>({{"lr", 1e-3},
                                                               {"eps", 1e-8},
                                                               {"weight_decay", 0.1},
                                                               {"grad_clip", 1.0},
                                                               {"delta", 8.0},
                                                               {"kappa", 0.85},
                                                               {"clipsnr", 2.0},
                                                               {"gamma_3_factor", 1.0},
                                                               {"wd_decaying", true},
                                                               {"wd_ts", 1.0},
                                                               {"wd_coupling", "schedule_only"}});

inline constexpr auto kAdemamixKeys = std::to_array<OptionKey>({{"lr", 1e-3},
                                                                {"beta1", 0.9},
                                                                {"beta2", 0.999},
                                                                {"eps", 1e-8},
                                                                {"weight_decay", 0.1},
                                                                {"grad_clip", 1.0},
                                                                {"delta", 8.0},
                                                                {"kappa", 0.85},
                                                                {"gamma_3_factor", 1.0},
                                                                {"beta3", 0.0},
                                                                {"alpha", 0.0},
                                                                {"beta3_warmup", std::int64_t{0}},
                                                                {"alpha_warmup", std::int64_t{0}}});

inline constexpr auto kAdemamixDecayingKeys =
    std::to_array<OptionKey>({{"lr", 1e-3},
                              {"beta1", 0.9},
                              {"beta2", 0.999},
                              {"eps", 1e-8},
                              {"weight_decay", 0.1},
                              {"grad_clip", 1.0},
                              {"delta", 8.0},
                              {"kappa", 0.85},
                              {"gamma_3_factor", 1.0},
                              {"wd_decaying", true},
                              {"wd_ts", 1.0},
                              {"wd_coupling", "schedule_only"},
                              {"beta3", 0.0},
                              {"alpha", 0.0},
                              {"beta3_warmup", std::int64_t{0}},
                              {"alpha_warmup", std::int64_t{0}}});

inline constexpr auto kMuonKeys = std::to_array<OptionKey>({{"lr", 1e-3},
                                                            {"beta1", 0.9},
                                                            {"beta2", 0.95},
                                                            {"eps", 1e-8},
                                                            {"weight_decay", 0.01},
                                                            {"grad_clip", 1.0},
                                                            {"momentum", 0.95},
                                                            {"nesterov", true},
                                                            {"ns_steps", std::int64_t{5}},
                                                            {"matched_rms", 0.2}});

inline constexpr auto kDMuonKeys = std::to_array<OptionKey>({{"lr", 1e-3},
                                                             {"beta1", 0.8},
                                                             {"beta2", 0.999},
                                                             {"eps", 1e-8},
                                                             {"weight_decay", 0.1},
                                                             {"grad_clip", 1.0},
                                                             {"momentum", 0.95},
                                                             {"nesterov", true},
                                                             {"ns_steps", std::int64_t{5}},
                                                             {"matched_rms", 0.2}});

/// All optimizers, one per line: identifier, name in optimizer.name, keys. Generated from this
/// list: the keys allowed in a run file (optimizer_table.hpp) and the engine's registry, which
/// calls make_<identifier>() (engine/optimizer/registry.hpp).
#define TRAIN_OPTIMIZERS(OPTIMIZER)                                              \
  OPTIMIZER(adamw, "adamw", kAdamWKeys)                                          \
  OPTIMIZER(adamw_decaying_wd, "adamw-decaying-wd", kAdamWDecayingKeys)          \
  OPTIMIZER(adana, "adana", kAdanaKeys)                                          \
  OPTIMIZER(dana_mk4, "dana-mk4", kDanaMk4Keys)                                  \
  OPTIMIZER(dana_star, "dana-star", kAdanaKeys)                                  \
  OPTIMIZER(dana_star_mk4, "dana-star-mk4", kDanaMk4Keys)                        \
  OPTIMIZER(ademamix, "ademamix", kAdemamixKeys)                                 \
  OPTIMIZER(ademamix_decaying_wd, "ademamix-decaying-wd", kAdemamixDecayingKeys) \
  OPTIMIZER(muon, "muon", kMuonKeys)                                             \
  OPTIMIZER(d_muon, "d-muon", kDMuonKeys)

}  // namespace train::configs
