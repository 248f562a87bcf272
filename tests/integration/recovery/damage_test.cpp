// What the world does to a run: damaged files, a full disk, numbers that blow up. P3: a checkpoint
// is whole or absent.

#include "checkpoint/save/locations.hpp"
#include "tests/integration/sites/node_runs.hpp"
#include "tests/integration/sites/rank_runs.hpp"
#include "tests/integration/sites/run_site.hpp"
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

TEST_CASE("damage: a rank that finds a flipped byte ends no run, which resumes from the one before",
          "[integration][damage][P1][P3]") {
  const auto [ranks, strategy] = GENERATE(std::pair(1, "none"), std::pair(2, "full"));
  INFO(ranks << " ranks, " << strategy);
  const Words keys = rank_keys(ranks, strategy);
  const Words longer = joined(keys, {"run.steps=30"});
  const RunSite site;
  site.train(keys);
  damage(site.run() / "checkpoints/step-00000020" /
         fmt::format("shard-00000-of-{:05}.safetensors", ranks));
  const Ended ended = site.train(longer);
  INFO(ended.err);
  CHECK(count_of(ended.err, "warning damage_found ") == 1);
  CHECK(count_of(ended.err, "warning checkpoint_set_aside ") == 1);
  CHECK(has(ended.err, "set aside as damaged-step-00000020"));
  CHECK(has(ended.err, "resumed step=10 "));
  CHECK(checkpoint_steps(site.run()) == std::vector<std::int64_t>{10, 20, 30});
  CHECK(any_starts_with(names_in(site.run() / "checkpoints"), "damaged-step-00000020"));
  const RunSite other;  // that has resumed from the older one because it was the newest
  other.train(keys);
  forget_after(other.run(), 10);
  other.train(longer);
  CHECK(results_of(site.run()) == results_of(other.run()));
}

TEST_CASE("damage: of two locations the good copy is taken, then the older checkpoint",
          "[integration][.full][damage][P1][P3][CK-9]") {
  const RunSite site;
  const Words keys = {"checkpoint.local_dir=fast"};
  const Words longer = joined(keys, {"run.steps=30"});
  const fs::path local =
      train::checkpoint::places_of(site.run(), site / "fast").local / "step-00000020";
  site.train(keys);
  damage(local / "shard-00000-of-00001.safetensors");
  const bool both = GENERATE(false, true);
  if (both) {
    damage(shard_of(site.run(), 20));
  }
  const Ended ended = site.train(longer);
  INFO(ended.err);
  CHECK(count_of(ended.err, "warning checkpoint_set_aside ") == (both ? 2 : 1));
  CHECK(has(ended.err, both ? "resumed step=10 " : "resumed step=20 from runs/tiny/checkpoints"));
  CHECK(fs::exists(local.parent_path() / "damaged-step-00000020"));
  const RunSite other;
  other.train(keys);
  fs::remove_all(other / "fast");
  forget_after(other.run(), both ? 10 : 20);
  other.train(longer);
  CHECK(results_of(site.run()) == results_of(other.run()));
}

