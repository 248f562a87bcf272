// Plans of memory and disk against what the run then takes: of an emulated device that counts, of
// the kernel's figures of every process of the same run on the CPU (the emulation takes 8 to 12 MiB
// of the host for the stacks of 1,024 threads), of the blocks of the checkpoints.

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <sstream>
#include <utility>

#include "tests/integration/sites/row_runs.hpp"

using namespace train::test;

namespace {

/// Bytes.
struct Figures {
  double device = 0, rank = 0, node = 0, checkpoint = 0, kept = 0;
};

const RowSet kPairs{
    .kind = "preference", .vocab_size = 61, .row_length = 16, .documents = 60, .weights = false};

/// Under a disk that writes no checkpoint while the file `durable` is locked.
Words slow_disk(const RunSite& site, const std::string& path) {
  return {"/usr/bin/env",
          "CUDA_VISIBLE_DEVICES=0,1,2,3",
          "LD_PRELOAD=" ACTORTRAIN_BINARY_DIR "/tests/libstrange_files_preload.so",
          "ACTORTRAIN_TEST_SYNC_AFTER=" + (site / "durable").string(),
          "ACTORTRAIN_TEST_DEVICE_USE=" + (site / "devices").string(),
          path};
}

/// Keys of a model that is large beside the program, and quick.
Words measured_keys(const Words& more) {
  return joined(
      {"model.layers=8", "model.heads=4", "model.head_dim=32", "data.sequence_length=16",
       "batch.micro_batch=1", "batch.lanes=4", "run.steps=6", "run.sample_tokens=0",
       "eval.interval_steps=0", "run.digest_interval_steps=0", "checkpoint.interval_steps=1",
       "checkpoint.keep_last=2", "recovery.snapshot_interval_steps=2", "schedule.warmup_steps=2"},
      more);
}

/// Bytes of "44.1 MiB" at the end of the first line that begins with `start`.
double planned(const std::string& text, const std::string& start, const std::string& end = "") {
  static const std::map<std::string, double> kUnits = {
      {"B", 1.0}, {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}};
  for (const std::string& line : lines_of(text)) {
    const std::size_t name = line.find(end, start.size());
    if (line.starts_with(start) && name != std::string::npos) {
      std::istringstream rest(line.substr(name + end.size()));
      double number = 0.0;
      std::string unit;
      rest >> number >> unit;
      return number * kUnits.at(unit);
    }
  }
  FAIL("no line \"" << start << "\" in\n" << text);
  return 0.0;
}

Figures plan_of(const std::string& text) {
  return {.device = has(text, "device: ") ? planned(text, "device: ", "total") : 0.0,
          .rank = planned(text, "host: a rank, ", "total"),
          .node = planned(text, "node: ", "total"),
          .checkpoint = planned(text, "disk: a checkpoint"),
          // One of the three is under construction, and is not there at the end.
          .kept = 2.0 / 3.0 * planned(text, "disk: 3 of them", "total")};
}

/// Bytes of a process.
struct Mapped {
  double own = 0, shared = 0;
};

Mapped mapped(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/smaps_rollup");
  Mapped bytes;
  for (std::string line; std::getline(file, line);) {
    for (const auto& [start, figure] :
         {std::pair("Pss_Anon:", &Mapped::own), std::pair("Pss_Shmem:", &Mapped::shared)}) {
      if (line.starts_with(start)) {
        bytes.*figure = 1024.0 * std::stod(line.substr(std::strlen(start)));
      }
    }
  }
  return bytes;
}

/// Whether a thread of the process computes, or would on a free core, or waits for a disk.
bool at_work(pid_t process) {
  std::error_code gone;
  const fs::path threads = "/proc/" + std::to_string(process) + "/task";
  return std::ranges::any_of(fs::directory_iterator(threads, gone), [](const auto& thread) {
    std::ifstream file(thread.path() / "stat");
    std::string line;
    std::getline(file, line);
    const std::size_t name_end = line.rfind(") ");
    return name_end != std::string::npos &&
           (line[name_end + 2] == 'R' || line[name_end + 2] == 'D');
  });
}

std::map<int, pid_t> processes_of(const RunSite& site, pid_t run) {
  auto processes = workers_of(site.path());
  processes[-1] = run;
  return processes;
}

/// Counts the bytes of the run's processes in `figures`; returns those of all of them.
double look(const RunSite& site, pid_t run, Figures& figures) {
  double node = 0.0;
  for (const auto& [rank, process] : processes_of(site, run)) {
    const Mapped bytes = mapped(process);
    figures.rank = std::max(figures.rank, bytes.own);
    node += bytes.own + bytes.shared;
  }
  figures.node = std::max(figures.node, node);
  return node;
}

double blocks_of(const fs::path& directory) {
  double bytes = 0.0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(directory)) {
    struct stat status {};
    REQUIRE(::lstat(entry.path().c_str(), &status) == 0);
    bytes += 512.0 * static_cast<double>(status.st_blocks);
  }
  return bytes;
}

std::string metrics_so_far(const RunSite& site) {
  const fs::path file = site.run() / "metrics.jsonl";
  return fs::exists(file) ? read_bytes(file) : "";
}

