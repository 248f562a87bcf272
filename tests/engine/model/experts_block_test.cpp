// Layers of experts in a model: gradients, and what neither ranks nor recomputation may change.

#include "engine/model/experts/experts_block.hpp"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "engine/model/architectures/architectures.hpp"
#include "engine/model/model.hpp"
#include "engine/rank/exec/rank_memory.hpp"
#include "engine/rank/plan/rank_options.hpp"
#include "kernels/head/log_probs.hpp"
#include "tests/engine/model/layer_runs.hpp"
#include "tests/engine/model/model_memory.hpp"
#include "tests/engine/parity/expert_models.hpp"
#include "tests/engine/rank/small_model.hpp"

namespace train::engine::experts_block_test {
namespace {

using Catch::Matchers::Contains;
using kernels::BalanceKind;
using kernels::BalanceScope;
using kernels::RouterKind;
using testing::run;
using testing::Text;
using testing::Trace;
using Options = WorldStep::Options;

constexpr std::int64_t kExperts = 6;
constexpr std::int64_t kSlots = 2;

ExpertsSpec small_experts(std::int64_t index, std::int64_t layers) {
  ExpertsSpec experts;
  experts.experts = kExperts;
  experts.slots = kSlots;
  experts.hidden = 24;
  experts.router = RouterKind::softmax_normalised;
  experts.gate = "mlp.gate";
  experts.expert = "mlp.experts.{}.";
  experts.in = "gate_proj";
  experts.up = "up_proj";
  experts.out = "down_proj";
  experts.index = index;
  experts.layers = layers;
  return experts;
}

/// A small model whose layers have experts as `change` leaves them.
template <class Change>
ModelSpec model_with(const Change& change) {
  ModelSpec spec = testing::small_shape(Architecture::enoki);
  const auto layers = static_cast<std::int64_t>(spec.layers.size());
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    ExpertsSpec experts = small_experts(layer, layers);
    change(experts);
    spec.layers[static_cast<std::size_t>(layer)].branches[1].block =
        std::make_shared<const ExpertsSpec>(experts);
  }
  return spec;
}

ModelSpec plain_model() {
  return model_with([](ExpertsSpec&) {});
}

ModelSpec balanced_model(std::vector<kernels::BalanceTerm> terms) {
  return model_with([&](ExpertsSpec& experts) { experts.balance = terms; });
}

void share(ExpertsSpec& experts, bool gated) {
  experts.shared = {.hidden = 20,
                    .gated = gated,
                    .gate = gated ? "mlp.shared_expert_gate" : "",
                    .in = "mlp.shared_expert.gate_proj",
                    .up = "mlp.shared_expert.up_proj",
                    .out = "mlp.shared_expert.down_proj"};
}

Options options_of(const ModelSpec& model) {
  Options options = testing::small_options(Architecture::enoki);
  options.model = model;
  options.batch.lanes = 4;
  options.eval_lanes = 3;
  return options;
}

/// Value of a metric of the first step.
double metric(const ModelSpec& model, const Trace& trace, const std::string& name) {
  const std::vector<std::string> names = block_metrics(model);
  const auto found = std::ranges::find(names, name);
  REQUIRE(found != names.end());
  return trace.metrics.at(static_cast<std::size_t>(found - names.begin()));
}

/// Documents that lie in one lane.
struct Documents {
  std::vector<std::int32_t> tokens = {}, targets = {}, positions = {};

