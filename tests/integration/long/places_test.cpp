// Two places: checkpoints are written to the node's own disk first, then copied by the real rsync
// and published. Real processes, kills, full disks.

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>

#include "checkpoint/save/locations.hpp"
#include "tests/integration/sites/held_runs.hpp"
#include "tests/support/disks/full_disk.hpp"

using namespace train::test;

namespace {

/// Two saves, of which none is skipped however slow the disk is: the first, and that of the end.
const Words kShort = {"run.steps=12",
                      "batch.lanes=4",
                      "run.digest_interval_steps=1",
                      "schedule.warmup_steps=2",
                      "checkpoint.interval_steps=6",
                      "checkpoint.keep_last=2",
                      "eval.interval_steps=6"};

/// A site whose runs have a local place beside it.
struct Site : RunSite {
  [[nodiscard]] fs::path local(const std::string& name = "tiny") const {
    return train::checkpoint::places_of(run(name), path() / "fast").local;
  }
  [[nodiscard]] Words keys(const Words& more = {}) const {
    return joined(joined(kShort, {"checkpoint.local_dir=fast"}), more);
  }
  /// Starts a run with these variables in its environment.
  [[nodiscard]] std::unique_ptr<Process> start_with(const Words& variables,
                                                    const Words& keys) const {
    Words words = joined({"/usr/bin/env"}, variables);
    words.emplace_back(program());
    return std::make_unique<Process>(joined(words, run_words(keys)), path());
  }
  /// A program in the place of rsync, which calls the real one where it says "$@".
  [[nodiscard]] std::string rsync(const std::string& script) const {
    const fs::path file = path() / fmt::format("rsync-{}", scripts_++);
    write_bytes(file, fmt::format("#!/bin/sh\n{}\n", script));
    fs::permissions(file, fs::perms::owner_all);
    return fmt::format("ACTORTRAIN_RSYNC={}", file.string());
  }

 private:
  mutable int scripts_ = 0;
};

/// Holds whoever wants to lock the file, too.
class LockedFile {
 public:
  explicit LockedFile(const fs::path& path)
      : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    REQUIRE(::flock(file_, LOCK_EX) == 0);
  }
  LockedFile(const LockedFile&) = delete;
  LockedFile& operator=(const LockedFile&) = delete;
  ~LockedFile() { ::close(file_); }

  void unlock() const { REQUIRE(::flock(file_, LOCK_UN) == 0); }

 private:
  int file_;
};

std::vector<std::int64_t> steps_at(const fs::path& place) {
  return checkpoint_steps(place.parent_path());
}

/// Nothing but whole checkpoints.
void check_tidy(const fs::path& place) {
  for (const std::string& name : names_in(place)) {
    INFO(place.string() << " has " << name);
    CHECK(name.starts_with("step-"));
  }
}

const Words& short_results() {
  static const Words results = [] {
    const RunSite site;
    site.train(joined(kShort, {"checkpoint.interval_steps=0"}));
    return results_of(site.run());
  }();
  return results;
}

}  // namespace

TEST_CASE(
    "places: written locally, published by rsync; the bits are those of a run that saves "
    "once",
    "[integration][.full][places][P1][P3]") {
  const Words ranks = GENERATE(Words{}, rank_keys(2, "full"),
                               rank_keys(3, "optimizer", {"parallel.transport=inproc"}));
  const Site site;
  site.train(site.keys(ranks));
  CHECK(results_of(site.run()) == short_results());
  CHECK(steps_at(site.run() / "checkpoints") == std::vector<std::int64_t>{6, 12});
  CHECK(steps_at(site.local()) == std::vector<std::int64_t>{12});  // the newest published one
  check_tidy(site.run() / "checkpoints");
  check_tidy(site.local());
  const auto name = train::checkpoint::checkpoint_name(12) + "/manifest.json";
  CHECK(read_bytes(site.local() / name) == read_bytes(site.run() / "checkpoints" / name));
  const Ended again = site.train(site.keys(joined(ranks, {"run.steps=16"})));
  CHECK(has(again.err, fmt::format("resumed step=12 from {}", site.local().string())));
}

