#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "configs/fields/named_options.hpp"
#include "engine/objective/registry.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "tests/engine/rank/small_model.hpp"

namespace train::engine::objective_test {
namespace {

using Options = WorldStep::Options;
using FillLane = WorldStep::FillLane;

Options sft_options() {
  Options options = testing::small_options(Architecture::dstar_qwen3);
  options.objective.name = "sft";
  options.batch.lanes = 5;
  options.eval_lanes = 3;
  options.model.z_loss_coeff = 0.01F;
  return options;
}

/// One document of a packed row: its first tokens are a prompt, which is not trained.
struct Document {
  std::int64_t length;
  std::int64_t prompt;
  std::int64_t seed = 0;
};

/// Documents, then padding, from the first element of a row of `slot` on.
void pack(const LaneSlot& slot, std::size_t first, std::size_t length,
          const std::vector<Document>& documents) {
  const auto fill = [&](std::size_t at, std::int32_t token, std::int32_t position) {
    slot.tokens[at] = token;
    slot.targets[at] = -1;
    slot.positions[at] = position;
    slot.weights[at] = 0.0F;
  };
  std::size_t at = first;
  for (const Document& document : documents) {
    const auto token = [&](std::int64_t i) {
      return static_cast<std::int32_t>((document.seed + i * i) % 41);
    };
    for (std::int64_t i = 0; i < document.length; ++i, ++at) {
      fill(at, token(i), static_cast<std::int32_t>(i));
      if (i + 1 >= document.prompt && i + 1 < document.length) {
        slot.targets[at] = token(i + 1);
        slot.weights[at] = 1.0F + static_cast<float>(document.seed % 3);
      }
    }
  }
  for (std::int32_t position = 0; at < first + length; ++at, ++position) {
    fill(at, 0, position);
  }
}

/// Rows that differ in documents, in what is trained of them, and in padding.
FillLane packed_rows(const Options& options) {
  return [options](std::int64_t step, std::int64_t lane, const LaneSlot& slot) {
    const auto length = static_cast<std::size_t>(options.seq_len);
    for (std::int64_t row = 0; row < options.batch.micro_batch; ++row) {
      const std::int64_t seed = step * 31 + lane * 7 + row;
      pack(slot, static_cast<std::size_t>(row) * length, length,
           {{3 + seed % 5, 1 + seed % 3, seed}, {4 + seed % 7, 2, seed + 1}, {5, 5, seed + 2}});
    }
  };
}

/// Sum of the weights of a step's targets, from the rows themselves.
double weight_of(const Options& options, const FillLane& fill, std::int64_t step) {
  const auto count = static_cast<std::size_t>(options.batch.micro_batch * options.seq_len);
  std::vector<std::int32_t> tokens(count), targets(count), positions(count);
  std::vector<float> weights(count);
  double sum = 0.0;
  for (std::int64_t lane = 0; lane < options.batch.lanes; ++lane) {
    fill(step, lane, {tokens, targets, positions, weights});
    for (std::size_t i = 0; i < count; ++i) {
      sum += targets[i] >= 0 ? static_cast<double>(weights[i]) : 0.0;
    }
  }
  return sum;
}

Options with_weights_of(Options options, const FillLane& fill) {
  options.step_weight = [options, fill](std::int64_t step, std::size_t) {
    return weight_of(options, fill, step);
  };
  return options;
}

struct Trace {
  std::vector<double> numbers;
  std::vector<std::uint64_t> digests;

  friend bool operator==(const Trace&, const Trace&) = default;
};

Trace run(const Options& options, const FillLane& fill, int steps = 3) {
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels::cpu_backend(), options);
  Trace trace;
  for (int step = 0; step < steps; ++step) {
    const StepResult result = world.run(*stream, step, fill);
    REQUIRE_FALSE(result.nonfinite);
    trace.numbers.insert(trace.numbers.end(),
                         {result.loss, result.cross_entropy, result.grad_norm});
    trace.digests.push_back(world.digest());
  }
  if (options.eval_lanes > 0) {
    const EvaluationResult evaluation = world.evaluate(*stream, fill);
    trace.numbers.insert(trace.numbers.end(), {evaluation.cross_entropy, evaluation.accuracy});
  }
  return trace;
}

/// Fills a slot as pretraining does: one document a sequence, every token trained.
FillLane plain_rows(const Options& options) {
  const auto text = testing::repeating_text(options);
  return [options, text](std::int64_t step, std::int64_t lane, const LaneSlot& slot) {
    text(step, lane, slot.tokens.data(), slot.targets.data());
    for (std::size_t i = 0; i < slot.positions.size(); ++i) {
      slot.positions[i] = static_cast<std::int32_t>(i) % static_cast<std::int32_t>(options.seq_len);
      slot.weights[i] = 1.0F;
    }
  };
}

}  // namespace

TEST_CASE("objective: what the list says its loss is of is what it computes",
          "[engine][objective]") {
  for (const configs::NamedOptions& entry : configs::objective_options().entries) {
    CAPTURE(entry.name);
    configs::ObjectiveSection section;
    section.name = entry.name;
    section.first_layer = 0;
    const configs::ObjectiveForm form = configs::objective_form(entry.name);
    const auto objective = make_objective(section);
    CHECK(objective->several_passes() == (form == configs::ObjectiveForm::two_passes));
    CHECK((objective->weighting() != nullptr) == (form == configs::ObjectiveForm::answers));
    CHECK((schedule_of(section) == nullptr) == !objective->several_passes());
  }
}

