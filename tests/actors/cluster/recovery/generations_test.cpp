// Generations of ranks: how often they follow each other, and from which checkpoint.

#include "run/recovery/generations.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <vector>

#include "actors/train/runtime/rank_setup.hpp"
#include "base/exit_codes.hpp"
#include "checkpoint/save/writer.hpp"
#include "tests/support/disks/failing_disk.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/runs/small_run.hpp"

namespace train::actors {
namespace {

namespace fs = std::filesystem;
using Steps = std::vector<std::int64_t>;

/// A run of 100 steps that has saved some of them.
class SavedRun {
 public:
  SavedRun(std::int64_t ranks, const Steps& steps) {
    config_.run.dir = (directory_ / "runs").string();
    config_.run.steps = 100;
    config_.run.tensorboard = false;
    config_.eval.interval_steps = 0;
    config_.data.dir = directory_.path().string();
    config_.checkpoint.local_dir = "none";
    config_.checkpoint.keep_last = 1;
    config_.parallel.ranks = ranks;
    config_.recovery.max_respawns = 2;
    config_.batch.lanes = 2;
    for (const char* const file : {"train.bin", "val.bin"}) {
      test::write_bytes(directory_ / file, std::string(400, '\0'));
    }
    const run::PreparedRun run = prepare();
    const auto contexts = make_local_ranks(run.plan, {});
    REQUIRE(contexts);
    for (const std::int64_t step : steps) {
      save(run, *contexts, step);
    }
  }

  [[nodiscard]] run::PreparedRun prepare() const {
    auto plan = run::plan_run(config_);
    INFO((plan ? std::string() : plan.error().message));
    REQUIRE(plan);
    auto run = run::prepare_run(std::move(plan).value(), {});
    INFO((run ? std::string() : run.error().message));
    REQUIRE(run);
    return std::move(run).value();
  }
  [[nodiscard]] fs::path checkpoints() const { return directory_ / "runs/run/checkpoints"; }
  [[nodiscard]] fs::path shard(std::int64_t step) const {
    return checkpoints() / checkpoint::checkpoint_name(step) /
           fmt::format("shard-00000-of-{:05}.safetensors", config_.parallel.ranks);
  }
  void flip_last_byte(std::int64_t step) const {
    test::flip_byte(shard(step), fs::file_size(shard(step)) - 1);
  }
  [[nodiscard]] std::vector<std::string> names() const { return test::names_in(checkpoints()); }

 private:
  /// As ranks and index do it; nothing is retired for it.
  static void save(const run::PreparedRun& run, const std::vector<RankContext>& contexts,
                   std::int64_t step) {
    const auto ranks = static_cast<std::int64_t>(contexts.size());
    std::vector<checkpoint::ShardRecord> records;
    for (const RankContext& context : contexts) {
      const auto views = context->engine->state().shard_views();
      const auto record = checkpoint::write_shard(
          checkpoint::incoming_path(run.store->locations().project, run.store->tag(), step), views,
          {.index = context->rank, .count = ranks});
      REQUIRE(record);
      records.push_back(*record);
    }
    std::vector<ShardWritten> shards;
    for (const auto& record : records) {
      shards.push_back({.step = step, .record = checkpoint::shard_text(record)});
    }
    REQUIRE(run.store->publish(step, shards));
  }

