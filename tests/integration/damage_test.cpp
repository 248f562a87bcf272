// What the world does to a run: damaged files, a full disk, numbers that blow up. P3: a checkpoint
// is whole or absent.

#include "tests/integration/rank_runs.hpp"
#include "tests/integration/run_site.hpp"
#include "tests/integration/table_end.hpp"
#include "tests/support/disks/full_disk.hpp"

using namespace train::test;

namespace {

/// Of a run whose checkpoints take 10 MB each.
const Words kTenMegabytes = {"model.layers=4", "model.head_dim=64", "run.tensorboard=false",
                             "checkpoint.interval_steps=5"};

fs::path shard_of(const fs::path& run, std::int64_t step) {
  return run / "checkpoints" / train::checkpoint::checkpoint_name(step) /
         "shard-00000-of-00001.safetensors";
}

void damage(const fs::path& file) { flip_byte(file, fs::file_size(file) - 1000); }

bool any_starts_with(const Words& names, const std::string& start) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return name.starts_with(start); });
}

}  // namespace

TEST_CASE("damage: a flipped bit sets the newest checkpoint aside, the one before it is used",
          "[integration][damage][P1][P3]") {
  const RunSite site;
  site.train();
  const Words whole = results_of(site.run());
  damage(shard_of(site.run(), 20));
  const Ended ended = site.train();
  INFO(ended.err);
  CHECK(has(ended.err, "warning checkpoint_set_aside"));
  CHECK(has(ended.err, "step-00000020"));
  CHECK(has(ended.err, "resumed step=10 "));
  CHECK(results_of(site.run()) == whole);
  CHECK(checkpoint_steps(site.run()) == std::vector<std::int64_t>{10, 20});
  CHECK(any_starts_with(names_in(site.run() / "checkpoints"), "damaged-step-00000020"));
}

TEST_CASE("damage: a missing or cut file of a checkpoint is noticed",
          "[integration][.full][damage][P3]") {
  const RunSite site;
  site.train();
  const Words whole = results_of(site.run());
  SECTION("manifest missing") {
    fs::remove(site.run() / "checkpoints/step-00000020/manifest.json");
  }
  SECTION("manifest empty") {
    write_bytes(site.run() / "checkpoints/step-00000020/manifest.json", "");
  }
  SECTION("shard missing") { fs::remove(shard_of(site.run(), 20)); }
  SECTION("shard cut") { fs::resize_file(shard_of(site.run(), 20), 1000); }
  const Ended ended = site.train();
  CHECK(has(ended.err, "warning checkpoint_set_aside"));
  CHECK(results_of(site.run()) == whole);
}

TEST_CASE("damage: with no whole checkpoint left nothing is started over in silence",
          "[integration][damage][P3]") {
  const RunSite site;
  site.train();
  const std::string metrics = read_bytes(site.run() / "metrics.jsonl");
  damage(shard_of(site.run(), 10));
  damage(shard_of(site.run(), 20));
  for (int attempt = 0; attempt < 2; ++attempt) {  // the second time all are set aside already
    const Ended ended = site.call({"run", "tiny.toml"});
    INFO(ended.err);
    CHECK(ended.exit_code == 1);
    CHECK(lines_of(ended.err).size() == 1);
    CHECK(has(ended.err, "step-00000010"));
    CHECK(has(ended.err, "step-00000020"));
    CHECK(has(ended.err, "start afresh"));
    CHECK(read_bytes(site.run() / "metrics.jsonl") == metrics);
  }
}

TEST_CASE("damage: a lost or damaged index is made anew", "[integration][.full][damage][P3]") {
  const RunSite site;
  site.train();
  const Words whole = results_of(site.run());
  forget_after(site.run(), 10);
  SECTION("lost") { fs::remove_all(site.run() / "index"); }
  SECTION("damaged") {
    for (const auto& entry : fs::directory_iterator(site.run() / "index")) {
      if (entry.is_regular_file() && entry.file_size() > 0) {
        write_bytes(entry.path(), "damaged");
      }
    }
  }
  site.train();
  CHECK(results_of(site.run()) == whole);
}