TEST_CASE("damage: ranks of two nodes resume from the checkpoint before, whether any may respawn",
          "[integration][.full][damage][nodes][P3][P4]") {
  const std::string rank_loss = GENERATE("respawn", "stop");
  INFO(rank_loss);
  const RunSite site;
  site.train();
  damage(shard_of(site.run(), 20));
  const Words keys = {"run.steps=30", "checkpoint.local_dir=none",
                      "recovery.rank_loss=" + rank_loss};
  const auto other = start_node(site, 1, 50, keys, "full", {.nodes = 2, .ranks = 2});
  const auto head = start_node(site, 0, 50, keys, "full", {.nodes = 2, .ranks = 2});
  const Ended ended = head->wait();
  const Ended other_ended = other->wait();
  INFO("head: " << ended.err);
  INFO("other: " << other_ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(other_ended.exit_code == 0);
  CHECK(count_of(ended.err, "warning checkpoint_set_aside ") == 1);
  CHECK(has(ended.err, "respawned generation=1 step=10 ranks=2 nodes=2"));
  CHECK(checkpoint_steps(site.run()) == std::vector<std::int64_t>{10, 20, 30});
}

TEST_CASE("damage: where ranks find every checkpoint damaged the run ends, and names them",
          "[integration][damage][P3]") {
  const RunSite site;
  const Words keys = rank_keys(2, "none");
  site.train(keys);
  for (const char* const step : {"step-00000010", "step-00000020"}) {
    damage(site.run() / "checkpoints" / step / "shard-00001-of-00002.safetensors");
  }
  for (int attempt = 0; attempt < 2; ++attempt) {  // the second time all are set aside already
    const Ended ended = site.start_run(joined(keys, {"run.steps=30"}))->wait();
    INFO(ended.err);
    CHECK(ended.exit_code == 1);
    CHECK(count_of(ended.err, "checkpoint_set_aside") == (attempt == 0 ? 2 : 0));
    const std::string last = last_of(lines_of(ended.err));
    CHECK(last.starts_with("error "));
    CHECK(has(last, "damaged-step-00000010"));
    CHECK(has(last, "damaged-step-00000020"));
    CHECK(has(last, "start afresh"));
  }
}

TEST_CASE("damage: a start reads a checkpoint once in each rank, and not in the launcher",
          "[integration][damage][P3][P4]") {
  const auto [ranks, strategy] =
      GENERATE(std::pair(1, "none"), std::pair(2, "none"), std::pair(2, "full"));
  INFO(ranks << " ranks, " << strategy);
  const RunSite site;
  const Words keys = rank_keys(ranks, strategy);
  site.train(keys);
  std::uint64_t size = 0;
  for (const auto& file : manifest_of(site.run(), 20).files) {
    size += file.size_bytes;
  }
  fs::create_directory(site / "reads");
  Process process(joined({"/usr/bin/env", "ACTORTRAIN_TEST_READS=" + (site / "reads").string(),
                          ACTORTRAIN_BINARY_DIR "/actortrain_faulty"},
                         RunSite::run_words(joined(keys, {"run.steps=21", "run.sample_tokens=0",
                                                          "checkpoint.interval_steps=0"}))),
                  site.path());
  const Ended ended = process.wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(has(ended.err, "resumed step=20 "));
  const auto read_by = [&](const std::string& role) {
    std::uint64_t bytes = 0;
    for (const std::string& line : lines_of(read_bytes(site / "reads" / role))) {
      bytes += has(line, "/step-00000020/") ? std::stoull(line) : 0;
    }
    return bytes;
  };
  CHECK(read_by("head") == (ranks == 1 ? size : 0));
  for (int rank = 0; ranks > 1 && rank < ranks; ++rank) {
    const std::uint64_t bytes = read_by(fmt::format("{}", rank));
    CHECK(bytes > size / 3);
    CHECK((strategy == std::string("none") ? bytes == size : bytes < size));
  }
}

TEST_CASE(
    "damage: a signal while ranks read a checkpoint ends the start at once, as the table says",
    "[integration][damage][P3][P4]") {
  const int ranks = GENERATE(1, 2);
  const RunSite site;
  const Words keys = rank_keys(ranks, "none");
  const Words longer = joined(keys, {"run.steps=30"});
  site.train(keys);
  const auto before = tree_of(site.run() / "checkpoints");
  Process process(joined({"/usr/bin/env", "ACTORTRAIN_TEST_READ=0:step-00000020/shard",
                          ACTORTRAIN_BINARY_DIR "/actortrain_faulty"},
                         RunSite::run_words(longer)),
                  site.path());
  const Ended ended = process.wait();
  INFO(ended.err);
  check_ends_in_order_as(
      end_of(
          {.in = HeadState::starting, .events = {HeadEvent::signal}, .words = {.signal = SIGTERM}}),
      ended);
  CHECK(tree_of(site.run() / "checkpoints") == before);
  CHECK(has(site.train(longer).err, "resumed step=20 "));
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

TEST_CASE("damage: a damaged stored configuration is named, and the run's record counts",
          "[integration][damage]") {
  const RunSite site;
  site.train({"run.steps=4", "schedule.warmup_steps=0"});
  const std::string stored = read_bytes(site.run() / "config.toml");
  write_bytes(site.run() / "config.toml", "[run\nname");
  const Ended ended =
      site.call({"run", "tiny.toml", "--set", "run.steps=4", "--set", "schedule.warmup_steps=0"});
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(
      has(ended.err, "warning config_edited runs/tiny/config.toml: differs from the run's record"));
  CHECK(read_bytes(site.run() / "config.toml") == stored);
}

TEST_CASE("damage: a full disk costs no checkpoint, and space lets the run go on",
          "[integration][.full][damage][P1][P3]") {
  const RunSite site;
  site.train({"run.name=whole"});
  const SmallDisk disk(site / "small", "3m");  // of which the index reserves 2 where it can
  if (!disk.mounted()) {
    return;
  }
  // The first checkpoint and that of the end are saved on any disk; there is room for one.
  const Words keys = {"run.dir=small", "checkpoint.interval_steps=10", "run.tensorboard=false"};
  const auto filler = disk.path() / "filler";
  write_bytes(filler, std::string((660 + 2048) * 1024, 'x'));
  const Ended ended = site.start_run(keys)->wait();
  INFO(ended.err);
  check_ends_as(end_of({.in = HeadState::training,
                        .events = {HeadEvent::program_over},
                        .words = {.text = "the last checkpoint was not saved: *small/tiny*"}}),
                ended, "the last");
  CHECK(has(ended.err, "checkpoint_failed"));
  CHECK(has(ended.err, "disk full"));
  CHECK(last_of(lines_of(ended.err)) == "error " + first_error(ended, "the last"));
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
  CHECK(last_of(left) == 30);
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
  const std::string last = last_of(lines_of(ended.err));
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
