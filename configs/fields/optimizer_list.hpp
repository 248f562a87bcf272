#pragma once

#include <array>

#include "configs/fields/option_key.hpp"

namespace train::configs {

// Keys of each optimizer's section, with a default where it is not that of OptimizerSection.
// Optimizers may share a list.

inline constexpr auto kAdamWKeys =
    std::to_array<OptionKey>({"lr", "beta1", "beta2", "eps", "weight_decay", "grad_clip"});

inline constexpr auto kAdamWDecayingKeys =
    std::to_array<OptionKey>({"lr", "beta1", OptionKey("beta2", 0.999), "eps", "weight_decay",
                              "grad_clip", "wd_decaying", "wd_ts", "wd_coupling"});

inline constexpr auto kAdanaKeys =
    std::to_array<OptionKey>({"lr", "eps", "weight_decay", "grad_clip", "delta", "kappa",
                              "gamma_3_factor", "wd_decaying", "wd_ts", "wd_coupling"});

inline constexpr auto kDanaMk4Keys =
    std::to_array<OptionKey>({"lr", "eps", "weight_decay", "grad_clip", "delta", "kappa", "clipsnr",
                              "gamma_3_factor", "wd_decaying", "wd_ts", "wd_coupling"});

inline constexpr auto kAdemamixKeys = std::to_array<OptionKey>(
    {"lr", "beta1", OptionKey("beta2", 0.999), "eps", "weight_decay", "grad_clip", "delta", "kappa",
     "gamma_3_factor", "beta3", "alpha", "beta3_warmup", "alpha_warmup"});

inline constexpr auto kAdemamixDecayingKeys = std::to_array<OptionKey>(
    {"lr", "beta1", OptionKey("beta2", 0.999), "eps", "weight_decay", "grad_clip", "delta", "kappa",
     "gamma_3_factor", "wd_decaying", "wd_ts", "wd_coupling", "beta3", "alpha", "beta3_warmup",
     "alpha_warmup"});

inline constexpr auto kMuonKeys =
    std::to_array<OptionKey>({"lr", "beta1", "beta2", "eps", OptionKey("weight_decay", 0.01),
                              "grad_clip", "momentum", "nesterov", "ns_steps", "matched_rms"});

inline constexpr auto kDMuonKeys = std::to_array<OptionKey>(
    {"lr", OptionKey("beta1", 0.8), OptionKey("beta2", 0.999), "eps", "weight_decay", "grad_clip",
     "momentum", "nesterov", "ns_steps", "matched_rms"});

/// All optimizers, one per line: identifier, name in optimizer.name, keys. Generated from this
/// list: the keys allowed in a run file (optimizer_table.hpp) and the engine's registry, which
/// calls make_<identifier>() (engine/optimizer/registry.hpp). A macro, because no constexpr table
/// declares a function.
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