  /// Appends `length` tokens, each once, from `first` on.
  void add(std::int32_t first, std::int32_t length) {
    for (std::int32_t i = 0; i < length; ++i) {
      tokens.push_back(first + i);
      targets.push_back((first + 7 * i) % 41);
      positions.push_back(i);
    }
  }
};

/// Log-probabilities of the lane's rows, and the gradient of the embedding.
struct RowBits {
  std::vector<float> log_probs, gradient;
};

RowBits bits_of(const ModelSpec& spec, std::uint64_t seed, const Documents& documents,
                std::int64_t sequences) {
  const auto stream = kernels::make_inline_stream(1);
  const auto rows = std::ssize(documents.tokens);
  testing::ModelMemory memory(spec, 0.0F, {.seed = seed, .init_std = 0.5});
  Model model(spec, kernels::cpu_backend(), sequences, rows / sequences, true);
  kernels::LossSums sums;
  const Lane lane{.sequences = sequences,
                  .seq_len = rows / sequences,
                  .tokens = documents.tokens.data(),
                  .positions = documents.positions.data(),
                  .targets = documents.targets.data(),
                  .sums = &sums};
  const std::size_t head = model.unit_count() - 1;
  for (std::size_t unit = 0; unit < head; ++unit) {
    model.unit(unit).forward(*stream, memory.of(unit), lane);
  }
  RowBits found;
  found.log_probs.resize(documents.tokens.size());
  std::vector<std::int32_t> argmax(documents.tokens.size());
  model.row_log_probs(*stream, memory.of(head), lane,
                      {.log_probs = found.log_probs.data(), .argmax = argmax.data()});
  testing::run_lane(*stream, model, memory, lane);
  found.gradient = memory.gradients.front();
  return found;
}

void check_same_anywhere(const Options& base) {
  const auto digests = [](const Options& options) {
    const Trace trace = run(options);
    return std::pair(trace.losses, trace.digests);
  };
  const auto alone = digests(base);
  REQUIRE(alone.first.back() < alone.first.front());
  for (const std::int64_t ranks : {1, 2, 3, 4}) {
    for (const char* strategy : {"none", "full"}) {
      for (const char* part : {"none", "block", "mlp"}) {
        CAPTURE(ranks, strategy, part);
        Options options = base;
        options.parallel.ranks = ranks;
        options.parallel.strategy = strategy;
        if (std::string(part) != "none") {
          options.memory.activation_checkpointing = "all";
          options.memory.checkpointed_part = part;
        }
        CHECK(digests(options) == alone);
      }
    }
  }
}

}  // namespace

TEST_CASE("experts: the gradient is the slope of the loss", "[engine][experts]") {
  const auto router = GENERATE(RouterKind::softmax, RouterKind::softmax_normalised);
  const auto slots = GENERATE(as<std::int64_t>(), 1, 2, kExperts);
  const auto shared = GENERATE(0, 1, 2);
  CAPTURE(static_cast<int>(router), slots, shared);
  const ModelSpec model = model_with([&](ExpertsSpec& experts) {
    experts.router = router;
    experts.slots = slots;
    if (shared > 0) {
      share(experts, shared == 2);
    }
  });
  // The loss has steps where a choice changes, and a difference may cross one: most do not.
  for (const std::size_t unit : {std::size_t{1}, std::size_t{2}}) {
    std::vector<double> ratios;
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      const auto [expected, found] = Text(model, seed).slopes(unit);
      ratios.push_back(found / expected);
    }
    std::ranges::sort(ratios);
    CAPTURE(unit);
    CHECK(ratios[2] == Approx(1.0).epsilon(5e-3));
  }
}

namespace {

/// Checks one document's rows, which lie at other places beside others.
void check_document_alone(const ModelSpec& model, std::uint64_t seed) {
  REQUIRE_FALSE(model.tie_embeddings);
  // Tokens occur once: a row of the embedding's gradient is one row's of the lane.
  Documents alone, together;
  alone.add(20, 7);
  for (const auto& [first, length] : {std::pair{0, 5}, {20, 7}, {5, 12}}) {
    together.add(first, length);
  }
  const RowBits expected = bits_of(model, seed, alone, 1);
  const RowBits found = bits_of(model, seed, together, 2);
  const auto bits = [](const std::vector<float>& values, std::size_t first, std::size_t count) {
    std::vector<std::uint32_t> result;
    for (std::size_t i = first; i < first + count; ++i) {
      result.push_back(std::bit_cast<std::uint32_t>(values[i]));
    }
    return result;
  };
  CHECK(bits(found.log_probs, 5, 7) == bits(expected.log_probs, 0, 7));
  const auto width = static_cast<std::size_t>(model.embedding_dim);
  const auto gradient = bits(expected.gradient, 20 * width, 7 * width);
  CHECK(std::ranges::count(gradient, 0U) == 0);
  CHECK(bits(found.gradient, 20 * width, 7 * width) == gradient);
}

}  // namespace