TEST_CASE("damage: a checkpoint that cannot be read stops the start, and is gone on from later",
          "[integration][damage][P3]") {
  const RunSite site;
  site.train();
  const auto before = tree_of(site.run() / "checkpoints");
  const auto on_bad_disk = [&](const Words& words) {
    Process process(joined({"/usr/bin/env", "ACTORTRAIN_TEST_READ=5:step-00000020/shard",
                            ACTORTRAIN_BINARY_DIR "/actortrain_faulty"},
                           words),
                    site.path());
    return process.wait();
  };
  const Ended ended = on_bad_disk(RunSite::run_words({}));
  INFO(ended.err);
  CHECK(ended.exit_code == 1);
  CHECK(lines_of(ended.err).size() == 1);
  CHECK(has(ended.err, "step-00000020 cannot be read"));
  CHECK(has(ended.err, "shard-00000-of-00001.safetensors: Input/output error"));
  const Ended verified = on_bad_disk({"checkpoints", "verify", site.run().string()});
  CHECK(verified.exit_code == 1);
  CHECK(has(verified.out, "step-00000010  whole"));
  CHECK(has(verified.out, "step-00000020  cannot be read"));
  const Ended audited = on_bad_disk({"verify", site.run().string()});
  CHECK(audited.exit_code == 1);
  CHECK(has(audited.out, "problem: step-00000020: cannot be read"));
  CHECK(tree_of(site.run() / "checkpoints") == before);
  CHECK(has(site.train().err, "resumed step=20 "));
}

TEST_CASE("damage: a damaged stored configuration is one line", "[integration][damage]") {
  const RunSite site;
  site.train({"run.steps=4", "schedule.warmup_steps=0"});
  write_bytes(site.run() / "config.toml", "[run\nname");
  const Ended ended =
      site.call({"run", "tiny.toml", "--set", "run.steps=4", "--set", "schedule.warmup_steps=0"});
  INFO(ended.err);
  CHECK(ended.exit_code == 2);
  CHECK(lines_of(ended.err).size() == 1);
  CHECK(has(ended.err, "runs/tiny/config.toml"));
}

TEST_CASE("damage: a full disk costs no checkpoint, and space lets the run go on",
          "[integration][.full][damage][P1][P3]") {
  const RunSite site;
  site.train({"run.name=whole"});
  const SmallDisk disk(site / "small", "1m");
  if (!disk.mounted()) {
    return;
  }
  // The first checkpoint and that of the end are saved on any disk; there is room for one.
  const Words keys = {"run.dir=small", "checkpoint.interval_steps=10", "run.tensorboard=false"};
  const auto filler = disk.path() / "filler";
  write_bytes(filler, std::string(660 * 1024, 'x'));
  const Ended ended = site.start_run(keys)->wait();
  INFO(ended.err);
  check_ends_as(end_of({.in = HeadState::training,
                        .events = {HeadEvent::program_over},
                        .words = {.text = "the last checkpoint was not saved: *small/tiny*"}}),
                ended, "the last");
  CHECK(has(ended.err, "checkpoint_failed"));
  CHECK(has(ended.err, "disk full"));
  CHECK(lines_of(ended.err).back() == "error " + first_error(ended, "the last"));
  CHECK_FALSE(checkpoint_steps(disk.path() / "tiny").empty());  // and each is whole
  fs::remove(filler);
  Words fewer = keys;
  fewer.push_back("checkpoint.keep_last=1");
  const Ended resumed = site.train(fewer);
  CHECK(has(resumed.err, "resumed step="));
  CHECK(results_of(disk.path() / "tiny") == results_of(site.run("whole")));
}

