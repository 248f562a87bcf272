#pragma once

#include <cstdint>
#include <string>

namespace train::configs {

// Meaning, unit and range of each member: its key in configs/fields/field_table.cpp.

/// [objective]. Each objective has some of these keys; the defaults hold unless objective_list.hpp
/// gives it another.
struct ObjectiveSection {
  std::string name = "pretrain";
  double label_smoothing = 0.0;

  std::string loss = "sigmoid";
  double beta = 0.1;
  double gamma_beta_ratio = 0.3;
  double discopop_tau = 0.05;
  double desirable_weight = 1.0;
  double undesirable_weight = 1.0;
  std::string reference = "cache";

  // Sequential unlearning: one layer after the other, from back to front.
  std::int64_t first_layer = -1;
  std::int64_t last_layer = 0;
  std::int64_t layer_stride = 4;
  std::int64_t steps_per_layer = 64;
  std::string retain_loss = "nll";
  std::string forget_loss = "random_targets";
  std::int64_t top_k = 100;
  double retain_coefficient = 20.0;
  double forget_coefficient = 5.0;
  bool ramp_retain_from_zero = false;
  double forget_layer_scale = 1.0;
  double l2sp_coefficient = 0.0;
  std::string gradient_join = "sum";
  std::string frozen_layers = "skip_update";
  bool maintain_unlearned = false;
  std::uint64_t target_seed = 0;
};

}  // namespace train::configs
