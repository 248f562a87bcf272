#pragma once

#include <cstdint>
#include <string>

namespace train::configs {

/// [objective]. Each objective has some of these keys (objective_list.hpp); values of the others
/// are read by nobody.
struct ObjectiveSection {
  std::string name = "pretrain";  ///< One of objective_list.hpp.
  double label_smoothing = 0.0;   ///< Of a target, or of pairs whose label is wrong.

  std::string loss = "sigmoid";     ///< Of pairs: one of objective_list.hpp's.
  double beta = 0.1;                ///< What log-probabilities are multiplied by as rewards.
  double gamma_beta_ratio = 0.3;    ///< Margin over beta.
  double discopop_tau = 0.05;       ///< Temperature of DiscoPOP's mixture.
  double desirable_weight = 1.0;    ///< KTO: of wanted answers,
  double undesirable_weight = 1.0;  ///< and of unwanted ones.
  std::string reference = "cache";  ///< Where the reference's log-probabilities come from.

  // Sequential unlearning: a layer after the other, from back to front.
  std::int64_t first_layer = -1;  ///< -1: the model's last.
  std::int64_t last_layer = 0;    ///< None below it is trained.
  std::int64_t layer_stride = 4;
  std::int64_t steps_per_layer = 64;
  std::string retain_loss = "nll";             ///< Or "kl", "l2".
  std::string forget_loss = "random_targets";  ///< Or "max_entropy", "top_k_entropy", "npo".
  std::int64_t top_k = 100;                    ///< Of top_k_entropy.
  double retain_coefficient = 20.0;
  double forget_coefficient = 5.0;
  bool ramp_retain_from_zero = false;
  double forget_layer_scale = 1.0;
  double l2sp_coefficient = 0.0;  ///< Of the squares of trained weights' distances from the first.
  std::string gradient_join = "sum";          ///< Or "same_sign", "same_sign_forget".
  std::string frozen_layers = "skip_update";  ///< Or "zero".
  bool maintain_unlearned = false;            ///< Train the layers of earlier phases, too.
  std::uint64_t target_seed = 0;              ///< Of drawn targets.
};

}  // namespace train::configs