TEST_CASE("places: $SLURM_TMPDIR is the local place of its own accord",
          "[integration][.full][places]") {
  const Site site;
  const auto run = site.start_with({"SLURM_TMPDIR=" + (site / "fast").string()}, kShort);
  CHECK(run->wait().exit_code == 0);
  CHECK(steps_at(site.local()) == std::vector<std::int64_t>{12});
}

TEST_CASE("places: killed while rsync runs, it goes on from the local copy, published first",
          "[integration][.full][places][P1][P3]") {
  const Words ranks = GENERATE(Words{}, rank_keys(2, "full"));
  const Site site;
  // The first checkpoint's copy stands still half-way.
  const Words keys = site.keys(ranks);
  const auto run = site.start_with({site.rsync("for last; do :; done\nhead -c 1000 /dev/zero > "
                                               "\"$last/.half\"\nexec tail -n 0 -f \"$0\"")},
                                   keys);
  REQUIRE(run->until([&] {
    return !processes_with(site.path().string() + "/rsync-0").empty() &&
           fs::exists(site.local() / "step-00000006");
  }));
  const std::string halves = site.path().string() + "/rsync-0";
  REQUIRE(comes_true([&] {
    for (const std::string& name : names_in(site.run() / "checkpoints")) {
      if (name.starts_with(".incoming") && has(name, "step-00000006")) {
        return true;
      }
    }
    return false;
  }));
  run->send(SIGKILL);
  run->wait();
  CHECK(comes_true([&] { return processes_with(halves).empty(); }));
  CHECK(steps_at(site.run() / "checkpoints") == std::vector<std::int64_t>{});
  const Ended ended = site.train(keys);
  CHECK(has(ended.err, "checkpoint_published step=6 "));
  CHECK(has(ended.err, fmt::format("resumed step=6 from {}", site.local().string())));
  CHECK(results_of(site.run()) == short_results());
  CHECK(steps_at(site.run() / "checkpoints") == std::vector<std::int64_t>{6, 12});
  check_tidy(site.run() / "checkpoints");
  check_tidy(site.local());
}

TEST_CASE("places: publishing slower than training skips those between, on all ranks alike",
          "[integration][.full][places][P1][P3][CK-8]") {
  const Site site;
  // No copy is made before the sixth step is done: then the first save is over, and those of the
  // steps 2 to 4 have given way to newer ones.
  const LockedFile gate(site / "gate");
  const auto run = site.start_with(
      {site.rsync(fmt::format("exec flock --shared {} rsync \"$@\"", (site / "gate").string()))},
      site.keys(rank_keys(2, "full", {"checkpoint.interval_steps=1", "checkpoint.keep_last=0"})));
  wait_for_step(site, *run, 6);
  gate.unlock();
  const Ended ended = run->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  const auto published = steps_at(site.run() / "checkpoints");
  REQUIRE(published.size() >= 2);
  CHECK(published.front() == 1);
  CHECK(published[1] >= 5);
  CHECK(published.back() == 12);
  for (std::int64_t step = 1; step <= 12; ++step) {
    INFO("step " << step);
    const bool there = std::find(published.begin(), published.end(), step) != published.end();
    CHECK(there != has(ended.err, fmt::format("checkpoint_skipped step={} ", step)));
  }
  CHECK(results_of(site.run()) == short_results());
}

