#pragma once

#include <cstdint>
#include <string>

namespace train::configs {

/// [objective]. Each objective has some of these keys (objective_list.hpp); values of the others
/// are ignored.
struct ObjectiveSection {
  std::string name = "pretrain";  ///< One of objective_list.hpp.
  double label_smoothing = 0.0;   ///< For targets; for pairs: the assumed fraction of flipped
                                  ///< labels.

  std::string loss = "sigmoid";     ///< For pairs: one of kPairLosses.
  double beta = 0.1;                ///< β of DPO/KTO/NPO, λ of ORPO.
  double gamma_beta_ratio = 0.3;    ///< Margin γ over β.
  double discopop_tau = 0.05;       ///< Temperature of DiscoPOP's mixture.
  double desirable_weight = 1.0;    ///< KTO: weight of desirable answers,
  double undesirable_weight = 1.0;  ///< and of undesirable ones.
  std::string reference = "cache";  ///< Source of the reference's log-probabilities.

  // Sequential unlearning: one layer after the other, from back to front.
  std::int64_t first_layer = -1;  ///< -1: the model's last.
  std::int64_t last_layer = 0;    ///< No layer below it is trained.
  std::int64_t layer_stride = 4;
  std::int64_t steps_per_layer = 64;
  std::string retain_loss = "nll";             ///< "nll", "kl" or "l2".
  std::string forget_loss = "random_targets";  ///< See objective_fields.hpp.
  std::int64_t top_k = 100;                    ///< For top_k_entropy.
  double retain_coefficient = 20.0;
  double forget_coefficient = 5.0;
  bool ramp_retain_from_zero = false;
  double forget_layer_scale = 1.0;
  double l2sp_coefficient = 0.0;  ///< Factor of the squared distances of trained weights from the
                                  ///< first ones.
  std::string gradient_join = "sum";          ///< "sum", "same_sign", "same_sign_forget".
  std::string frozen_layers = "skip_update";  ///< "skip_update" or "zero".
  bool maintain_unlearned = false;            ///< Also train the layers of earlier phases.
  std::uint64_t target_seed = 0;              ///< Seed of random targets.
};

}  // namespace train::configs