TEST_CASE("damage: a start removes what the rule lets go, so that there is room for the next save",
          "[integration][.full][damage][P3]") {
  const RunSite site;
  const SmallDisk disk(site / "small", "40m");
  if (!disk.mounted()) {
    return;
  }
  const std::string ranks = GENERATE("1", "2");
  INFO("ranks: " << ranks);
  const Words keys = joined(kTenMegabytes, {"run.dir=small", "parallel.ranks=" + ranks});
  for (const char* steps : {"run.steps=5", "run.steps=10", "run.steps=15"}) {
    site.train(joined(keys, {steps}));
  }
  const Ended ended =
      site.start_run(joined(keys, {"run.steps=30", "checkpoint.keep_last=2"}))->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK_FALSE(has(ended.err, "checkpoint_failed"));
  // Steps that are faster than saves leave some out, never the last.
  const std::vector<std::int64_t> left = checkpoint_steps(disk.path() / "tiny");
  CHECK(left.size() == 2);
  CHECK(left.back() == 30);
}

TEST_CASE("damage: a save that meets a full disk has room where the rule lets an old one go",
          "[integration][damage][P3]") {
  const RunSite site;
  const SmallDisk disk(site / "small", "40m");
  if (!disk.mounted()) {
    return;
  }
  const std::string ranks = GENERATE("1", "2");
  INFO("ranks: " << ranks);
  write_bytes(disk.path() / "filler", std::string(14'000'000, 'x'));  // room for two and a half
  // A save each: where steps are faster than saves, one of several in a run may be left out.
  const Words keys =
      joined(kTenMegabytes, {"run.dir=small", "checkpoint.keep_last=2", "parallel.ranks=" + ranks});
  site.train(joined(keys, {"run.steps=5"}));
  site.train(joined(keys, {"run.steps=10"}));
  const Ended ended = site.start_run(joined(keys, {"run.steps=15"}))->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK_FALSE(has(ended.err, "checkpoint_failed"));
  CHECK(has(ended.err, "disk_full step="));
  CHECK(checkpoint_steps(disk.path() / "tiny") == std::vector<std::int64_t>{10, 15});
}

TEST_CASE("damage: a full disk at the start is one line", "[integration][damage]") {
  const RunSite site;
  const SmallDisk disk(site / "small", "64k");
  if (!disk.mounted()) {
    return;
  }
  // An odd number of pages: the last write that fits is a short one.
  Process fill({"/usr/bin/env", "sh", "-c", "cat /dev/zero > filler"}, disk.path());
  REQUIRE(fill.wait().exit_code != 0);
  const Ended ended = site.call({"run", "tiny.toml", "--set", "run.dir=small"});
  INFO(ended.err);
  CHECK(ended.exit_code == 1);
  CHECK(lines_of(ended.err).size() == 1);
  CHECK(has(ended.err, "disk full"));
}

TEST_CASE("damage: a loss that is not finite ends the run and names layer and step",
          "[integration][damage]") {
  const RunSite site;
  // Decay by lr * weight_decay = a million: the weights leave the range of floats in a few steps.
  const Ended ended = site.start_run({"optimizer.lr=1000", "optimizer.weight_decay=1000",
                                      "optimizer.grad_clip=0", "schedule.name=constant",
                                      "schedule.warmup_steps=0", "checkpoint.interval_steps=1"})
                          ->wait();
  INFO(ended.err);
  check_ends_as(end_of({.in = HeadState::training,
                        .events = {HeadEvent::program_over},
                        .words = {.text = "not finite* at step * in block *"}}),
                ended);
  const std::string last = lines_of(ended.err).back();
  CHECK(last == "error " + first_error(ended));
  const std::size_t at = last.find(" at step ");
  REQUIRE(at != std::string::npos);
  const std::int64_t step = std::stoll(last.substr(at + 9));
  CHECK(step > 1);
  CHECK(step < 20);
  for (const std::int64_t saved : checkpoint_steps(site.run())) {
    CHECK(saved < step);
  }
  for (const nlohmann::json& entry : metrics_of(site.run())) {
    CHECK(entry.at("step").get<std::int64_t>() < step);
  }
}
