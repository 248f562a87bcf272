// A disk that fills up while the real program trains, and has room again: the run goes on, and of
// what it keeps beside its checkpoints nothing is lost (ST-7). A tmpfs of a fixed size, wants root.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <set>

#include "checkpoint/save/locations.hpp"
#include "tests/integration/sites/endless_run.hpp"
#include "tests/integration/table_end.hpp"
#include "tests/support/disks/full_disk.hpp"

using namespace train::test;

namespace {

/// A run on a disk of its own. Its files cannot be what a test waits for: the metrics and events
/// are those of standard output (--json), the rest is in the log.
class SmallDiskRun {
 public:
  /// RocksDB reserves 1.1 MiB for its log where there is that much: on less the index is
  /// refused as soon as the disk is full.
  SmallDiskRun(const std::string& size, Words keys)
      : disk_(site_ / "small", size), keys_(std::move(keys)) {}

  [[nodiscard]] bool mounted() const { return disk_.mounted(); }
  [[nodiscard]] const RunSite& site() const { return site_; }
  [[nodiscard]] fs::path directory() const { return disk_.path() / "tiny"; }

  [[nodiscard]] std::unique_ptr<Process> start(const Words& more = {}) const {
    Words words = RunSite::run_words(joined(joined(keys_, {"run.dir=small"}), more));
    words.emplace_back("--json");
    return site_.start(words);
  }