TEST_CASE("experts: a document's rows have the same bits alone and beside others",
          "[engine][experts][P1]") {
  const auto seed = GENERATE(as<std::uint64_t>(), 1, 2);
  const auto router = GENERATE(RouterKind::softmax, RouterKind::softmax_normalised);
  const auto shared = GENERATE(0, 1, 2);
  CAPTURE(seed, static_cast<int>(router), shared);
  const ModelSpec model = model_with([&](ExpertsSpec& experts) {
    experts.router = router;
    if (shared > 0) {
      share(experts, shared == 2);
    }
  });
  check_document_alone(model, seed);
}

TEST_CASE("experts: in published families a document has the same bits alone and beside others",
          "[engine][experts][P1]") {
  const auto seed = GENERATE(as<std::uint64_t>(), 1, 2);
  const std::string name = GENERATE("deepseek_v3", "deepseek_v3_plain", "glm4_moe", "gpt_oss");
  CAPTURE(seed, name);
  const std::string config = testing::expert_models().at("cases").at(name).at("config").dump();
  check_document_alone(spec_from_config(config, name, 0).value(), seed);
}

TEST_CASE("experts: neither ranks nor what is computed again show", "[engine][experts][P1]") {
  check_same_anywhere(options_of(plain_model()));
}

TEST_CASE("experts: balancing by steps, by lanes and by documents has the same bits anywhere",
          "[engine][experts][P1]") {
  const std::vector<std::vector<kernels::BalanceTerm>> cases = {
      {{BalanceKind::switch_loss, BalanceScope::previous_step, 0.05F}},
      {{BalanceKind::hf, BalanceScope::lane, 0.05F}, {BalanceKind::z, BalanceScope::lane, 0.01F}},
      {{BalanceKind::switch_loss, BalanceScope::sequence, 0.05F}},
      {{BalanceKind::switch_loss, BalanceScope::step, 0.05F}},
      {{BalanceKind::z, BalanceScope::lane, 0.01F},
       {BalanceKind::switch_loss, BalanceScope::previous_step, 0.05F},
       {BalanceKind::switch_loss, BalanceScope::step, 0.05F}}};
  for (const auto& terms : cases) {
    CAPTURE(static_cast<int>(terms.front().scope));
    const Options options = options_of(balanced_model(terms));
    check_same_anywhere(options);
    CHECK(run(options).digests != run(options_of(plain_model())).digests);
  }
}

TEST_CASE("experts: the loads of all lanes are reported, and their mean is 1",
          "[engine][experts]") {
  const ModelSpec model = balanced_model({{BalanceKind::switch_loss, BalanceScope::lane, 0.01F},
                                          {BalanceKind::hf, BalanceScope::lane, 0.01F}});
  const Trace trace = run(options_of(model), 1);
  for (const int layer : {0, 1}) {
    double sum = 0.0;
    for (std::int64_t expert = 0; expert < kExperts; ++expert) {
      sum += metric(model, trace,
                    "expert_load/" + std::to_string(layer) + "/" + std::to_string(expert));
    }
    CHECK(sum == Approx(static_cast<double>(kExperts)));
  }
  // Fresh routers are close to uniform: the losses are close to their values there.
  CHECK(metric(model, trace, "balance/switch_lane") == Approx(1.0).epsilon(0.5));
  CHECK(metric(model, trace, "balance/hf_lane") ==
        Approx(static_cast<double>(kSlots)).epsilon(0.5));
}

TEST_CASE("experts: of a step of one lane, the whole step's loads are the lane's",
          "[engine][experts]") {
  const auto trace_of = [](BalanceScope scope, std::int64_t lanes) {
    Options options = options_of(balanced_model({{BalanceKind::switch_loss, scope, 0.05F}}));
    options.batch.lanes = lanes;
    return run(options);
  };
  const Trace of_step = trace_of(BalanceScope::step, 1);
  const Trace of_lane = trace_of(BalanceScope::lane, 1);
  CHECK(of_step.losses == of_lane.losses);
  CHECK(of_step.digests == of_lane.digests);
  const auto bits = [](double metric) { return std::bit_cast<std::uint64_t>(metric); };
  CHECK(std::ranges::equal(of_step.metrics, of_lane.metrics, {}, bits, bits));  // NaN: no value.
  CHECK(trace_of(BalanceScope::step, 4).digests != trace_of(BalanceScope::lane, 4).digests);
}