/// Runs to the end and, `on_host`, looks at its processes now and then: a look keeps them from
/// their pages. The first checkpoint is written when a second state waits and both slots of every
/// snapshot are full, two looks have found the same, and no thread has anything to do, which one
/// that waits for a core has: until then the run holds what it has, however late a look comes.
/// VmHWM counts the program, too.
Figures measure(const RunSite& site, const std::string& path, const Words& words, bool on_host) {
  constexpr int kPausesBetweenLooks = 4;
  constexpr double kSame = 65536.0;  // Bytes.
  fs::create_directory(site / "devices");
  int slow = ::open((site / "durable").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  REQUIRE(::flock(slow, LOCK_EX) == 0);
  Process run(joined(slow_disk(site, path), words), site.path());
  Figures figures;
  double before = 0.0;
  for (int pause = 0; run.running(); ++pause) {
    if (pause % kPausesBetweenLooks == 0) {
      const bool full = slow >= 0 && has(metrics_so_far(site), "\"step\":5");
      const double now = on_host ? look(site, run.pid(), figures) : 0.0;
      const bool same = full && std::abs(now - before) < kSame;
      if (same && std::ranges::none_of(processes_of(site, run.pid()), [](const auto& process) {
            return at_work(process.second);
          })) {
        ::close(std::exchange(slow, -1));
      }
      before = full ? now : 0.0;
    }
    before_the_next_look();
  }
  const Ended ended = run.wait();
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  for (const fs::directory_entry& entry : fs::directory_iterator(site / "devices")) {
    figures.device = std::max(figures.device, std::stod(read_bytes(entry.path())));
  }
  const fs::path checkpoints = site.run() / "checkpoints";
  figures.kept = blocks_of(checkpoints);
  figures.checkpoint = blocks_of(checkpoints / "step-00000006");
  return figures;
}

/// The plan of `run --dry-run`, which is that of `plan`.
Figures planned_figures(const RunSite& site, const std::string& path, Words words) {
  const auto shown = [&](const Words& command) {
    const Ended ended = Process(joined(slow_disk(site, path), command), site.path()).wait();
    INFO(ended.out << ended.err);
    REQUIRE(ended.exit_code == 0);
    return ended.out;
  };
  const Figures figures = plan_of(shown(joined(words, {"--dry-run"})));
  words.front() = "plan";
  CHECK(figures.node == plan_of(shown(words)).node);
  return figures;
}

/// Prints a row of planned and measured MiB, and checks it.
void compare(const std::string& name, const RunSite& site, const Words& more) {
  const auto run = [&](const std::string& device) {
    const Words words =
        RunSite::run_words(joined(measured_keys(more), {"runtime.device=" + device}));
    const std::string path =
        ACTORTRAIN_BINARY_DIR "/actortrain" + std::string(device == "cpu" ? "" : "_emulated");
    const Figures planned = planned_figures(site, path, words);
    return std::pair(planned, measure(site, path, words, device == "cpu"));
  };
  const auto [expected_of_host, found_of_host] = run("cpu");
  fs::rename(site / "devices", site / "no_devices");
  fs::rename(site / "runs", site / "runs_cpu");
  fs::remove(site / "durable");
  auto [expected, found] = run("cuda");
  expected.rank = expected_of_host.rank;
  expected.node = expected_of_host.node;
  found.rank = found_of_host.rank;
  found.node = found_of_host.node;
  std::string line = fmt::format("{:<20}", name);
  for (const auto& [what, figure] :
       {std::pair("device", &Figures::device), std::pair("rank", &Figures::rank),
        std::pair("node", &Figures::node), std::pair("checkpoint", &Figures::checkpoint),
        std::pair("kept", &Figures::kept)}) {
    constexpr double kMiB = 1048576.0;
    const double off = found.*figure / expected.*figure - 1.0;
    line += fmt::format(" | {:6.1f} {:6.1f} {:+5.1f} %", expected.*figure / kMiB,
                        found.*figure / kMiB, 100.0 * off);
    INFO(name << ": " << what << ", planned " << expected.*figure << ", found " << found.*figure);
    CHECK(std::abs(off) <= 0.05);
  }
  fmt::print("{}\n", line);
}

}  // namespace

TEST_CASE("needs: memory and disk are as planned, within 5 %", "[integration][.full][needs]") {
  fmt::print(
      "planned and measured MiB | device | host of a rank | of a node | checkpoint | kept\n");
  for (const auto& [ranks, strategy] :
       {std::pair(1, "none"), std::pair(1, "full"), std::pair(4, "none"), std::pair(4, "full")}) {
    const RunSite site;
    compare(fmt::format("{} rank{}, {}", ranks, ranks == 1 ? "" : "s", strategy), site,
            rank_keys(ranks, strategy));
  }
  const RunSite site;
  compare("LoRA", site, {"lora.rank=4", "lora.targets=[\"all-linear\"]"});
  const RowSite pairs(kPairs);
  compare("DPO, live reference", pairs, {"objective.name=dpo", "objective.reference=live"});
}
