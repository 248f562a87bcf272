#include "configs/fields/named_options.hpp"
#include "configs/rules/rules.hpp"

namespace train::configs {

/// Checks which keys of [objective] fit a pair loss, and which fit no answers.
void check_objective(const RunConfig& config, Rules& rules) {
  const ObjectiveSection& objective = config.objective;
  const ObjectiveForm form = objective_form(objective.name);
  const bool two_streams = form == ObjectiveForm::two_passes;
  const bool no_rows = two_streams && objective.forget_loss == "max_update";
  rules.refuse_if((!two_streams || no_rows) && !config.data.forget_dir.empty(), "data.forget_dir",
                  "has no effect with objective.name = \"{}\"{}; leave it out", objective.name,
                  no_rows ? " with forget_loss = \"max_update\"" : "");
  rules.refuse_if(form != ObjectiveForm::targets && config.model.z_loss_coeff > 0.0,
                  "model.z_loss_coeff",
                  "is {}, but objective.name = \"{}\" has no z-loss; leave it out",
                  config.model.z_loss_coeff, objective.name);
  const auto belongs = [&](bool given, const char* key, const char* loss) {
    rules.refuse_if(two_streams && given && objective.forget_loss != loss, key,
                    "belongs to objective.forget_loss = \"{}\"; leave it out", loss);
  };
  belongs(objective.beta != ObjectiveSection{}.beta, "objective.beta", "npo");
  belongs(objective.top_k != ObjectiveSection{}.top_k, "objective.top_k", "top_k_entropy");
  if (objective.name != "dpo") {
    return;
  }
  const std::string& loss = objective.loss;
  const bool smooths = loss == "sigmoid" || loss == "robust" || loss == "exo_pair";
  rules.refuse_if(objective.label_smoothing > 0.0 && !smooths, "objective.label_smoothing",
                  "is {}, but objective.loss = \"{}\" has none; leave it out, or use \"sigmoid\", "
                  "\"robust\" or \"exo_pair\"",
                  objective.label_smoothing, loss);
  rules.refuse_if(loss == "robust" && objective.label_smoothing >= 0.5, "objective.label_smoothing",
                  "is {}; objective.loss = \"robust\" needs less than 0.5",
                  objective.label_smoothing);
  rules.refuse_if(loss == "exo_pair" && objective.label_smoothing == 0.0,
                  "objective.label_smoothing",
                  "is 0, but objective.loss = \"exo_pair\" needs more; try 0.001");
  rules.refuse_if(loss != "discopop" && objective.discopop_tau != ObjectiveSection{}.discopop_tau,
                  "objective.discopop_tau",
                  "belongs to objective.loss = \"discopop\", not \"{}\"; leave it out", loss);
}

}  // namespace train::configs
