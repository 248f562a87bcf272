// What it takes a rank to begin with a published model's weights: bytes, not times. The files are
// sparse, so that a model of any size is there at once.

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/models/published_weights.hpp"
#include "configs/models/shipped_models.hpp"
#include "engine/model/architectures/architectures.hpp"
#include "engine/model/model.hpp"
#include "engine/rank/exec/rank_engine.hpp"
#include "engine/rank/exec/rank_memory.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "engine/rank/plan/run_device.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/inputs/zero_model.hpp"
#include "tests/support/processes/contained.hpp"

namespace train::checkpoint {
namespace {

using train::test::TempDirectory;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kBesides = 64 * kMiB;

engine::RankOptions options_of(const engine::ModelSpec& spec) {
  engine::RankOptions options;
  options.model = spec;
  options.seq_len = 8;
  options.batch.lanes = 4;
  options.batch.micro_batch = 1;
  options.total_steps = 10;
  options.parallel.ranks = 4;
  options.parallel.strategy = "full";
  options.parallel.wrapping = {"per_block"};
  options.rank = 1;
  return options;
}

/// Of the rank's rows in the files.
std::uint64_t shard_file_bytes(const engine::RankOptions& options) {
  const engine::ShardPlan plan = engine::plan_of(options).value();
  const engine::RankLayout layout(plan, options);
  std::uint64_t bytes = 0;
  for (std::size_t group = 0; group < plan.groups().size(); ++group) {
    for (const engine::Segment& segment : layout.group(group).state.segments) {
      bytes += 2 * static_cast<std::uint64_t>(segment.count);
    }
  }
  return bytes;
}

}  // namespace

TEST_CASE("import: a rank reads its own rows, and takes 64 MiB besides what it keeps at most",
          "[checkpoint][published_weights][fork]") {
  // The embedding alone is 67 MB in the files, and twice as much in fp32.
  const auto spec = engine::spec_from_config(
      R"({"model_type": "llama", "vocab_size": 131072, "hidden_size": 256,
          "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "tie_word_embeddings": true})",
      "test", 0);
  REQUIRE(spec.ok());
  const TempDirectory directory;
  test::write_zeros(directory.path(), *spec, 16 * kMiB);
  engine::RankOptions options = options_of(*spec);
  const std::uint64_t kept = engine::plan_memory(options).total_bytes();
  const auto imported = test::run_contained([&] {
    auto weights = PublishedWeights::open(directory.path(), *spec);
    options.init.source = std::move(weights).value();
    return engine::make_rank_engine("cpu", options).ok() ? std::string() : std::string("no engine");
  });
  CHECK(imported.signal == 0);
  CHECK(imported.text.empty());
  const std::uint64_t shard = shard_file_bytes(options);
  CHECK(shard * 4 == Approx(2 * count_parameters(*spec).total).epsilon(0.01));
  CHECK(imported.used.read_bytes >= shard);
  CHECK(imported.used.read_bytes <= shard + kMiB);
  if (!test::sanitized()) {
    CHECK(imported.used.growth_bytes >= 4 * shard / 2);  // or it was not measured
    CHECK(imported.used.growth_bytes <= kept + kBesides);
  }
}

TEST_CASE("import: of a model of 8 B weights a rank of four reads its quarter in little memory",
          "[.full][checkpoint][published_weights][fork][exhaustive]") {
  std::string config;
  for (const configs::ShippedModel& model : configs::shipped_models()) {
    config = model.name == "llama-3.1-8b" ? std::string(model.config_json) : config;
  }
  const auto spec = engine::spec_from_config(config, "llama-3.1-8b", 0);
  REQUIRE(spec.ok());
  const TempDirectory directory;
  test::write_zeros(directory.path(), *spec, 4096 * kMiB);
  const engine::RankOptions options = options_of(*spec);
  const auto read = test::run_contained([&] {
    const auto weights = PublishedWeights::open(directory.path(), *spec).value();
    const engine::ShardPlan plan = engine::plan_of(options).value();
    const engine::RankLayout layout(plan, options);
    std::vector<float> rows;
    for (std::size_t group = 0; group < plan.groups().size(); ++group) {
      for (const engine::Segment& segment : layout.group(group).state.segments) {
        const engine::Parameter& parameter = plan.groups()[group].parameters[segment.parameter];
        rows.resize(static_cast<std::size_t>(parameter.cols()));
        for (std::int64_t row = 0; row < segment.rows; ++row) {
          if (!weights->read_rows(parameter, segment.first_row + row, 1, rows).ok()) {
            return std::string("unreadable");
          }
        }
      }
    }
    return std::string();
  });
  CHECK(read.signal == 0);
  CHECK(read.text.empty());
  const std::uint64_t shard = shard_file_bytes(options);
  CHECK(shard == Approx(4.0e9).epsilon(0.01));
  CHECK(read.used.read_bytes >= shard);
  CHECK(read.used.read_bytes <= shard + kMiB);
  if (!test::sanitized()) {
    CHECK(read.used.growth_bytes <= kBesides);
  }
}

}  // namespace train::checkpoint
