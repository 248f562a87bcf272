#include "engine/rank/exec/log_probs/document_scores.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "engine/generate/text_generator.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "tests/engine/rank/small_model.hpp"

namespace train::engine::document_scores_test {
namespace {

using Options = WorldStep::Options;

struct Document {
  std::int64_t seed = 0;
  std::int64_t length = 0;  ///< Tokens, the last of which is not read.
  std::int64_t context = 1;

  [[nodiscard]] std::int32_t token(std::int64_t i) const {
    return static_cast<std::int32_t>((seed + 3 * i * i + i) % 41);
  }
};

std::vector<Document> documents() {
  std::vector<Document> all;
  for (std::int64_t i = 0; i < 23; ++i) {
    all.push_back({.seed = 5 * i, .length = 4 + i * i % 9, .context = 1 + i % 3});
  }
  return all;
}

/// Rows of documents, one after the other as far as they fit, or each in a row of its own.
struct Rows {
  std::vector<std::vector<Document>> rows;

  Rows(std::int64_t length, bool packed) {
    std::int64_t used = length + 1;
    for (const Document& document : documents()) {
      if (!packed || used + document.length - 1 > length) {
        rows.emplace_back();
        used = 0;
      }
      rows.back().push_back(document);
      used += document.length - 1;
    }
  }
  [[nodiscard]] std::int64_t lanes(std::int64_t micro_batch) const {
    return (static_cast<std::int64_t>(rows.size()) + micro_batch - 1) / micro_batch;
  }
  void fill(std::int64_t lane, const Options& options, const LaneSlot& slot) const {
    std::fill(slot.tokens.begin(), slot.tokens.end(), 0);
    std::fill(slot.targets.begin(), slot.targets.end(), -1);
    for (std::int64_t r = 0; r < options.batch.micro_batch; ++r) {
      auto at = static_cast<std::size_t>(r * options.seq_len);
      const std::size_t end = at + static_cast<std::size_t>(options.seq_len);
      const auto row = static_cast<std::size_t>(lane * options.batch.micro_batch + r);
      for (const Document& document : row < rows.size() ? rows[row] : std::vector<Document>()) {
        for (std::int64_t i = 0; i + 1 < document.length; ++i, ++at) {
          slot.tokens[at] = document.token(i);
          slot.targets[at] = i + 1 < document.context ? -1 : document.token(i + 1);
          slot.positions[at] = static_cast<std::int32_t>(i);
        }
      }
      for (std::int32_t i = 0; at < end; ++at, ++i) {
        slot.positions[at] = i;
      }
    }
  }
};

Options scored_options(Architecture architecture, const Rows& rows, std::int64_t micro_batch) {
  Options options = testing::small_options(architecture);
  options.batch.lanes = 4;
  options.batch.micro_batch = micro_batch;
  options.eval_lanes = 3;
  options.scored_lanes = rows.lanes(micro_batch);
  return options;
}

struct Scored {
  std::vector<double> sums;
  double cross_entropy = 0.0;

  friend bool operator==(const Scored&, const Scored&) = default;
};

/// Of all ranks, one after the other; after a training step, twice.
Scored score(const Options& options, const Rows& rows) {
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels::cpu_backend(), options);
  const auto text = testing::repeating_text(options);
  world.run(*stream, 0, text);
  Scored scored;
  for (int time = 0; time < 2; ++time) {
    scored.sums.clear();
    const EvaluationResult result = world.evaluate(*stream, text);
    world.score(*stream, [&](std::int64_t, std::int64_t lane, const LaneSlot& slot) {
      rows.fill(lane, options, slot);
    });
    scored.cross_entropy = result.cross_entropy;
    for (std::int64_t rank = 0; rank < options.parallel.ranks; ++rank) {
      const auto& sums = world.rank(rank).scores().sums();
      scored.sums.insert(scored.sums.end(), sums.begin(), sums.end());
    }
  }
  return scored;
}

}  // namespace

