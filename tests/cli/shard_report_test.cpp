#include "cli/report/shard_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "base/text/units.hpp"
#include "engine/optimizer/registry.hpp"
#include "engine/rank/exec/rank_memory.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "engine/rank/state/state_rows.hpp"
#include "tests/support/inputs/reshape.hpp"

namespace train::cli::shard_report_test {
namespace {

using engine::CollectiveKind;
using Options = engine::RankOptions;

Options report_options(std::int64_t ranks, const char* strategy) {
  Options options;
  engine::testing::reshape(options, [](engine::ModelShape& shape) {
    shape.layers = 2;
    shape.heads = 2;
    shape.head_dim = 8;
    shape.embedding_dim = 16;
    shape.mlp_hidden = 64;
    shape.vocab_size = 64;
  });
  options.batch.lanes = 12;
  options.batch.micro_batch = 2;
  options.seq_len = 16;
  options.parallel.ranks = ranks;
  options.parallel.strategy = strategy;
  options.parallel.wrapping = {"per_block"};
  return options;
}

/// Output of `plan` for ranks of one process, which keep no snapshots.
std::string report_of(const Options& options, bool tensors = true) {
  run::RunPlan plan{.config = {}, .engine = options, .data = {}, .data_fingerprint = {}};
  plan.config.parallel = options.parallel;
  plan.config.parallel.transport = "inproc";
  return plan_report(plan, tensors);
}

StepTraffic traffic_of(Options options, std::int64_t rank) {
  const engine::ShardPlan plan = engine::plan_of(options).value();
  options.rank = rank;
  return step_traffic(plan, engine::RankLayout(plan, options));
}

/// Bytes of a quarter of each parameter, padding included, sent to three others.
std::size_t quarter_to_others(const Options& options) {
  std::size_t elements = 0;
  for (const engine::UnitParameters& unit : engine::describe_units(options.model)) {
    for (const engine::Parameter& parameter : unit.parameters) {
      REQUIRE(parameter.rows() % 4 == 0);
      elements += static_cast<std::size_t>((parameter.count() / 4 + 15) / 16 * 16);
    }
  }
  return 3 * elements * sizeof(float);
}

/// The line that begins with `start`; columns are one blank apart.
std::string line_of(const std::string& text, const std::string& start) {
  std::string squeezed;
  for (const char letter : text) {
    if (letter != ' ' || !squeezed.ends_with(' ')) {
      squeezed += letter;
    }
  }
  const std::size_t first = squeezed.find('\n' + start + ' ');
  INFO(start);
  REQUIRE(first != std::string::npos);
  return squeezed.substr(first + 1, squeezed.find('\n', first + 1) - first - 1);
}

}  // namespace

TEST_CASE("step traffic: a rank sends what its strategy has to move", "[actors][shard_report]") {
  Options options = report_options(4, "none");
  options.batch.lanes = 8;  // two lanes a rank that are one subtree
  const std::size_t part = quarter_to_others(options);
  const StepTraffic none = traffic_of(options, 1);
  CHECK(none.of(CollectiveKind::gather) == 0);
  CHECK(none.of(CollectiveKind::all_gather) == 0);
  CHECK(none.of(CollectiveKind::reduce) == part);
  CHECK(none.of(CollectiveKind::broadcast) == part);
  CHECK(none.of(CollectiveKind::loss_and_norm) > 0);

  options.parallel.strategy = "gradient";  // every lane is sent
  const StepTraffic gradient = traffic_of(options, 1);
  CHECK(gradient.of(CollectiveKind::all_gather) == part);
  CHECK(gradient.of(CollectiveKind::reduce) == 2 * part);
  CHECK(gradient.of(CollectiveKind::broadcast) == 0);

  options.parallel.strategy = "full";
  options.parallel.reshard = "never";
  CHECK(traffic_of(options, 1).of(CollectiveKind::gather) == part);
  options.precision.compute = options.precision.reduce = "bf16";
  CHECK(traffic_of(options, 1).of(CollectiveKind::gather) == part / 2);
  CHECK(traffic_of(options, 1).of(CollectiveKind::reduce) == part);
}

TEST_CASE("shard report: has a column for this run and for each strategy",
          "[actors][shard_report]") {
  const Options options = report_options(6, "gradient");
  const std::string text = report_of(options);
  CHECK_THAT(text, Catch::StartsWith("6 ranks, 12 lanes a step: 2 rounds, gradients are sent 2 "
                                     "times a step\n"));
  CHECK(line_of(text, "at most, on the fullest rank") ==
        "at most, on the fullest rank this run none optimizer gradient full hybrid 3");
  CHECK(line_of(text, "sent by a rank in a step") ==
        "sent by a rank in a step this run none optimizer gradient full hybrid 3");
  Options none = options;
  none.parallel.strategy = "none";
  const engine::MemoryPlan whole = engine::plan_memory(none);
  CHECK_THAT(line_of(text, "host: optimizer"),
             Catch::Contains(' ' + format_bytes(whole.optimizer_bytes) + ' '));
  CHECK_THAT(line_of(text, "gather"), Catch::StartsWith("gather 0 B 0 B 0 B 0 B "));
}

TEST_CASE("shard report: the frozen copy of a live reference counts, whatever the strategy",
          "[actors][shard_report]") {
  Options options = report_options(4, "full");
  options.objective.name = "dpo";
  options.objective.reference = "live";
  const std::string text = report_of(options);
  const std::size_t shard = engine::plan_memory(options).reference_bytes;
  REQUIRE(shard > 0);
  Options none = options;
  none.parallel.strategy = "none";
  const std::size_t whole = engine::plan_memory(none).reference_bytes;
  REQUIRE(whole > shard);
  CHECK_THAT(line_of(text, "host: reference"),
             Catch::StartsWith(
                 fmt::format("host: reference {} {} ", format_bytes(shard), format_bytes(whole))));
}

TEST_CASE("shard report: says nothing of tensors unasked", "[actors][shard_report]") {
  CHECK(report_of(report_options(4, "full"), false).find("lm_head") == std::string::npos);
}

TEST_CASE("shard report: lists rows by rank and collectives by channel", "[actors][shard_report]") {
  const std::string full = report_of(report_options(6, "full"));
  CHECK_THAT(line_of(full, "transformer.wte.weight"),
             Catch::Contains("64 x 16 full 10 11 11 10 11 11 10 11 11 10 11 11"));
  // Two rounds, three buffers for four groups: what is kept in between is not gathered again.
  CHECK_THAT(line_of(full, "gather gather"), Catch::StartsWith("gather gather 7 "));
  CHECK_THAT(line_of(full, "reduce reduce"), Catch::StartsWith("reduce reduce 8 "));
  CHECK_THAT(line_of(full, "control loss and norm"), Catch::StartsWith("control loss and norm 1 "));
  CHECK(full.find("all_gather of") == std::string::npos);

  const std::string many = report_of(report_options(12, "optimizer"));
  CHECK_THAT(line_of(many, "transformer.wte.weight"),
             Catch::Contains("64 x 16 optimizer all 5 to 6"));
  CHECK_THAT(line_of(many, "gather all_gather"), Catch::StartsWith("gather all_gather 4 "));
}

TEST_CASE("shard report: names the owner of a parameter that is not cut",
          "[actors][shard_report][optimizer]") {
  Options options = report_options(6, "optimizer");
  options.whole_parameters = {"transformer.wte.weight", "lm_head.weight"};
  const std::string text = report_of(options);
  CHECK_THAT(line_of(text, "transformer.wte.weight"),
             Catch::Contains("64 x 16 optimizer all all on 0"));
  CHECK_THAT(line_of(text, "lm_head.weight"), Catch::Contains("64 x 16 optimizer all all on 1"));
}

TEST_CASE("shard report: one rank has nobody to send to", "[actors][shard_report]") {
  const std::string text = report_of(report_options(1, "full"));
  CHECK_THAT(text, Catch::StartsWith("1 rank, 12 lanes a step: 12 rounds, gradients are sent 0 "
                                     "times a step\n"));
  CHECK_THAT(text, Catch::Contains("none, one rank has nobody to send to"));
  CHECK(line_of(text, "at most, on the fullest rank") == "at most, on the fullest rank this run");
}

TEST_CASE("shard report: settings that fit one strategy do not stop the others",
          "[actors][shard_report]") {
  Options options = report_options(6, "full");
  // More than the groups of hybrid have. (Assigning the literal makes GCC 12 warn wrongly.)
  options.parallel.reshard = std::string("6");
  options.parallel.strategy_by_unit = {"head = none"};
  const std::string text = report_of(options);
  CHECK_THAT(line_of(text, "lm_head.weight"), Catch::Contains("64 x 16 none all all"));
  CHECK(line_of(text, "at most, on the fullest rank").find("hybrid 3") != std::string::npos);
}

}  // namespace train::cli::shard_report_test
