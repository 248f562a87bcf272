#include "engine/model/experts/experts_block.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/check.hpp"
#include "base/math/fixed_math.hpp"
#include "engine/model/experts/experts_rules.hpp"
#include "kernels/activation/activation.hpp"
#include "kernels/activation/bias.hpp"
#include "kernels/activation/elementwise.hpp"
#include "kernels/backend.hpp"
#include "kernels/experts/experts.hpp"

namespace train::engine {
namespace {

using kernels::BalanceKind;
using kernels::BalanceScope;
using kernels::BalanceTerm;
using kernels::RouterKind;

ExpertMaps::Options into_expert(const ExpertsSpec& spec, const ModelSpec& model, InitKind init) {
  const bool out = init == InitKind::residual_output;
  return {.inputs = out ? spec.hidden : model.embedding_dim,
          .outputs = out ? model.embedding_dim : spec.hidden,
          .init = init,
          .used_share = static_cast<double>(spec.slots) / static_cast<double>(spec.experts),
          .bias = spec.expert_bias};
}

LinearBlock::Options one_row_map(const ModelSpec& model, std::int64_t outputs) {
  return {.inputs = model.embedding_dim, .outputs = outputs, .router = true};
}

/// The counts of the step before, if a loss reads them.
std::optional<ParameterPlace> add_previous_load(const BlockContext& context,
                                                const ExpertsSpec& spec) {
  const auto reads = [](const BalanceTerm& term) {
    return term.scope == BalanceScope::previous_step;
  };
  if (std::ranges::none_of(spec.balance, reads)) {
    return std::nullopt;
  }
  const std::string router = context.prefix + spec.gate;
  return context.parameters.add({.name = router + ".previous_load",
                                 .shape = {spec.experts},
                                 .group = ParameterGroup::no_decay,
                                 .init = Initializer::constant(0.0),
                                 .exact = true,
                                 .tallied = true,
                                 .frozen_with = router + ".weight"});
}

/// The bias that corrects the choice, by the counts of each step.
std::optional<ParameterPlace> add_choice_bias(const BlockContext& context,
                                              const ExpertsSpec& spec) {
  if (spec.choice_bias.empty()) {
    return std::nullopt;
  }
  return context.parameters.add({.name = context.prefix + spec.choice_bias,
                                 .shape = {spec.experts},
                                 .group = ParameterGroup::no_decay,
                                 .init = Initializer::constant(0.0),
                                 .exact = true,
                                 .tallied = true,
                                 .balances = true,
                                 .tally_rate = spec.choice_bias_rate,
                                 .frozen_with = context.prefix + spec.gate + ".weight"});
}

/// The bias of a router's logits, which are fp32 whatever the type of the weights.
std::optional<ParameterPlace> add_gate_bias(const BlockContext& context, const ExpertsSpec& spec) {
  if (!spec.gate_bias) {
    return std::nullopt;
  }
  const std::string router = context.prefix + spec.gate;
  return context.parameters.add({.name = router + ".bias",
                                 .shape = {spec.experts},
                                 .group = ParameterGroup::no_decay,
                                 .init = Initializer::constant(0.0),
                                 .exact = true,
                                 .frozen_with = router + ".weight"});
}

bool is_sigmoid(RouterKind kind) {
  return kind == RouterKind::sigmoid || kind == RouterKind::sigmoid_normalised;
}

}  // namespace

std::string_view name_of(BalanceKind kind) {
  constexpr std::array<std::string_view, 3> kNames = {"hf", "switch", "z"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view name_of(BalanceScope scope) {
  constexpr std::array<std::string_view, 4> kNames = {"lane", "sequence", "previous_step", "step"};
  return kNames[static_cast<std::size_t>(scope)];
}

double uniform_value(const BalanceTerm& term, std::int64_t experts, std::int64_t slots) {
  switch (term.kind) {
    case BalanceKind::hf:
      return static_cast<double>(slots);
    case BalanceKind::switch_loss:
      return 1.0;
    case BalanceKind::z: {
      const double lse = fixed::log(static_cast<double>(experts));  // All logits are 0.
      return lse * lse;
    }
  }
  return 0.0;
}

std::unique_ptr<Block> ExpertsSpec::make(const BlockContext& context,
                                         const ModelSpec& model) const {
  return std::make_unique<ExpertsBlock>(context, *this, model);
}

std::string ExpertsSpec::sizes() const {
  return fmt::format("{} of {} experts {}{}", slots, experts, hidden,
                     shared.hidden > 0 ? fmt::format(" + {}", shared.hidden) : "");
}

std::string ExpertsSpec::describe() const {
  constexpr std::array<const char*, 4> kRouters = {"softmax", "softmax, normalised over the chosen",
                                                   "sigmoid",
                                                   "sigmoid, normalised over the chosen"};
  std::string text = fmt::format("{} of {} gated experts of {}, router {}", slots, experts, hidden,
                                 kRouters[static_cast<std::size_t>(router)]);
  text += groups > 1 ? fmt::format(", {} of {} groups", kept_groups, groups) : "";
  text += scale != 1.0F ? fmt::format(", weights x {:.6g}", scale) : "";
  text += choice_bias.empty()
              ? ""
              : fmt::format(", choice corrected by a bias that a step moves by {:.4g}",
                            choice_bias_rate);
  text += expert_bias ? ", biases" : "";
  if (shared.hidden > 0) {
    text +=
        fmt::format(", {} expert of {}", shared.gated ? "gated shared" : "shared", shared.hidden);
  }
  for (const BalanceTerm& term : balance) {
    text += fmt::format(", balance {} ({}) x {:.4g}, {:.4g} where uniform", name_of(term.kind),
                        name_of(term.scope), term.coeff, uniform_value(term, experts, slots));
  }
  return text;
}

std::string ExpertsSpec::mistake() const {
  if (slots < 1 || slots > experts) {
    return fmt::format("num_experts_per_tok is {} of {} experts", slots, experts);
  }
  if (groups < 1 || experts % groups != 0 || (groups > 1 && experts / groups < 2)) {
    return fmt::format(
        "n_group is {}: {} experts are not divided into as many groups of two or more", groups,
        experts);
  }
  if (kept_groups < 1 || kept_groups > groups) {
    return fmt::format("topk_group is {} of {} groups (n_group)", kept_groups, groups);
  }
  if (slots > experts / groups * kept_groups) {
    return fmt::format(
        "num_experts_per_tok is {}, but {} groups of {} (topk_group) have {} experts", slots,
        kept_groups, groups, experts / groups * kept_groups);
  }
  if (balance.size() > kernels::kMostBalanceTerms) {
    return fmt::format("{} balancing losses: at most {}", balance.size(),
                       kernels::kMostBalanceTerms);
  }
  bool pooled = false, by_document = false;
  for (const BalanceTerm& term : balance) {
    pooled = pooled || term.kind == BalanceKind::hf;
    if (term.kind == BalanceKind::hf && is_sigmoid(router)) {
      return "balancing loss hf is defined for a softmax router; this one has sigmoids: take "
             "switch";
    }
    by_document = by_document || term.scope == BalanceScope::sequence;
    if (term.kind != BalanceKind::switch_loss && term.scope != BalanceScope::lane) {
      return fmt::format("balancing loss {} has no scope {}; switch has", name_of(term.kind),
                         name_of(term.scope));
    }
  }
  return pooled && by_document ? "balancing losses hf and switch by sequence exclude each other"
                               : std::string();
}

std::vector<std::string> ExpertsSpec::sums() const {
  std::vector<std::string> names;
  names.reserve(balance.size() + static_cast<std::size_t>(experts));
  for (const BalanceTerm& term : balance) {
    names.push_back(fmt::format("balance/{}_{}", name_of(term.kind), name_of(term.scope)));
  }
  for (std::int64_t at = 0; at < experts; ++at) {
    names.push_back(fmt::format("expert_load/{}/{}", index, at));
  }
  if (!choice_bias.empty()) {
    names.push_back(fmt::format("expert_bias_min/{}", index));
    names.push_back(fmt::format("expert_bias_max/{}", index));
  }
  return names;
}

bool ExpertsSpec::reads_step_sums() const {
  return std::ranges::any_of(
      balance, [](const BalanceTerm& term) { return term.scope == BalanceScope::step; });
}

std::string ExpertsSpec::map_name(std::int64_t number, const std::string& name) const {
  return fmt::format(fmt::runtime(expert), number) + name;
}

std::vector<TensorRule> ExpertsSpec::tensor_rules(const ModelSpec& model, const BranchSpec& branch,
                                                  Dialect dialect) const {
  return experts_rules(*this, model, branch, dialect);
}

ExpertsBlock::ExpertsBlock(const BlockContext& context, const ExpertsSpec& spec,
                           const ModelSpec& model)
    : kernels_(&context.kernels),
      workspace_(&context.workspace),
      spec_(spec),
      embedding_dim_(model.embedding_dim),
      gate_(context, spec.gate, one_row_map(model, spec.experts)),
      gate_bias_(add_gate_bias(context, spec)),
      choice_bias_(add_choice_bias(context, spec)),
      previous_load_(add_previous_load(context, spec)),
      in_(context, into_expert(spec, model, InitKind::linear)),
      up_(context, into_expert(spec, model, InitKind::linear)),
      out_(context, into_expert(spec, model, InitKind::residual_output)) {
  const std::array maps = {std::pair(&in_, &spec.in), std::pair(&up_, &spec.up),
                           std::pair(&out_, &spec.out)};
  for (std::int64_t expert = 0; expert < spec.experts; ++expert) {
    for (const auto& [map, name] : maps) {
      map->add(context, spec.map_name(expert, *name));
    }
  }
  for (std::int64_t expert = 0; expert < spec.experts && context.lora.rank > 0; ++expert) {
    for (const auto& [map, name] : maps) {
      map->add_adapter(context, spec.map_name(expert, *name));
    }
  }
  reserve(context);
  if (spec.shared.hidden > 0) {
    reserve_shared(context, model);
  }
  first_sum_ = workspace_->add_sums(spec.sums().size());
}

void ExpertsBlock::reserve(const BlockContext& context) {
  Workspace& w = *workspace_;
  const std::int64_t rows = w.rows(), places = rows * spec_.slots;
  const auto kept = [&](const char* name, std::int64_t count) {
    return w.keep_always(context.prefix, name, count, Content::floats);
  };
  at_.logits = kept("router logits", rows * spec_.experts);
  at_.chosen = kept("chosen experts", places);
  at_.weights = kept("expert weights", places);
  at_.offsets = kept("expert offsets", spec_.experts + 1);
  at_.row_of = kept("rows of places", places);
  at_.slot_of = kept("slots of places", places);
  at_.places = kept("places", places);
  at_.hidden = w.keep(context.prefix, "expert hidden", places * spec_.hidden);
  at_.up_hidden = w.keep(context.prefix, "expert up_hidden", places * spec_.hidden);
  at_.activated = w.scratch(Phase::branch, "expert activated", places * spec_.hidden);
  at_.dactivated =
      w.scratch_backward(Phase::branch, "expert activated gradient", places * spec_.hidden);
  at_.gathered = w.scratch(Phase::branch, "expert rows", places * embedding_dim_);
  at_.parts = w.scratch(Phase::branch, "expert parts", places * embedding_dim_);
  at_.dweights =
      w.scratch_backward(Phase::branch, "expert weights' gradient", places, Content::floats);
  if (spec_.expert_bias) {
    at_.bias_dweights =
        w.scratch_backward(Phase::branch, "expert biases' weights", places, Content::floats);
  }
  at_.dlogits =
      w.scratch_backward(Phase::branch, "router gradient", rows * spec_.experts, Content::floats);
  if (w.dtype() != kernels::DType::f32) {
    at_.dlogits_rounded =
        w.scratch_backward(Phase::branch, "rounded router gradient", rows * spec_.experts);
  }
  for (ExpertMaps* map : {&in_, &up_, &out_}) {
    map->reserve(places);
  }
  reserve_balance(w);
}

void ExpertsBlock::reserve_balance(Workspace& w) {
  const std::int64_t rows = w.rows();
  const std::int64_t groups = has(BalanceScope::sequence) ? rows : 1;
  const auto scratch = [&](const char* name, std::int64_t count) {
    return w.scratch_backward(Phase::branch, name, count, Content::floats);
  };
  at_.groups = scratch("balanced groups", rows);
  at_.counts = scratch("expert counts", groups * spec_.experts);
  at_.probabilities = scratch("expert probabilities", groups * spec_.experts);
  at_.group_rows = scratch("rows of groups", groups);
  at_.z_squares = scratch("squared logsumexp", 2);
  at_.factors = scratch("balancing factors", groups * spec_.experts);
  at_.z_factor = scratch("z factor", 1);
  if (has(BalanceKind::hf)) {
    const std::int64_t all = spec_.layers * spec_.experts;
    at_.layer_counts = w.share_backward("expert counts of all layers", all, Content::floats);
    at_.layer_probabilities =
        w.share_backward("expert probabilities of all layers", all, Content::floats);
  }
}

void ExpertsBlock::reserve_shared(const BlockContext& context, const ModelSpec& model) {
  const SharedExpert& shared = spec_.shared;
  const MlpSpec mlp = [&] {
    MlpSpec made;
    made.hidden = shared.hidden;
    made.activation = spec_.activation;
    made.gated = true;
    made.in = shared.in;
    made.up = shared.up;
    made.out = shared.out;
    return made;
  }();
  shared_.emplace(Shared{.mlp = MlpBlock(context, mlp, model), .gate = std::nullopt});
  Workspace& w = *workspace_;
  const std::int64_t rows = w.rows();
  if (!shared.gated) {
    shared_->output = w.scratch(Phase::branch, "shared expert", rows * embedding_dim_);
    return;
  }
  shared_->gate.emplace(context, shared.gate, one_row_map(model, 1));
  const auto kept = [&](const char* name, std::int64_t count) {
    return w.keep_always(context.prefix, name, count, Content::floats);
  };
  shared_->logits = kept("shared gate logits", rows);
  shared_->weights = kept("shared gate", rows);
  shared_->places = kept("rows in order", rows);
  shared_->output =
      w.keep_always(context.prefix, "shared expert", rows * embedding_dim_, Content::elements);
  shared_->first = w.scratch(Phase::branch, "the one expert", 3 * rows + 2, Content::floats);
  shared_->gradient =
      w.scratch_backward(Phase::branch, "shared expert gradient", rows * embedding_dim_);
  shared_->dlogits =
      w.scratch_backward(Phase::branch, "shared gate gradient", 2 * rows, Content::floats);
  if (w.dtype() != kernels::DType::f32) {
    shared_->dlogits_rounded =
        w.scratch_backward(Phase::branch, "rounded shared gate gradient", rows);
  }
}

bool ExpertsBlock::has(BalanceKind kind) const {
  return std::ranges::any_of(spec_.balance, [kind](const auto& term) { return term.kind == kind; });
}

bool ExpertsBlock::has(BalanceScope scope) const {
  return std::ranges::any_of(spec_.balance,
                             [scope](const auto& term) { return term.scope == scope; });
}

std::int64_t ExpertsBlock::groups(const BlockCall& call) const {
  return has(BalanceScope::sequence) ? call.lane.rows() : 1;
}

ExpertRows ExpertsBlock::rows_of(const BlockCall& call) const {
  return {places(call), workspace_->indices_at(at_.offsets)};
}

void ExpertsBlock::route(const BlockCall& call, ConstElements x) const {
  const std::int64_t rows = call.lane.rows();
  float* logits = workspace_->floats_at(at_.logits);
  std::int32_t* chosen = workspace_->indices_at(at_.chosen);
  gate_.forward(call, x, logits, spec_.experts);
  if (gate_bias_) {
    kernels_->bias_add(call.stream, {.y = logits,
                                     .bias = exact_weights(call.weights, gate_bias_->offset),
                                     .rows = rows,
                                     .cols = spec_.experts,
                                     .stride = spec_.experts});
  }
  kernels_->router_forward(
      call.stream,
      {.kind = spec_.router,
       .logits = logits,
       .chosen = chosen,
       .weights = workspace_->floats_at(at_.weights),
       .rows = rows,
       .experts = spec_.experts,
       .slots = spec_.slots,
       .bias = choice_bias_ ? exact_weights(call.weights, choice_bias_->offset) : nullptr,
       .groups = spec_.groups,
       .kept_groups = spec_.kept_groups,
       .scale = spec_.scale});
  kernels_->expert_sort(call.stream, {.chosen = chosen,
                                      .offsets = workspace_->indices_at(at_.offsets),
                                      .row_of = workspace_->indices_at(at_.row_of),
                                      .slot_of = workspace_->indices_at(at_.slot_of),
                                      .places = workspace_->indices_at(at_.places),
                                      .rows = rows,
                                      .experts = spec_.experts,
                                      .slots = spec_.slots});
}

void ExpertsBlock::count_loads(const BlockCall& call) const {
  const Lane& lane = call.lane;
  std::int32_t* groups_of_rows = workspace_->indices_at(at_.groups);
  kernels_->router_groups(call.stream, {.positions = lane.positions,
                                        .targets = lane.targets,
                                        .groups = groups_of_rows,
                                        .sequences = lane.sequences,
                                        .seq_len = lane.seq_len,
                                        .by_document = has(BalanceScope::sequence)});
  const kernels::BalanceParams to = balance(call);
  kernels_->router_loads(
      call.stream,
      {.kind = spec_.router,
       .logits = workspace_->floats_at(at_.logits),
       .chosen = workspace_->indices_at(at_.chosen),
       .groups = groups_of_rows,
       .counts = const_cast<std::int32_t*>(to.counts),         // NOLINT: these are outputs here.
       .probabilities = const_cast<float*>(to.probabilities),  // NOLINT
       .group_rows = workspace_->indices_at(at_.group_rows),
       .z_squares = reinterpret_cast<double*>(workspace_->floats_at(at_.z_squares)),
       .rows = lane.rows(),
       .experts = spec_.experts,
       .slots = spec_.slots,
       .group_count = to.group_count});
}

kernels::BalanceParams ExpertsBlock::balance(const BlockCall& call) const {
  kernels::BalanceParams params{
      .term_count = std::ssize(spec_.balance),
      .counts = workspace_->indices_at(at_.counts),
      .probabilities = workspace_->floats_at(at_.probabilities),
      .group_rows = workspace_->indices_at(at_.group_rows),
      .z_squares = reinterpret_cast<const double*>(workspace_->floats_at(at_.z_squares)),
      .experts = spec_.experts,
      .slots = spec_.slots,
      .group_count = groups(call),
      .layers = spec_.layers,
      .layer_stride = spec_.experts,
      .scale = call.lane.lane_scale};
  std::ranges::copy(spec_.balance, params.terms);
  if (has(BalanceKind::hf)) {
    params.layer_counts = workspace_->indices_at(at_.layer_counts);
    params.layer_probabilities = workspace_->floats_at(at_.layer_probabilities);
    params.counts = params.layer_counts + spec_.index * spec_.experts;
    params.probabilities = params.layer_probabilities + spec_.index * spec_.experts;
  }
  if (previous_load_) {
    params.previous = exact_weights(call.weights, previous_load_->offset);
  }
  if (call.lane.step_sums != nullptr) {
    params.whole = call.lane.step_sums + first_sum_ / 2 + spec_.balance.size();
  }
  return params;
}

void ExpertsBlock::report_loads(const BlockCall& call) const {
  if (call.lane.block_sums == nullptr) {
    return;
  }
  kernels::BalanceParams params = balance(call);
  if (spec_.index + 1 < spec_.layers) {
    params.layer_counts = nullptr;  // The last layer reports the loss of all.
    params.layer_probabilities = nullptr;
  }
  double* values = call.lane.block_sums + first_sum_;
  params.values = values;
  params.loads = values + 2 * spec_.balance.size();
  if (call.lane.sums_alone) {  // Loads that terms read: no term is worth anything yet.
    params.term_count = 0;
    params.values = nullptr;
  }
  if (choice_bias_) {
    params.bias = exact_weights(call.weights, choice_bias_->offset);
    params.bias_range = params.loads + 2 * spec_.experts;
  }
  kernels_->router_balance(call.stream, params);
}

void ExpertsBlock::gather(const BlockCall& call, ConstElements x) const {
  kernels_->gather_rows(call.stream, {.x = x,
                                      .index = workspace_->indices_at(at_.row_of),
                                      .y = workspace_->at(at_.gathered),
                                      .count = places(call),
                                      .cols = embedding_dim_,
                                      .dtype = x.dtype});
}

void ExpertsBlock::forward_kept(const BlockCall& call, ConstElements x) {
  if (!call.again) {
    route(call, x);
    if (call.lane.with_gradient || call.lane.sums_alone) {
      count_loads(call);
      report_loads(call);
    }
  }
  gather(call, x);
  const ConstElements gathered = workspace_->at(at_.gathered);
  in_.forward(call, rows_of(call), gathered, workspace_->at(at_.hidden));
  up_.forward(call, rows_of(call), gathered, workspace_->at(at_.up_hidden));
  if (shared_) {
    shared_->mlp.forward_kept(call, x);
    if (shared_->gate && !call.again) {
      shared_gate_forward(call, x);
    }
  }
}

void ExpertsBlock::activate(const BlockCall& call) const {
  const Elements hidden = workspace_->at(at_.hidden);
  const Elements up = workspace_->at(at_.up_hidden);
  const Elements activated = workspace_->at(at_.activated);
  if (spec_.activation == kernels::ActivationKind::silu) {
    kernels_->swiglu_forward(call.stream, {.gate = hidden,
                                           .up = up,
                                           .y = activated,
                                           .count = places(call) * spec_.hidden,
                                           .dtype = hidden.dtype});
    return;
  }
  kernels_->activation_forward(call.stream, {.kind = spec_.activation,
                                             .x = hidden,
                                             .up = up,
                                             .y = activated,
                                             .rows = places(call),
                                             .cols = spec_.hidden,
                                             .x_stride = spec_.hidden,
                                             .y_stride = spec_.hidden,
                                             .alpha = spec_.alpha,
                                             .limit = spec_.limit,
                                             .dtype = hidden.dtype});
}

void ExpertsBlock::forward_output(const BlockCall& call, Elements branch) {
  activate(call);
  const Elements parts = workspace_->at(at_.parts);
  out_.forward(call, rows_of(call), workspace_->at(at_.activated), parts);
  kernels_->combine_rows(call.stream, {.parts = parts,
                                       .places = workspace_->indices_at(at_.places),
                                       .weights = workspace_->floats_at(at_.weights),
                                       .y = branch,
                                       .rows = call.lane.rows(),
                                       .slots = spec_.slots,
                                       .cols = embedding_dim_,
                                       .dtype = branch.dtype});
  if (shared_) {
    shared_forward(call, branch);
  }
}

// The gate is a router of one expert, so that its kernels serve it.
void ExpertsBlock::shared_gate_forward(const BlockCall& call, ConstElements x) const {
  const std::int64_t rows = call.lane.rows();
  std::int32_t* first = workspace_->indices_at(shared_->first);
  float* logits = workspace_->floats_at(shared_->logits);
  shared_->gate->forward(call, x, logits, 1);
  kernels_->router_forward(call.stream, {.kind = RouterKind::sigmoid,
                                         .logits = logits,
                                         .chosen = first,
                                         .weights = workspace_->floats_at(shared_->weights),
                                         .rows = rows,
                                         .experts = 1,
                                         .slots = 1});
  kernels_->expert_sort(call.stream, {.chosen = first,
                                      .offsets = first + 3 * rows,
                                      .row_of = first + rows,
                                      .slot_of = first + 2 * rows,
                                      .places = workspace_->indices_at(shared_->places),
                                      .rows = rows,
                                      .experts = 1,
                                      .slots = 1});
}

void ExpertsBlock::shared_forward(const BlockCall& call, Elements branch) {
  const Elements output = workspace_->at(shared_->output);
  const std::int64_t rows = call.lane.rows();
  shared_->mlp.forward_output(call, output);
  if (!shared_->gate) {
    kernels_->residual_add(call.stream, {.x = branch,
                                         .branch = output,
                                         .out = branch,
                                         .count = rows * embedding_dim_,
                                         .dtype = branch.dtype});
    return;
  }
  kernels_->combine_rows(call.stream, {.parts = output,
                                       .places = workspace_->indices_at(shared_->places),
                                       .weights = workspace_->floats_at(shared_->weights),
                                       .y = branch,
                                       .rows = rows,
                                       .slots = 1,
                                       .cols = embedding_dim_,
                                       .accumulate = true,
                                       .dtype = branch.dtype});
}

ConstElements ExpertsBlock::rounded(const BlockCall& call, const float* gradient,
                                    std::int64_t count, Workspace::Slot slot) const {
  if (workspace_->dtype() == kernels::DType::f32) {
    return gradient;
  }
  const Elements rounded = workspace_->at(slot);
  kernels_->pack_bf16(
      call.stream,
      {.in = gradient, .out = reinterpret_cast<std::uint16_t*>(rounded.data), .count = count});
  return rounded;
}

void ExpertsBlock::map_backward(const BlockCall& call, const LinearBlock& map, ConstElements dy,
                                ConstElements x, Elements dx) {
  map.begin_backward(call, dy, map.outputs());
  map.backward_weight(call, dy, map.outputs(), x);
  map.backward_input(call, dy, map.outputs(), dx, /*accumulate=*/true);
}

void ExpertsBlock::shared_backward(const BlockCall& call, ConstElements x, ConstElements dbranch,
                                   Elements dx) {
  if (!shared_->gate) {
    shared_->mlp.backward(call, x, dbranch, dx);
    return;
  }
  const std::int64_t rows = call.lane.rows();
  const Elements gradient = workspace_->at(shared_->gradient);
  float* dweights = workspace_->floats_at(shared_->dlogits);
  float* dlogits = dweights + rows;
  const float* weights = workspace_->floats_at(shared_->weights);
  const std::int32_t* order = workspace_->indices_at(shared_->places);
  kernels_->copy(call.stream,
                 {.out = gradient,
                  .in = dbranch,
                  .size_bytes = rows * embedding_dim_ *
                                static_cast<std::int64_t>(kernels::size_of(gradient.dtype))});
  kernels_->slot_weights_backward(call.stream, {.dh = gradient,
                                                .h = workspace_->at(shared_->output),
                                                .slot_of = order,
                                                .weights = weights,
                                                .dweights = dweights,
                                                .count = rows,
                                                .cols = embedding_dim_,
                                                .dtype = gradient.dtype});
  shared_->mlp.backward(call, x, gradient, dx);
  std::int32_t* chosen = workspace_->indices_at(shared_->first);
  kernels_->fill(call.stream, {.out = reinterpret_cast<float*>(chosen), .count = rows});
  kernels_->router_backward(call.stream, {.kind = RouterKind::sigmoid,
                                          .logits = workspace_->floats_at(shared_->logits),
                                          .chosen = chosen,
                                          .weights = weights,
                                          .dweights = dweights,
                                          .dlogits = dlogits,
                                          .rows = rows,
                                          .experts = 1,
                                          .slots = 1});
  map_backward(call, *shared_->gate, rounded(call, dlogits, rows, shared_->dlogits_rounded), x, dx);
}

float* ExpertsBlock::trained(const BlockCall& call, const std::optional<ParameterPlace>& place) {
  return place && !place->frozen ? call.gradient + place->gradient : nullptr;
}

void ExpertsBlock::router_backward(const BlockCall& call, ConstElements x, Elements dx) const {
  const std::int64_t rows = call.lane.rows();
  float* dlogits = workspace_->floats_at(at_.dlogits);
  kernels::RouterBackwardParams params{.kind = spec_.router,
                                       .logits = workspace_->floats_at(at_.logits),
                                       .chosen = workspace_->indices_at(at_.chosen),
                                       .weights = workspace_->floats_at(at_.weights),
                                       .dweights = workspace_->floats_at(at_.dweights),
                                       .dlogits = dlogits,
                                       .rows = rows,
                                       .experts = spec_.experts,
                                       .slots = spec_.slots,
                                       .scale = spec_.scale};
  float* const load = trained(call, previous_load_);
  float* const choice = trained(call, choice_bias_);
  if (load != nullptr || choice != nullptr || !spec_.balance.empty()) {
    count_loads(call);
    kernels::BalanceParams terms = balance(call);
    if (!spec_.balance.empty()) {
      params.groups = workspace_->indices_at(at_.groups);
      params.factors = terms.factors = workspace_->floats_at(at_.factors);
      params.z_factor = terms.z_factor = workspace_->floats_at(at_.z_factor);
    }
    terms.tally = load != nullptr ? load : choice;
    kernels_->router_balance(call.stream, terms);
    if (load != nullptr && choice != nullptr) {
      kernels_->copy(call.stream,
                     {.out = choice,
                      .in = load,
                      .size_bytes = spec_.experts * static_cast<std::int64_t>(sizeof(float))});
    }
  }
  kernels_->router_backward(call.stream, params);
  if (float* const gradient = trained(call, gate_bias_)) {
    kernels_->bias_gradient(call.stream, {.dy = dlogits,
                                          .dbias = gradient,
                                          .rows = rows,
                                          .cols = spec_.experts,
                                          .stride = spec_.experts});
  }
  map_backward(call, gate_, rounded(call, dlogits, rows * spec_.experts, at_.dlogits_rounded), x,
               dx);
}

void ExpertsBlock::activate_backward(const BlockCall& call) const {
  const Elements hidden = workspace_->at(at_.hidden);
  const Elements up = workspace_->at(at_.up_hidden);
  const Elements gradient = workspace_->at(at_.dactivated);
  if (spec_.activation == kernels::ActivationKind::silu) {
    kernels_->swiglu_backward(call.stream, {.gate = hidden,
                                            .up = up,
                                            .dy = gradient,
                                            .dgate = hidden,
                                            .dup = up,
                                            .count = places(call) * spec_.hidden,
                                            .dtype = hidden.dtype});
    return;
  }
  kernels_->activation_backward(call.stream, {.kind = spec_.activation,
                                              .x = hidden,
                                              .up = up,
                                              .dy = gradient,
                                              .dx = hidden,
                                              .dup = up,
                                              .y = gradient,
                                              .rows = places(call),
                                              .cols = spec_.hidden,
                                              .x_stride = spec_.hidden,
                                              .dy_stride = spec_.hidden,
                                              .dx_stride = spec_.hidden,
                                              .alpha = spec_.alpha,
                                              .limit = spec_.limit,
                                              .dtype = hidden.dtype});
}

// An output's bias is weighted as the rest of the output is: the router's weight gains <dy, bias>,
// and the bias has the weighted dy, which replaces `gathered`.
void ExpertsBlock::out_bias_backward(const BlockCall& call) const {
  const Elements gathered = workspace_->at(at_.gathered);
  const Elements biases = workspace_->at(at_.parts);
  const ExpertRows rows = rows_of(call);
  float* const dweights = workspace_->floats_at(at_.dweights);
  float* const more = workspace_->floats_at(at_.bias_dweights);
  const std::int64_t bytes =
      rows.places * embedding_dim_ * static_cast<std::int64_t>(kernels::size_of(biases.dtype));
  kernels_->fill(call.stream, {.out = reinterpret_cast<float*>(biases.data),
                               .count = bytes / static_cast<std::int64_t>(sizeof(float))});
  out_.add_bias(call, rows, biases);
  kernels_->slot_weights_backward(call.stream, {.dh = gathered,
                                                .h = biases,
                                                .slot_of = workspace_->indices_at(at_.slot_of),
                                                .weights = workspace_->floats_at(at_.weights),
                                                .dweights = more,
                                                .count = rows.places,
                                                .cols = embedding_dim_,
                                                .dtype = gathered.dtype});
  kernels_->residual_add(call.stream,
                         {.x = dweights, .branch = more, .out = dweights, .count = rows.places});
  out_.backward_bias(call, rows, gathered);
}

void ExpertsBlock::backward(const BlockCall& call, ConstElements x, ConstElements dbranch,
                            Elements dx) {
  const Elements gathered = workspace_->at(at_.gathered);
  const Elements activated = workspace_->at(at_.activated);
  const Elements dactivated = workspace_->at(at_.dactivated);
  const Elements parts = workspace_->at(at_.parts);
  const ExpertRows rows = rows_of(call);
  if (shared_) {
    shared_backward(call, x, dbranch, dx);
  }
  gather(call, dbranch);
  activate(call);
  out_.backward_input(call, rows, gathered, dactivated);
  kernels_->slot_weights_backward(call.stream, {.dh = dactivated,
                                                .h = activated,
                                                .slot_of = workspace_->indices_at(at_.slot_of),
                                                .weights = workspace_->floats_at(at_.weights),
                                                .dweights = workspace_->floats_at(at_.dweights),
                                                .count = rows.places,
                                                .cols = spec_.hidden,
                                                .dtype = activated.dtype});
  out_.backward_weight(call, rows, gathered, activated);
  if (spec_.expert_bias) {
    out_bias_backward(call);
  }
  activate_backward(call);
  const ConstElements dhidden = workspace_->at(at_.hidden);
  const ConstElements dup = workspace_->at(at_.up_hidden);
  gather(call, x);
  in_.backward_weight(call, rows, dhidden, gathered);
  up_.backward_weight(call, rows, dup, gathered);
  if (spec_.expert_bias) {
    in_.backward_bias(call, rows, dhidden);
    up_.backward_bias(call, rows, dup);
  }
  in_.backward_input(call, rows, dhidden, parts);
  up_.backward_input(call, rows, dup, parts, /*accumulate=*/true);
  kernels_->combine_rows(call.stream, {.parts = parts,
                                       .places = workspace_->indices_at(at_.places),
                                       .y = dx,
                                       .rows = call.lane.rows(),
                                       .slots = spec_.slots,
                                       .cols = embedding_dim_,
                                       .accumulate = shared_.has_value(),
                                       .dtype = dx.dtype});
  router_backward(call, x, dx);
}

}  // namespace train::engine