  /// Leaves no page free.
  void fill() const {
    const train::Descriptor file(
        ::open((disk_.path() / "filler").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    REQUIRE(file);
    static constexpr std::array<char, 4096> kPage = {};
    while (::write(file.get(), kPage.data(), kPage.size()) > 0) {
    }
    REQUIRE(errno == ENOSPC);
  }
  void make_room() { REQUIRE(disk_.grow("256m")); }

 private:
  RunSite site_;
  SmallDisk disk_;
  Words keys_;
};

/// Saves seldom or never, and is small and quick.
Words small_keys(const Words& more = {}) {
  return joined({kEndless, "model.layers=1", "model.heads=1", "schedule.name=constant",
                 "eval.interval_steps=0", "run.digest_interval_steps=0", "run.tensorboard=false",
                 "checkpoint.interval_steps=1000000"},
                more);
}

/// What a process has said with --json: lines of metrics, and events.
struct Said {
  std::int64_t step = 0;  ///< The newest.
  Words events;
};

Said said_by(const Process& process) {
  Said said;
  const std::string text = process.out();
  for (const std::string& line : lines_of(text.substr(0, text.rfind('\n') + 1))) {
    const auto json = nlohmann::json::parse(line);
    if (json.contains("unix_ms")) {
      said.events.push_back(line);
    } else {
      said.step = json.at("step");
    }
  }
  return said;
}

std::size_t count_said(const Process& process, const std::string& kind) {
  return count_of(process.out(), "\"event\":\"" + kind + "\"");
}

void wait_for_said(Process& process, std::int64_t step) {
  const std::string line = fmt::format("{{\"step\":{},", step);
  const bool came = process.until([&] { return has(process.out(), line); });
  INFO("no step " << step << ": " << process.err());
  REQUIRE(came);
}

/// Waits until it is so many steps further.
void wait_for_steps(Process& process, std::int64_t more) {
  wait_for_said(process, said_by(process).step + more);
}

/// Waits for so many events of a kind.
void wait_for_events(Process& process, const std::string& kind, std::size_t count) {
  const bool came = process.until([&] { return count_said(process, kind) >= count; });
  INFO("no " << kind << ": " << process.err());
  REQUIRE(came);
}

void wait_for_saves(Process& process, std::size_t count) {
  wait_for_events(process, "checkpoint_published", count);
}

/// Waits until its log says so: files and the index that are behind are no events, and a full disk
/// takes none.
void wait_for_line(Process& process, const std::string& part) {
  const bool came = process.until([&] { return has(process.err(), part); });
  INFO("no " << part << ": " << process.err());
  REQUIRE(came);
}

/// Ends it as a batch system does that needs its node.
Ended preempted(Process& process) {
  process.send(SIGUSR1);
  const Ended ended = process.wait();
  INFO(ended.err);
  CHECK(ended.signal == 0);
  return ended;
}

/// The events that the process has said are in the run's file, each once and in its order.
void check_events(const fs::path& run, const Process& process) {
  const auto without_time = [](nlohmann::json event) {
    event.erase("unix_ms");  // each is written at its own moment
    return event.dump();
  };
  std::set<std::string> kinds;  // the file has more of them
  Words wanted;
  for (const std::string& line : said_by(process).events) {
    const auto event = nlohmann::json::parse(line);
    kinds.insert(event.at("event"));
    wanted.push_back(without_time(event));
  }
  Words found;
  for (const nlohmann::json& event : events_of(run)) {
    if (kinds.contains(event.at("event"))) {
      found.push_back(without_time(event));
    }
  }
  CHECK(found == wanted);
}

void check_consistent(const SmallDiskRun& run) {
  const Ended verified = run.site().call({"verify", run.directory().string()});
  INFO(verified.out << verified.err);
  CHECK(verified.exit_code == 0);
  CHECK(has(verified.out, "consistent: "));
}

}  // namespace

TEST_CASE("full disk: a lost rank comes back from memory, and room brings every line of it",
          "[integration][full_disk][P1][P4][ST-7]") {
  const Words keys = small_keys(
      {"parallel.ranks=2", "parallel.strategy=none", "batch.lanes=2", "batch.micro_batch=1"});
  SmallDiskRun run("4m", keys);
  if (!run.mounted()) {
    return;
  }
  const auto launcher = run.start();
  wait_for_steps(*launcher, 12);  // memory has a state by now
  run.fill();
  wait_for_line(*launcher, "warning file_behind ");
  const auto workers = workers_of(run.site().path());
  REQUIRE(workers.contains(1));
  REQUIRE(::kill(workers.at(1), SIGKILL) == 0);
  wait_for_line(*launcher, "respawned generation=1");
  wait_for_steps(*launcher, 20);
  run.make_room();
  wait_for_line(*launcher, "file_caught_up ");
  wait_for_steps(*launcher, 5);
  const Ended ended = preempted(*launcher);
  CHECK(ended.exit_code == 75);
  CHECK(has(ended.err, "from memory"));
  CHECK_FALSE(has(ended.err, "error "));
  for (const char* kind : {"rank_lost", "respawned", "checkpoint_published", "stopped"}) {
    INFO(kind);
    CHECK(count_events(run.directory(), kind) == 1);
  }
  check_events(run.directory(), *launcher);
  check_consistent(run);
  UnbrokenRun(keys).check_same(run.directory(), 37);
}

TEST_CASE("full disk: an index that was refused goes on with room, and so do saves and retention",
          "[integration][.full][full_disk][P1][P3][CK-7][ST-7]") {
  const Words keys = small_keys(
      {"checkpoint.interval_steps=20", "checkpoint.keep_last=2", "data.sequence_length=256"});
  SmallDiskRun run("512k", keys);
  if (!run.mounted()) {
    return;
  }
  const auto launcher = run.start();
  wait_for_saves(*launcher, 2);
  const bool refused = launcher->until([&] {
    run.fill();  // what old checkpoints leave, too
    return has(launcher->err(), "warning index_behind ") &&
           count_said(*launcher, "checkpoint_failed") > 0;
  });
  INFO(launcher->err());
  REQUIRE(refused);
  const std::size_t saved = count_said(*launcher, "checkpoint_published");
  run.make_room();
  wait_for_line(*launcher, "info index_caught_up ");
  wait_for_saves(*launcher, saved + 3);
  const Ended ended = preempted(*launcher);
  CHECK(ended.exit_code == 75);
  CHECK(checkpoint_steps(run.directory()).size() == 2);
  check_events(run.directory(), *launcher);
  check_consistent(run);
  UnbrokenRun(keys).check_same(run.directory(), 120);
}

TEST_CASE("full disk: a state that could not be saved is no 75, and room lets the run go on",
          "[integration][full_disk][P1][P3]") {
  const Words keys = small_keys({"checkpoint.interval_steps=50", "checkpoint.keep_last=2"});
  SmallDiskRun run("4m", keys);
  if (!run.mounted()) {
    return;
  }
  const auto launcher = run.start();
  wait_for_saves(*launcher, 1);
  const bool refused = launcher->until([&] {
    run.fill();  // what checkpoints that ended meanwhile leave, too
    return count_said(*launcher, "checkpoint_failed") > 0;
  });
  INFO(launcher->err());
  REQUIRE(refused);
  wait_for_steps(*launcher, 60);
  const Ended ended = preempted(*launcher);
  CHECK(ended.exit_code == 1);
  CHECK(is_as(first_error(ended, "the last"), "the last checkpoint was not saved: *disk full*"));
  run.make_room();
  const auto again = run.start();
  wait_for_said(*again, last_step(run.directory()) + 20);
  const Ended resumed = preempted(*again);
  CHECK(resumed.exit_code == 75);
  CHECK(has(resumed.err, "resumed step="));
  check_consistent(run);
  UnbrokenRun(keys).check_same(run.directory(), 70);
}

TEST_CASE("full disk: one that has no room for a checkpoint is told before the first step",
          "[integration][full_disk]") {
  SmallDiskRun run("4m", {});
  if (!run.mounted()) {
    return;
  }
  // Checkpoints of 10 MB. One stream, which has the order of what is said.
  Words words = {"/usr/bin/env", "sh", "-c", "exec \"$@\" 2>&1", "sh", program()};
  Process launcher(
      joined(words, joined(RunSite::run_words(small_keys({"model.layers=4", "model.heads=2",
                                                          "model.head_dim=64", "run.dir=small"})),
                           {"--json"})),
      run.site().path());
  REQUIRE(launcher.until([&] { return has(launcher.out(), "{\"step\":1,"); }));
  launcher.send(SIGUSR1);
  const std::string text = launcher.wait().out;
  INFO(text);
  CHECK(launcher.wait().exit_code == 1);
  const std::string before = text.substr(0, text.find("{\"step\":"));
  CHECK(count_of(before, "warning disk_small ") == 1);
  const std::string warning = before.substr(before.find("warning disk_small "));
  CHECK(is_as(warning.substr(0, warning.find('\n')),
              "warning disk_small *small/tiny/checkpoints has * MiB free, and a checkpoint takes * "
              "MiB: make room before the first save"));
}

TEST_CASE("full disk: one with room for two checkpoints is told, and keeps the newest of them",
          "[integration][.full][full_disk][P3][CK-6]") {
  // Checkpoints of 10 MB, of which the rule would keep three and write a fourth.
  SmallDiskRun run("27m", {"model.layers=4", "model.heads=2", "model.head_dim=64",
                           "eval.interval_steps=0", "run.steps=4", "run.steps_per_job=1",
                           "checkpoint.interval_steps=1", "checkpoint.keep_last=3"});
  if (!run.mounted()) {
    return;
  }
  for (const std::int64_t step : {1, 2, 3, 4}) {  // One save each, so that none is skipped.
    const Ended ended = run.start()->wait();
    INFO(step << ": " << ended.err);
    REQUIRE(ended.exit_code == (step < 4 ? 75 : 0));
    if (step == 1) {
      REQUIRE(count_of(ended.err, "warning disk_small ") == 1);
      const std::string warning = ended.err.substr(ended.err.find("warning disk_small "));
      CHECK(is_as(warning.substr(0, warning.find('\n')),
                  "warning disk_small *small/tiny/checkpoints has * MiB free, room for 2 more "
                  "checkpoints of * MiB; the run keeps up to 4 at a time: make room, or older ones "
                  "go early when it is full (checkpoint.keep_last)"));
    }
    CHECK(has(ended.err, "there is no room for checkpoint.keep_last") == (step >= 3));
    CHECK(checkpoint_steps(run.directory()) ==
          (step == 1 ? std::vector<std::int64_t>{1} : std::vector<std::int64_t>{step - 1, step}));
  }
}

TEST_CASE("full disk: half a line that an end has left costs no event and no step",
          "[integration][full_disk][P1][ST-7]") {
  const RunSite site;
  site.train({"run.name=whole"});
  CHECK(site.start_run({"run.steps_per_job=10"})->wait().exit_code == 75);
  const std::size_t events = events_of(site.run()).size();
  write_bytes(site.run() / "events.jsonl",
              read_bytes(site.run() / "events.jsonl") + R"({"unix_ms":1795714861580,"event":"res)");
  write_bytes(site.run() / "metrics.jsonl",
              read_bytes(site.run() / "metrics.jsonl") + R"({"step":11,"loss":5.1)");
  site.train();
  CHECK(results_of(site.run()) == results_of(site.run("whole")));
  std::size_t halves = 0;
  Words kinds;
  for (const std::string& line : lines_of(read_bytes(site.run() / "events.jsonl"))) {
    const auto event = nlohmann::json::parse(line, nullptr, false);
    halves += event.is_object() ? 0 : 1;
    kinds.push_back(event.is_object() ? event.at("event").get<std::string>() : line);
  }
  CHECK(halves == 1);
  REQUIRE(kinds.size() > events + 1);
  CHECK(std::count(kinds.begin() + static_cast<std::ptrdiff_t>(events), kinds.end(), "resumed") ==
        1);
  CHECK(kinds.back() == "finished");
}

TEST_CASE("full disk: lines that a kill took with it come from the journal",
          "[integration][full_disk][P1][CK-7]") {
  // The state is saved on the node's own disk. The index has reserved room for the journal of 6,000
  // steps: they are long ones, so that a late test finds most of it.
  constexpr std::int64_t kInterval = 50;
  const Words keys =
      small_keys({fmt::format("checkpoint.interval_steps={}", kInterval), "checkpoint.keep_last=2",
                  "checkpoint.local_dir=fast", "data.sequence_length=1024"});
  SmallDiskRun run("4m", keys);
  if (!run.mounted()) {
    return;
  }
  const auto launcher = run.start();
  wait_for_saves(*launcher, 1);
  run.fill();
  wait_for_line(*launcher, "warning file_behind ");
  const std::int64_t behind = last_step(run.directory());
  const fs::path fast = train::checkpoint::places_of(run.directory(), run.site() / "fast").local;
  const auto newest_local = [&] {
    const auto found = train::checkpoint::list_checkpoints(fast);
    return found && !found->empty() ? found->front().step : 0;
  };
  const bool saved = launcher->until([&] { return newest_local() > behind + kInterval; });
  INFO(launcher->err());
  REQUIRE(saved);
  launcher->send(SIGKILL);
  CHECK(launcher->wait().signal == SIGKILL);
  CHECK(comes_true([&] { return processes_with(run.site().path().string() + "/").empty(); }));
  run.make_room();
  const auto again = run.start();
  wait_for_said(*again, newest_local() + 5);
  const Ended ended = preempted(*again);
  CHECK(ended.exit_code == 75);
  CHECK(has(ended.err, "metrics_restored "));
  const auto metrics = metrics_of(run.directory());
  check_consistent(run);
  std::int64_t step = 0;
  for (const auto& line : metrics) {
    CHECK(line.at("step") == ++step);
  }
  CHECK(step >= behind + kInterval);
}