TEST_CASE("places: a copy that fails is reported; the local one stands, and is published later",
          "[integration][.full][places][P3]") {
  const Words ranks = GENERATE(Words{}, rank_keys(2, "full"));
  const Site site;
  const auto run =
      site.start_with({site.rsync("case \"$*\" in *step-00000012*shard-00000*) echo 'the cable is "
                                  "cut' >&2; exit 23;; esac; exec rsync \"$@\"")},
                      site.keys(ranks));
  const Ended ended = run->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 1);
  CHECK(has(ended.err, "checkpoint_failed step=12 "));
  CHECK(has(ended.err, "the cable is cut"));
  CHECK(steps_at(site.run() / "checkpoints") == std::vector<std::int64_t>{6});
  CHECK(last_of(steps_at(site.local())) == 12);
  check_tidy(site.run() / "checkpoints");
  check_tidy(site.local());
  const Ended again = site.train(site.keys(ranks));
  INFO(again.err);
  CHECK(has(again.err, "checkpoint_published step=12 "));
  CHECK(steps_at(site.run() / "checkpoints") == std::vector<std::int64_t>{6, 12});
  CHECK(results_of(site.run()) == short_results());
}

TEST_CASE("places: the end waits for the copy so long, then says what is where",
          "[integration][.full][places][P3]") {
  const bool signal = GENERATE(false, true);
  const Words ranks = signal ? rank_keys(2, "full") : Words{};
  const Site site;
  const Words rsync = {site.rsync(
      "case \"$*\" in *step-00000012*) exec tail -n 0 -f \"$0\";; esac; exec rsync \"$@\"")};
  // Held in the ninth step, of four lanes or two: the time to drain begins when step 6 is there.
  const auto run = start_held(site, signal ? "0" : "head", signal ? 8 * 4 + 1 : 8 * 8 + 1,
                              site.keys(joined(ranks, {"checkpoint.drain_s=20"})), rsync);
  REQUIRE(run->until([&] { return fs::exists(site.run() / "checkpoints/step-00000006"); }));
  let_go(site);
  REQUIRE(run->until([&] { return fs::exists(site.local() / "step-00000012"); }));
  if (signal) {
    run->send(SIGTERM);
  }
  const Ended ended = run->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 1);
  const std::string last = last_of(lines_of(ended.err));
  CHECK(has(last, "checkpoint of step 12 is complete in " + site.local().string()));
  CHECK(has(last, "checkpoint.drain_s = 20"));
  CHECK(has(last, "the newest published one is of step 6"));
  CHECK(processes_with(site.path().string() + "/rsync-0").empty());  // no child is left
  CHECK(workers_of(site.path()).empty());
  CHECK(last_of(steps_at(site.local())) == 12);
  const Ended again = site.train(site.keys(ranks));
  CHECK(has(again.err, "checkpoint_published step=12 "));
  CHECK(results_of(site.run()) == short_results());
}

TEST_CASE("places: a full local disk costs no checkpoint", "[integration][.full][places][P3]") {
  const Site site;
  const SmallDisk disk(site / "small", "1m");
  if (!disk.mounted()) {
    return;
  }
  const Words keys = joined(kShort, {"checkpoint.local_dir=small"});
  const auto filler = disk.path() / "filler";
  write_bytes(filler, std::string(1000 * 1024, 'x'));
  const Ended ended = site.start_run(keys)->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 1);
  CHECK(has(ended.err, "checkpoint_failed step=6 "));
  CHECK(has(ended.err, "checkpoint_failed step=12 "));
  CHECK(has(ended.err, "disk full"));
  CHECK(steps_at(site.run() / "checkpoints").empty());
  check_tidy(train::checkpoint::places_of(site.run(), disk.path()).local);
  fs::remove(filler);
  site.train(keys);
  CHECK(results_of(site.run()) == short_results());
  CHECK(last_of(steps_at(site.run() / "checkpoints")) == 12);
}

TEST_CASE("places: what a run that was erased left locally is not taken for a new run's",
          "[integration][.full][places][P3]") {
  const Site site;
  site.train(site.keys());
  fs::remove_all(site.run());
  const Ended ended = site.train(site.keys());
  CHECK_FALSE(has(ended.err, "resumed"));
  CHECK(results_of(site.run()) == short_results());
}

