#include "engine/model/balance.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "engine/model/experts/experts_block.hpp"

namespace train::engine {
namespace {

using kernels::BalanceKind;
using kernels::BalanceScope;
using kernels::BalanceTerm;

constexpr std::array kKinds = {BalanceKind::hf, BalanceKind::switch_loss, BalanceKind::z};
constexpr std::array kScopes = {BalanceScope::lane, BalanceScope::sequence,
                                BalanceScope::previous_step, BalanceScope::step};

/// The value that name_of() calls `word`.
template <class Kind, std::size_t N>
std::optional<Kind> named(const std::array<Kind, N>& values, std::string_view word) {
  const auto found = std::find_if(values.begin(), values.end(),
                                  [&](Kind value) { return name_of(value) == word; });
  return found == values.end() ? std::nullopt : std::optional(*found);
}

Error refused(const std::string& text, std::string_view why) {
  return user_error(fmt::format("model.balance has \"{}\": {}", text, why));
}

std::optional<float> coefficient_of(std::string_view text) {
  float value = 0.0F;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool all = read.ec == std::errc() && read.ptr == text.data() + text.size();
  return all && std::isfinite(value) && value > 0.0F ? std::optional(value) : std::nullopt;
}

Result<BalanceTerm> parse_term(const std::string& text) {
  const std::string_view whole = text;
  const std::size_t first = whole.find(':');
  const std::size_t last = whole.rfind(':');
  const auto kind = named(kKinds, whole.substr(0, first));
  const std::string_view scope_word =
      first == last ? name_of(BalanceScope::lane) : whole.substr(first + 1, last - first - 1);
  const auto scope = named(kScopes, scope_word);
  if (!kind || !scope || first == std::string_view::npos) {
    return refused(text,
                   "give KIND:COEFFICIENT or KIND:SCOPE:COEFFICIENT, with a kind of hf, switch or "
                   "z, and a scope of lane, sequence, previous_step or step");
  }
  const auto coeff = coefficient_of(whole.substr(last + 1));
  if (!coeff) {
    return refused(text, "its coefficient must be a number above 0; leave the term out for none");
  }
  const BalanceTerm term{.kind = *kind, .scope = *scope, .coeff = *coeff};
  if (term.kind != BalanceKind::switch_loss && term.scope != BalanceScope::lane) {
    return refused(
        text, fmt::format("{} has the scope lane only; use switch for others", name_of(*kind)));
  }
  return term;
}

bool alike(const BalanceTerm& one, const BalanceTerm& other) {
  return one.kind == other.kind && one.scope == other.scope;
}

}  // namespace

Result<std::vector<BalanceTerm>> parse_balance(std::span<const std::string> texts) {
  std::vector<BalanceTerm> terms;
  if (texts.size() == 1 && texts.front() == "none") {
    return terms;
  }
  bool pooled = false, by_sequence = false;
  for (const std::string& text : texts) {
    if (text == "none") {
      return refused(text, "it stands alone, for no loss; leave it out beside others");
    }
    const auto term = TRAIN_TRY(parse_term(text));
    if (std::any_of(terms.begin(), terms.end(),
                    [&](const BalanceTerm& other) { return alike(term, other); })) {
      return refused(text, "the list already has a coefficient for this term; keep one of them");
    }
    pooled = pooled || term.kind == BalanceKind::hf;
    by_sequence = by_sequence || term.scope == BalanceScope::sequence;
    if (pooled && by_sequence) {
      return refused(text,
                     "hf pools all rows of a lane, and does not go with terms by sequences; use "
                     "switch:lane");
    }
    terms.push_back(term);
  }
  if (terms.size() > kernels::kMostBalanceTerms) {
    return user_error(fmt::format("model.balance has {} terms: at most {} are possible",
                                  terms.size(), kernels::kMostBalanceTerms));
  }
  return terms;
}

namespace {

/// Changes every layer of experts; returns their number.
template <class Change>
std::int64_t change_experts(ModelSpec& model, const Change& change) {
  std::int64_t count = 0;
  for (LayerSpec& layer : model.layers) {
    for (BranchSpec& branch : layer.branches) {
      if (const auto* spec = dynamic_cast<const ExpertsSpec*>(branch.block.get())) {
        auto changed = std::make_shared<ExpertsSpec>(*spec);
        change(*changed);
        branch.block = std::move(changed);
        ++count;
      }
    }
  }
  return count;
}

}  // namespace

Status set_balance(const std::vector<BalanceTerm>& terms, ModelSpec& model) {
  std::string mistake;
  const std::int64_t layers = change_experts(model, [&](ExpertsSpec& experts) {
    experts.balance = terms;
    mistake = mistake.empty() ? experts.mistake() : mistake;
  });
  if (!mistake.empty()) {
    return user_error(fmt::format("model.balance: {}", mistake));
  }
  if (layers == 0 && !terms.empty()) {
    return user_error("model.balance has terms, but the model has no experts: leave it out");
  }
  return {};
}

Status set_choice_bias_rate(double rate, ModelSpec& model) {
  bool corrected = false;
  change_experts(model, [&](ExpertsSpec& experts) {
    if (!experts.choice_bias.empty()) {
      experts.choice_bias_rate = rate;
      corrected = true;
    }
  });
  if (rate != 0.0 && !corrected) {
    return user_error(
        fmt::format("model.router_bias_rate is {}, but the model's routers have no bias that "
                    "corrects their choice: leave it out; model.balance has losses for experts",
                    rate));
  }
  return {};
}

}  // namespace train::engine