  test::TempDirectory directory_;
  configs::RunConfig config_ = test::small_run(64);
};

/// A generation whose ranks restore what they are told to, and then have nothing to do.
Result<RunFinished> restore_and_finish(run::PreparedRun& run) {
  StartState start;
  if (run.start.checkpoint) {
    start.checkpoint = run.start.checkpoint->path;
  }
  const auto contexts = make_local_ranks(run.plan, start);
  if (!contexts) {
    REQUIRE(contexts.error().kind == ErrorKind::damage);
    return RunFinished{run.first_step(), kExitFailure, contexts.error().message,
                       run::GenerationEnd::damage_found};
  }
  run.store->restored();
  return RunFinished{run.first_step(), kExitFinished, "finished"};
}

}  // namespace

TEST_CASE("generations: each rank reads the checkpoint that it resumes from once, and nobody else",
          "[actors][generations][CK-3][P3][P4]") {
  const std::int64_t ranks = GENERATE(1, 2);
  const SavedRun saved(ranks, {10, 20});
  const test::CountedReads reads("/shard-");
  run::PreparedRun run = saved.prepare();
  CHECK(reads.bytes() == 0);
  const auto outcome = run::run_generations(run, restore_and_finish);
  REQUIRE(outcome);
  CHECK(outcome->exit_code == kExitFinished);
  CHECK(outcome->step == 20);
  std::uint64_t bytes = 0;
  for (const auto& file : fs::directory_iterator(saved.shard(20).parent_path())) {
    bytes += file.path().extension() == ".safetensors" ? file.file_size() : 0;
  }
  CHECK(reads.bytes() == static_cast<std::uint64_t>(ranks) * bytes);
}

TEST_CASE(
    "generations: damaged checkpoints go one by one, and the run resumes from the first that "
    "is not, however many starts that takes",
    "[actors][generations][CK-3][P3]") {
  const std::int64_t ranks = GENERATE(1, 2);
  const SavedRun saved(ranks, {10, 20, 30, 40, 50});
  for (const std::int64_t step : {20, 30, 40, 50}) {  // more than recovery.max_respawns
    saved.flip_last_byte(step);
  }
  run::PreparedRun run = saved.prepare();
  CHECK(run.first_step() == 50);
  const auto outcome = run::run_generations(run, restore_and_finish);
  REQUIRE(outcome);
  CHECK(outcome->exit_code == kExitFinished);
  CHECK(outcome->step == 10);
  CHECK(run.job_first_step == 10);
  CHECK(saved.names() == std::vector<std::string>{"damaged-step-00000020", "damaged-step-00000030",
                                                  "damaged-step-00000040", "damaged-step-00000050",
                                                  "step-00000010"});
}

TEST_CASE("generations: where no checkpoint is complete the run ends and names them all",
          "[actors][generations][CK-3][P3]") {
  const SavedRun saved(1, {10, 20});
  saved.flip_last_byte(10);
  saved.flip_last_byte(20);
  run::PreparedRun run = saved.prepare();
  const auto outcome = run::run_generations(run, restore_and_finish);
  REQUIRE_FALSE(outcome);
  CHECK(outcome.error().exit_code() == kExitFailure);
  CHECK_THAT(outcome.error().message,
             Catch::Contains("damaged-step-00000010") && Catch::Contains("damaged-step-00000020"));
}

TEST_CASE(
    "generations: a rank that calls a good checkpoint damaged costs none, and is a lost start",
    "[actors][generations][CK-3][P3][P4]") {
  const std::int64_t ranks = GENERATE(1, 2);
  const SavedRun saved(ranks, {10, 20});
  run::PreparedRun run = saved.prepare();
  Steps starts;
  const auto outcome = run::run_generations(run, [&starts](run::PreparedRun& prepared) {
    starts.push_back(prepared.first_step());
    return RunFinished{prepared.first_step(), kExitFailure, "rank 0: tensor x",
                       run::GenerationEnd::damage_found};
  });
  REQUIRE(outcome);
  CHECK(outcome->exit_code == kExitFailure);
  CHECK_THAT(outcome->text, Catch::StartsWith("rank 0: tensor x; ") &&
                                Catch::Contains("step-00000020 and finds no damage"));
  // Of two ranks the first start, recovery.max_respawns more, and one of one rank, which is in the
  // launcher and is not started again.
  CHECK(starts == (ranks == 1 ? Steps{20} : Steps{20, 20, 20, 20}));
  CHECK(saved.names() == std::vector<std::string>{"step-00000010", "step-00000020"});
}

TEST_CASE("generations: nothing is retired before the ranks have what the run resumes from",
          "[actors][generations][CK-6][P3]") {
  const SavedRun saved(1, {10, 20, 30});
  run::PreparedRun run = saved.prepare();
  const auto outcome = run::run_generations(run, [&saved](run::PreparedRun& prepared) {
    CHECK(saved.names().size() == 3);
    return restore_and_finish(prepared);
  });
  REQUIRE(outcome);
  CHECK(saved.names() == std::vector<std::string>{"step-00000030"});
}

TEST_CASE("generations: of a run with nothing to do a start verifies what nobody restores",
          "[actors][generations][CK-3][P3]") {
  const SavedRun saved(1, {10, 100});
  SECTION("good") {
    CHECK(saved.prepare().nothing_to_do());
    CHECK(saved.names() == std::vector<std::string>{"step-00000100"});
  }
  SECTION("damaged") {
    saved.flip_last_byte(100);
    const run::PreparedRun run = saved.prepare();
    CHECK(run.first_step() == 10);
    CHECK(saved.names() == std::vector<std::string>{"damaged-step-00000100", "step-00000010"});
  }
}

TEST_CASE("generations: only a job that has saved something since it began is worth another",
          "[actors][generations][P4]") {
  CHECK(run::worth_another_job(2, 31, 30));
  CHECK_FALSE(run::worth_another_job(2, 30, 30));  // resumed, and lost before its first save
  CHECK_FALSE(run::worth_another_job(2, 0, 0));
  CHECK_FALSE(run::worth_another_job(2, std::nullopt, 0));
  CHECK_FALSE(run::worth_another_job(1, 31, 30));  // one node goes on with fewer ranks
}

}  // namespace train::actors