TEST_CASE("places: damage in one place is made up for by the other; in both it is named",
          "[integration][.full][places][P3]") {
  const Site site;
  site.train(site.keys({"checkpoint.keep_last=1"}));
  const fs::path shard = "step-00000012/shard-00000-of-00001.safetensors";
  const auto damage = [](const fs::path& file) { flip_byte(file, fs::file_size(file) - 100); };
  SECTION("the local one") {
    damage(site.local() / shard);
    const Ended ended = site.train(site.keys({"run.steps=14", "checkpoint.keep_last=1"}));
    CHECK(has(ended.err, fmt::format("resumed step=12 from {}", site.run().string())) !=
          has(ended.err, "resumed step=12 from runs"));
    CHECK(has(ended.err, "checkpoints_damaged "));
  }
  SECTION("the project's") {
    damage(site.run() / "checkpoints" / shard);
    const Ended ended = site.train(site.keys({"run.steps=14", "checkpoint.keep_last=1"}));
    CHECK(has(ended.err, "checkpoints_damaged "));
    CHECK(has(ended.err, "checkpoint_published step=12 "));
    CHECK(has(ended.err, fmt::format("resumed step=12 from {}", site.local().string())));
  }
  SECTION("both") {
    damage(site.local() / shard);
    damage(site.run() / "checkpoints" / shard);
    const Ended ended = site.call(RunSite::run_words(site.keys()));
    INFO(ended.err);
    CHECK(ended.exit_code == 1);
    CHECK(lines_of(ended.err).size() == 1);
    CHECK(has(ended.err, site.local().string()));
    CHECK(has(ended.err, "runs/tiny/checkpoints holds no whole checkpoint"));
  }
}

namespace {

std::unique_ptr<Process> start_with_disk(const Site& site, int node, int job, const Words& disks,
                                         const Words& keys) {
  Words variables = {"SLURM_STEP_NUM_NODES=2", "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_ID=0",
                     fmt::format("SLURM_JOB_ID={}", job), fmt::format("SLURM_NODEID={}", node)};
  const std::string& disk = disks.at(static_cast<std::size_t>(node));
  if (!disk.empty()) {
    variables.push_back(fmt::format("SLURM_TMPDIR={}", (site / disk).string()));
  }
  return site.start_with(
      variables, rank_keys(4, "full", joined(keys, {"parallel.nodes=2", "parallel.interface=lo"})));
}

}  // namespace

TEST_CASE("places: two nodes, each with a disk of its own or with one between them",
          "[integration][.full][places][nodes][P1][P3]") {
  const Words disks = GENERATE(Words{"disk0", "disk1"}, Words{"disk", "disk"});
  const Site site;
  const auto other = start_with_disk(site, 1, 50, disks, kShort);
  const auto head = start_with_disk(site, 0, 50, disks, kShort);
  const Ended ended = head->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(other->wait().exit_code == 0);
  CHECK(results_of(site.run()) == short_results());
  CHECK(steps_at(site.run() / "checkpoints") == std::vector<std::int64_t>{6, 12});
  for (const std::string& disk : disks) {
    const fs::path local = train::checkpoint::places_of(site.run(), site / disk).local;
    check_tidy(local);
    CHECK(names_in(local) == Words{"step-00000012"});
    CHECK(names_in(local / "step-00000012").size() == (disks[0] == disks[1] ? 5 : 3));
  }
  const auto again = start_with_disk(site, 1, 51, disks, joined(kShort, {"run.steps=16"}));
  const auto head_again = start_with_disk(site, 0, 51, disks, joined(kShort, {"run.steps=16"}));
  const Ended resumed = head_again->wait();
  INFO(resumed.err);
  CHECK(resumed.exit_code == 0);
  CHECK(again->wait().exit_code == 0);
  CHECK(has(resumed.err, "resumed step=12 from runs/tiny/checkpoints"));
}

TEST_CASE("places: a node without the disk that the others have is a mistake that is named",
          "[integration][.full][places][nodes]") {
  const Site site;
  const auto other = start_with_disk(site, 1, 52, {"disk0", ""}, kShort);
  const auto head = start_with_disk(site, 0, 52, {"disk0", ""}, kShort);
  const Ended ended = head->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "SLURM_TMPDIR is not set on "));
  other->wait();
}