TEST_CASE("experts: the whole step's loads are counted for the steps that read them alone",
          "[engine][experts]") {
  Options options =
      options_of(balanced_model({{BalanceKind::switch_loss, BalanceScope::step, 0.05F}}));
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels::cpu_backend(), options);
  (void)world.run(*stream, 0, testing::repeating_text(options));
  const double* sums = world.rank(0).totals().lanes().step_sums();
  REQUIRE(sums != nullptr);
  const double rows =
      static_cast<double>(options.batch.lanes * options.batch.micro_batch * options.seq_len);
  for (int layer = 0; layer < 2; ++layer) {
    const double* loads = sums + layer * (1 + kExperts) + 1;
    CHECK(std::accumulate(loads, loads + kExperts, 0.0) == static_cast<double>(kSlots) * rows);
    CHECK(sums[layer * (1 + kExperts)] == 0.0);  // No term is worth anything before the counts.
  }
  CHECK(world.rank(0).allocated() == plan_memory(world.rank(0).options()));
  WorldStep plain(kernels::cpu_backend(), options_of(plain_model()));
  CHECK(plain.rank(0).totals().lanes().step_sums() == nullptr);
}

TEST_CASE("experts: balancing by the step before evens the loads out", "[engine][experts]") {
  const auto spread_after = [](const ModelSpec& model) {
    Options options = options_of(model);
    const auto stream = kernels::make_inline_stream(1);
    WorldStep world(kernels::cpu_backend(), options);
    std::vector<double> metrics;
    for (int step = 0; step < 40; ++step) {
      metrics = world.run(*stream, step, testing::repeating_text(options)).metrics;
    }
    const std::vector<std::string> names = block_metrics(model);
    double largest = 0.0;
    for (std::size_t i = 0; i < names.size(); ++i) {
      largest = names[i].starts_with("expert_load/") ? std::max(largest, metrics[i]) : largest;
    }
    return largest;
  };
  const double balanced =
      spread_after(balanced_model({{BalanceKind::switch_loss, BalanceScope::previous_step, 1.0F}}));
  CHECK(balanced < spread_after(plain_model()));
}

TEST_CASE("experts: with adapters, by name, neither ranks nor recomputation show",
          "[engine][experts][lora][P1]") {
  Options options = options_of(plain_model());
  options.lora = {.rank = 2, .alpha = 4.0, .targets = {"all-linear"}};
  const auto adapters_of = [](const Options& of) {
    const std::vector<UnitParameters> units = describe_units(trained_model(of));
    return std::ranges::count_if(units[1].parameters,
                                 [](const Parameter& parameter) { return parameter.adapter; });
  };
  const auto without = adapters_of(options);
  options.lora.targets = {"all-linear", "mlp.experts.*"};
  CHECK(adapters_of(options) == without + 2 * 3 * kExperts);
  check_same_anywhere(options);
  options.lora.targets = {"mlp.experts.3.*"};
  const auto refused = check_freeze(options);
  REQUIRE_FALSE(refused);
  CHECK_THAT(refused.error().message, Contains("1 of the 6 experts"));
  CHECK_THAT(plan_of(options).error().message, Contains("1 of the 6 experts"));
}

TEST_CASE("experts: some of them frozen", "[engine][experts][P1]") {
  Options options = options_of(plain_model());
  options.train.freeze = {"*.experts.0.*", "*.experts.3.up_proj.weight", "*.gate.weight"};
  check_same_anywhere(options);
}

TEST_CASE("experts: Muon takes each expert's matrices at their owners", "[engine][experts][P1]") {
  Options options = options_of(plain_model());
  options.optimizer.name = "muon";
  check_same_anywhere(options);
}

TEST_CASE("experts: their memory is planned, and a token's share of them counts",
          "[engine][experts]") {
  const ModelSpec spec = balanced_model({{BalanceKind::hf, BalanceScope::lane, 0.01F}});
  for (const char* part : {"block", "mlp", "attention"}) {
    const ActivationOptions options{.checkpointing = {1, part}};
    CHECK(planned_activation_bytes(spec, 3, 16, true, options) ==
          Model(spec, kernels::cpu_backend(), 3, 16, true, options).activation_bytes());
  }
  const double sparse = flops_per_token(spec, 24);
  const double all =
      flops_per_token(model_with([](ExpertsSpec& experts) { experts.slots = kExperts; }), 24);
  CHECK(all - sparse == Approx(6.0 * 2 * 3 * 16 * 24 * (kExperts - kSlots)));
}

}  // namespace train::engine::experts_block_test