TEST_CASE("document scores: the same bits on any ranks and in any rows", "[engine][choices][P1]") {
  for (const auto architecture : {Architecture::enoki, Architecture::dstar_qwen3}) {
    const Rows packed(24, true);
    const Rows alone(24, false);
    REQUIRE(packed.rows.size() < alone.rows.size());
    Options options = scored_options(architecture, packed, 2);
    const Scored one = score(options, packed);
    REQUIRE(one.sums.size() == documents().size());
    CHECK(std::all_of(one.sums.begin(), one.sums.end(), [](double sum) { return sum < 0.0; }));
    for (const std::int64_t ranks : {2, 3, 4}) {
      for (const char* strategy : {"none", "optimizer", "gradient", "full"}) {
        INFO(ranks << " ranks, " << strategy);
        options.parallel.ranks = ranks;
        options.parallel.strategy = strategy;
        CHECK(score(options, packed) == one);
      }
    }
    CHECK(score(scored_options(architecture, alone, 2), alone) == one);
    options = scored_options(architecture, packed, 2);
    options.objective.name = "sft";  // whose own lanes have positions and weights
    options.eval_lanes = 0;
    options.batch.lanes = 1;
    const auto stream = kernels::make_inline_stream(1);
    WorldStep fresh(kernels::cpu_backend(), options);
    fresh.score(*stream, [&](std::int64_t, std::int64_t lane, const LaneSlot& slot) {
      packed.fill(lane, options, slot);
    });
    Options plain = scored_options(architecture, packed, 2);
    plain.eval_lanes = 0;
    plain.batch.lanes = 1;
    WorldStep other(kernels::cpu_backend(), plain);
    other.score(*stream, [&](std::int64_t, std::int64_t lane, const LaneSlot& slot) {
      packed.fill(lane, plain, slot);
    });
    CHECK(fresh.rank(0).scores().sums() == other.rank(0).scores().sums());
  }
}

TEST_CASE("document scores: validation losses are those without scored lanes",
          "[engine][choices][P1]") {
  const Rows rows(24, true);
  Options options = scored_options(Architecture::enoki, rows, 2);
  const Scored with = score(options, rows);
  options.scored_lanes = 0;
  CHECK(score(options, rows).cross_entropy == with.cross_entropy);
}

TEST_CASE("document scores: a score is the sum of the generator's log-probabilities",
          "[engine][choices]") {
  const Rows rows(24, true);
  Options options = scored_options(Architecture::dstar_qwen3, rows, 1);
  options.eval_lanes = 0;
  const auto stream = kernels::make_inline_stream(1);
  WorldStep world(kernels::cpu_backend(), options);
  world.score(*stream, [&](std::int64_t, std::int64_t lane, const LaneSlot& slot) {
    rows.fill(lane, options, slot);
  });
  std::vector<std::vector<float>> weights;
  std::vector<const float*> flat;
  for (const UnitParameters& unit : describe_units(options.model)) {
    weights.emplace_back(static_cast<std::size_t>(unit.element_count));
    for (const Parameter& parameter : unit.parameters) {
      const auto values = testing::state_of(world.rank(0), weight_name(parameter.name));
      std::copy(values.begin(), values.end(), weights.back().begin() + parameter.offset);
    }
  }
  for (const auto& unit : weights) {
    flat.push_back(unit.data());
  }
  TextGenerator generator(kernels::cpu_backend(), options.model, {.context = 24, .texts = 1}, flat);
  std::size_t next = 0;
  for (const Document& document : documents()) {
    TextGenerator::Tokens tokens;
    for (std::int64_t i = 0; i < document.length; ++i) {
      tokens.push_back(document.token(i));
    }
    const auto log_probs = generator.log_probabilities(*stream, tokens);
    double sum = 0.0;
    for (std::size_t i = static_cast<std::size_t>(document.context); i < tokens.size(); ++i) {
      sum += static_cast<double>(log_probs[i - 1]);
    }
    CHECK(world.rank(0).scores().sums()[next++] == sum);
  }
}

}  // namespace train::engine::document_scores_test
