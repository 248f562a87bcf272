// Ranks in processes with a device each (parallel.transport = "nccl"): the program on emulated
// CUDA, whose devices are told apart by CUDA_VISIBLE_DEVICES alone, and a NCCL that is emulated
// (tests/cuda_emulation/nccl).

#include <random>

#include "tests/integration/sites/killed_runs.hpp"

using namespace train::test;

namespace {

Words joined_keys(const Words& more) {
  return joined(
      {"runtime.device=cuda", "precision.compute=bf16", "run.steps=4", "model.layers=1",
       "data.sequence_length=8", "batch.micro_batch=1", "batch.lanes=4", "eval.interval_steps=2",
       "checkpoint.interval_steps=2", "schedule.warmup_steps=2", "run.digest_interval_steps=1"},
      more);
}

std::unique_ptr<Process> start_emulated(const RunSite& site, const Words& keys,
                                        const Words& variables = {}) {
  Words words = joined({"/usr/bin/env", "CUDA_VISIBLE_DEVICES=4,5,6,7"}, variables);
  words.emplace_back(ACTORTRAIN_BINARY_DIR "/actortrain_emulated");
  return std::make_unique<Process>(joined(words, RunSite::run_words(joined_keys(keys))),
                                   site.path());
}

Ended emulated_ranks(const RunSite& site, const Words& keys) {
  Ended ended = start_emulated(site, keys)->wait();
  INFO(ended.err);
  CHECK(ended.signal == 0);
  REQUIRE(ended.exit_code == 0);
  return ended;
}

Words ranks_of(const std::string& name, int ranks, const std::string& strategy) {
  return {"run.name=" + name, fmt::format("parallel.ranks={}", ranks),
          "parallel.strategy=" + strategy, "recovery.max_respawns=1000"};
}

/// True where there was no nccl.h to build with; says so, once.
bool no_nccl() {
  static const bool none = [] {
    const bool missing =
        !fs::exists(ACTORTRAIN_BINARY_DIR "/tests/cuda_emulation/nccl/libnccl.so.2");
    if (missing) {
      fmt::print("skipped: nccl: this build found no nccl.h\n");
    }
    return missing;
  }();
  return none;
}

void refused(const RunSite& site, const Words& keys, const Words& variables, const Words& parts) {
  const Ended ended = start_emulated(site, keys, variables)->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 2);
  CHECK(lines_of(ended.err).size() == 1);
  for (const std::string& part : parts) {
    INFO(part);
    CHECK(has(ended.err, part));
  }
}

}  // namespace

TEST_CASE("nccl: ranks with a device each have the bits of one, also resumed and on another number",
          "[integration][.full][nccl][device][P1]") {
  if (no_nccl()) {
    return;
  }
  const RunSite site;
  emulated_ranks(site, {"run.name=alone"});
  const Words expected = results_of(site.run("alone"));
  const std::vector<std::pair<int, std::string>> plans = {
      {2, "none"}, {2, "full"}, {4, "gradient"}};
  for (const auto& [ranks, strategy] : plans) {
    INFO(ranks << " ranks, " << strategy);
    const std::string name = fmt::format("{}_{}", ranks, strategy);
    emulated_ranks(site, ranks_of(name, ranks, strategy));
    CHECK(results_of(site.run(name)) == expected);
    CHECK(has(read_bytes(site.run(name) / "config.toml"), "transport = \"nccl\""));
  }
  // By way of the host's memory, and from where NCCL left off.
  forget_after(site.run("2_full"), 2);
  const Ended resumed =
      emulated_ranks(site, joined(ranks_of("2_full", 3, "full"), {"parallel.transport=tcp"}));
  CHECK(has(resumed.err, "resumed step=2 "));
  CHECK(results_of(site.run("2_full")) == expected);
}

TEST_CASE("nccl: kill -9 of a rank in the middle of its bytes ends with the same bits",
          "[integration][.full][soak][nccl][recovery][P1][P4]") {
  if (no_nccl()) {
    return;
  }
  const RunSite site;
  std::mt19937 random(Catch::rngSeed());
  const Words longer = {"run.steps=12", "recovery.snapshot_interval_steps=2"};
  emulated_ranks(site, joined({"run.name=alone"}, longer));
  const Words expected = results_of(site.run("alone"));
  for (int kill = 0; kill < soak(); ++kill) {
    const int group = 4 + static_cast<int>(random() % 17);  // in one of the first steps
    INFO("group " << group);
    const std::string name = fmt::format("killed{}", kill);
    const fs::path stalled = site / (name + "_stalled");
    const auto launcher = start_emulated(site, joined(ranks_of(name, 2, "full"), longer),
                                         {fmt::format("PLAYED_NCCL_STALL=1 {}", group),
                                          "PLAYED_NCCL_STALL_ONCE=" + stalled.string()});
    REQUIRE(launcher->until([&] { return fs::exists(stalled); }));
    ::kill(workers_of(site.path()).at(1), SIGKILL);
    const Ended ended = launcher->wait();
    INFO(ended.err);
    CHECK(ended.exit_code == 0);
    CHECK(results_of(site.run(name)) == expected);
    CHECK(has(ended.err, "respawned generation="));
  }
}

TEST_CASE("nccl: mistakes", "[integration][.full][nccl][mistakes]") {
  if (no_nccl()) {
    return;
  }
  const RunSite site;
  const Words two = {"parallel.ranks=2"};
  refused(site, two, {"CUDA_VISIBLE_DEVICES=0"},
          {"parallel.ranks", "2 ranks", "there is 1", "\"inproc\""});
  refused(site, joined(two, {"parallel.transport=nccl"}), {"PLAYED_NCCL_VERSION=21200"},
          {"parallel.transport", "2.12 is too old", "\"tcp\""});
  refused(site,
          joined(two, {"runtime.device=cpu", "parallel.transport=nccl", "precision.compute=fp32"}),
          {}, {"parallel.transport", "runtime.device is \"cpu\"", "\"tcp\""});
}
