#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace train::engine {

/// A sequence of a pair: sums over its trained targets, in row order.
struct SequenceLogProbs {
  double policy = 0.0;     ///< log pi(y).
  double reference = 0.0;  ///< log pi_ref(y).
  double tokens = 1.0;     ///< Trained targets; at least 1.
  /// WPO alone: mean over the targets of log pi(y_t) - log sum_v p_v^2.
  double certainty = 0.0;

  /// Delta of the formulas.
  [[nodiscard]] double ratio() const { return policy - reference; }
  [[nodiscard]] double mean() const { return policy / tokens; }
  [[nodiscard]] double mean_ratio() const { return ratio() / tokens; }
};

struct PairLogProbs {
  SequenceLogProbs chosen = {};
  SequenceLogProbs rejected = {};
  /// ORPO alone: the chosen conversation with its prompt.
  SequenceLogProbs chosen_with_prompt = {};
};

struct PreferenceOptions {
  double beta = 0.1;
  double label_smoothing = 0.0;     ///< Share of pairs whose label is wrong.
  double gamma_beta_ratio = 0.3;    ///< SimPO: margin over beta.
  double discopop_tau = 0.05;       ///< DiscoPOP: temperature of the mixture.
  double desirable_weight = 1.0;    ///< KTO.
  double undesirable_weight = 1.0;  ///< KTO.
};

/// The loss of a pair, and its derivatives with respect to the log-probabilities of the policy:
/// what each trained row of the sequence is weighted with, with the opposite sign, in the second
/// pass (a row's own loss is -log p).
struct PairLoss {
  double loss = 0.0;
  double by_chosen = 0.0;
  double by_rejected = 0.0;
  double by_chosen_with_prompt = 0.0;
};

/// A loss of pairs. With D the ratio of a sequence, n its tokens, m its mean, s the logistic
/// function, b the options' beta, e their label smoothing, u = b (D_c - D_r):
///   sigmoid    -(1 - e) log s(u) - e log s(-u)                                  (DPO)
///   dpo_norm   the same with u = b (D_c / n_c - D_r / n_r)
///   robust     (-(1 - e) log s(u) + e log s(-u)) / (1 - 2 e), e < 1/2
///   hinge      max(0, 1 - u)                                                    (SLiC)
///   ipo        (D_c / n_c - D_r / n_r - 1 / (2 b))^2
///   simpo      -log s(b (m_c - m_r - gamma_beta_ratio))
///   wpo        exp(certainty_c + certainty_r) sigmoid, the factor without derivative
///   orpo       -m of chosen_with_prompt - b log s(o),
///              o = m_c - m_r - log(1 - exp m_c) + log(1 - exp m_r)
///   exo_pair   q log(q / (1 - e)) + (1 - q) log((1 - q) / e), q = s(u), 0 < e < 1
///   nca_pair   -log s(b D_c) - log s(-b D_c) / 2 - log s(-b D_r) / 2
///   bco_pair   -log s(b D_c) - log s(-b D_r)
///   sppo_hard  (D_c - 1 / (2 b))^2 + (D_r + 1 / (2 b))^2
///   apo_zero   1 - s(b D_c) + s(b D_r)
///   apo_down   s(b D_c) + 1 - s(u)
///   discopop   -(1 - k) log s(u) + k exp(-u), k = s(u / tau)
///   sft        -m_c
struct PreferenceLoss {
  std::string_view name;
  bool needs_reference = true;
  PairLoss (*of)(const PreferenceOptions& options, const PairLogProbs& pair) = nullptr;
  bool needs_certainty = false;  ///< SequenceLogProbs::certainty.
  bool needs_prompt = false;     ///< PairLogProbs::chosen_with_prompt.
};

/// All of them.
[[nodiscard]] std::span<const PreferenceLoss> preference_losses();
/// The loss, or null.
[[nodiscard]] const PreferenceLoss* find_preference_loss(std::string_view name);

/// KTO of one answer: loss and derivative by its log-probability (PairLoss::by_chosen). `ratio`: D;
/// `baseline`: z0, without derivative.
///   desirable    desirable_weight (1 - s(b (D - z0)))
///   undesirable  undesirable_weight (1 - s(b (z0 - D)))
[[nodiscard]] PairLoss kto_loss(const PreferenceOptions& options, bool desirable, double ratio,
                                double baseline);

/// Metrics of a pair; rewards/* and logps/* of a step are the means over its pairs.
struct PairMetrics {
  double log_prob_chosen = 0.0;    ///< log pi(y_c): logps/chosen.
  double log_prob_rejected = 0.0;  ///< log pi(y_r): logps/rejected.
  double reward_chosen = 0.0;      ///< b D_c: rewards/chosen.
  double reward_rejected = 0.0;    ///< b D_r: rewards/rejected.
  double margin = 0.0;             ///< Difference of the rewards: rewards/margins.
  double accuracy = 0.0;           ///< 1 where the chosen reward is the larger: rewards/accuracies.
};
[[nodiscard]] PairMetrics pair_metrics(const PreferenceOptions& options, const PairLogProbs& pair);
/// Metrics of a loss without a reference, with means over tokens: m and b m.
[[nodiscard]] PairMetrics mean_metrics(const PreferenceOptions& options, const PairLogProbs& pair);

}  // namespace train::engine