TEST_CASE("objective: ranks, strategy and gating never show in packed rows",
          "[engine][objective][EN-1]") {
  const Options options = with_weights_of(sft_options(), packed_rows(sft_options()));
  const Trace alone = run(options, packed_rows(options));
  REQUIRE(alone.digests.front() != alone.digests.back());
  for (const std::int64_t ranks : {2, 3, 4}) {
    for (const char* strategy : {"none", "full"}) {
      for (const char* sync : {"every_lane", "last_lane"}) {
        CAPTURE(ranks, strategy, sync);
        Options split = options;
        split.parallel.ranks = ranks;
        split.parallel.strategy = strategy;
        split.parallel.sync = sync;
        CHECK(run(split, packed_rows(options)) == alone);
      }
    }
  }
}

TEST_CASE("objective: rows without a mask are pretraining, bit for bit", "[engine][objective]") {
  Options options = sft_options();
  const auto tokens =
      static_cast<double>(options.batch.lanes * options.batch.micro_batch * options.seq_len);
  options.step_weight = [tokens](std::int64_t, std::size_t) { return tokens; };
  const Trace rows = run(options, plain_rows(options));
  options.step_weight = {};
  options.objective.name = "pretrain";
  CHECK(run(options, plain_rows(options)) == rows);
}

TEST_CASE("objective: a step's loss is the mean that an evaluation of its rows finds",
          "[engine][objective]") {
  Options options = with_weights_of(sft_options(), packed_rows(sft_options()));
  options.eval_lanes = options.batch.lanes;
  const FillLane rows = packed_rows(options);
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels::cpu_backend(), options);
  const double evaluated = world.evaluate(*stream, rows).cross_entropy;
  const StepResult step = world.run(*stream, 0, rows);
  CHECK(step.cross_entropy == Approx(evaluated).epsilon(1e-12));
  CHECK(step.loss > step.cross_entropy);  // z-loss
}

TEST_CASE("objective: a target counts the same in whatever lane it lies", "[engine][objective]") {
  // One long and three short answers in one lane, or a lane each beside lanes without any.
  Options options = sft_options();
  options.batch.micro_batch = 1;
  options.batch.lanes = 4;
  options.eval_lanes = 0;
  options.model.z_loss_coeff = 0.0F;
  const std::vector<Document> documents = {{11, 2, 3}, {4, 2, 6}, {4, 2, 9}, {4, 3, 12}};
  const auto length = static_cast<std::size_t>(options.seq_len);
  const FillLane together = [&](std::int64_t, std::int64_t lane, const LaneSlot& slot) {
    pack(slot, 0, length, lane == 1 ? documents : std::vector<Document>());
  };
  const FillLane apart = [&](std::int64_t, std::int64_t lane, const LaneSlot& slot) {
    pack(slot, 0, length, {documents[static_cast<std::size_t>(lane)]});
  };
  const Trace packed = run(with_weights_of(options, together), together, 1);
  const Trace alone = run(with_weights_of(options, apart), apart, 1);
  for (std::size_t i = 0; i < packed.numbers.size(); ++i) {
    CHECK(packed.numbers[i] == Approx(alone.numbers[i]).epsilon(1e-5));
  }
}

TEST_CASE("objective: a document's loss has the same bits packed and alone",
          "[engine][objective]") {
  Options options = sft_options();
  options.batch.micro_batch = 1;
  options.eval_lanes = 1;
  const auto length = static_cast<std::size_t>(options.seq_len);
  const Document document{7, 2, 5};
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels::cpu_backend(), options);
  const auto loss = [&](const std::vector<Document>& documents) {
    const EvaluationResult result =
        world.evaluate(*stream, FillLane([&](std::int64_t, std::int64_t, const LaneSlot& slot) {
          pack(slot, 0, length, documents);
        }));
    CHECK(result.targets == 5.0);
    return result.cross_entropy;
  };
  const double alone = loss({document});
  CHECK(alone > 1.0);
  // The others are prompts alone.
  CHECK(loss({{3, 3, 1}, document}) == alone);
  CHECK(loss({{9, 9, 2}, document, {6, 6, 4}}) == alone);
  CHECK(loss({{17, 17, 8}, document}) == alone);
}

TEST_CASE("objective: a step without a target has no loss and no gradient", "[engine][objective]") {
  Options options = sft_options();
  options.optimizer.weight_decay = 0.5;
  const auto length = static_cast<std::size_t>(options.seq_len);
  const FillLane prompts = [&](std::int64_t, std::int64_t, const LaneSlot& slot) {
    pack(slot, 0, length, {{9, 9, 1}});
    pack(slot, length, length, {});
  };
  options.step_weight = [](std::int64_t, std::size_t) { return 0.0; };
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels::cpu_backend(), options);
  const std::uint64_t before = world.digest();
  const StepResult result = world.run(*stream, 0, prompts);
  CHECK_FALSE(result.nonfinite);
  CHECK(result.loss == 0.0);
  CHECK(result.cross_entropy == 0.0);
  CHECK(result.grad_norm == 0.0);
  CHECK(world.digest() != before);  // decay goes on
  CHECK(world.evaluate(*stream, prompts).cross_entropy == 0.0);
}

TEST_CASE("objective: label smoothing is of training, not of evaluation", "[engine][objective]") {
  const Options options = with_weights_of(sft_options(), packed_rows(sft_options()));
  Options smooth = options;
  smooth.objective.label_smoothing = 0.2;
  const auto stream = kernels::make_inline_stream(1);
  WorldStep plain(kernels::cpu_backend(), options);
  WorldStep smoothed(kernels::cpu_backend(), smooth);
  const FillLane rows = packed_rows(options);
  CHECK(plain.evaluate(*stream, rows).cross_entropy ==
        smoothed.evaluate(*stream, rows).cross_entropy);
  CHECK(plain.run(*stream, 0, rows).loss != smoothed.run(*stream, 0, rows).loss);
}

}  // namespace train::engine::objective_test
