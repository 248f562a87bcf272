#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/model/spec.hpp"
#include "kernels/experts/balance_terms.hpp"

namespace train::engine {

/// The terms of model.balance, each "KIND:COEFF" or "KIND:SCOPE:COEFF",
/// "switch:previous_step:0.01";
/// {"none"}: no term. Kinds are hf, switch and z, scopes lane (the default), sequence,
/// previous_step and step: kernels::BalanceParams has the formulas.
/// Errors (user): other words, a coefficient that is not above 0, more terms than possible, one
/// twice, a scope that its kind does not have, hf beside a term by sequences.
[[nodiscard]] Result<std::vector<kernels::BalanceTerm>> parse_balance(
    std::span<const std::string> texts);

/// Gives `terms` to every layer of experts, in place of its own.
/// Errors (user): the model has no experts.
[[nodiscard]] Status set_balance(const std::vector<kernels::BalanceTerm>& terms, ModelSpec& model);

/// Gives every layer whose choice of experts a bias corrects model.router_bias_rate
/// (ExpertsSpec::choice_bias_rate). Errors (user): `rate` is not 0, and there is no such layer.
[[nodiscard]] Status set_choice_bias_rate(double rate, ModelSpec& model);

}  // namespace train::engine
