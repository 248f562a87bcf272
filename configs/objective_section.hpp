#pragma once

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
};

}  // namespace train::configs
