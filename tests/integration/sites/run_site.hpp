#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/format/layout.hpp"
#include "checkpoint/load/reader.hpp"
#include "tests/integration/run_files.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/processes/process.hpp"

namespace train::test {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

inline const char* program() { return ACTORTRAIN_BINARY_DIR "/actortrain"; }

inline Words lines_of(const std::string& text) {
  Words lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// The last of several; fails the test if there is none.
template <class List>
typename List::value_type last_of(const List& list) {
  REQUIRE_FALSE(list.empty());
  return list.back();
}
template <class List>
typename List::value_type first_of(const List& list) {
  REQUIRE_FALSE(list.empty());
  return list.front();
}

/// Sentences of few words, always the same: a model of any size learns something from them.
inline std::string simple_text(std::size_t sentences) {
  static const Words kNouns = {"the river", "a quiet child", "the old miller", "our neighbour"};
  static const Words kVerbs = {"follows", "remembers", "waits for", "paints"};
  std::mt19937 random(7);
  std::string text;
  for (std::size_t i = 0; i < sentences; ++i) {
    text += fmt::format("{} {} {}.\n", kNouns[random() % 4], kVerbs[random() % 4],
                        kNouns[random() % 4]);
  }
  return text;
}

/// Token files made by `actortrain data prepare`, once for all tests of this program.
inline const fs::path& prepared_data() {
  static const TempDirectory home;
  static const fs::path data = [] {
    write_bytes(home / "text.txt", simple_text(1500));
    Process prepare({program(), "data", "prepare", "--input", (home / "text.txt").string(), "--out",
                     (home / "data").string()});
    const Ended ended = prepare.wait();
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    return home / "data";
  }();
  return data;
}

/// Where a user works: an empty directory with a run file, `tiny.toml`. Runs go to runs/.
class RunSite {
 public:
  RunSite() { write_config(prepared_data().string()); }
  RunSite(const RunSite&) = delete;
  RunSite& operator=(const RunSite&) = delete;
  ~RunSite() { check_files_of_runs(home_ / "runs"); }

  /// It is patient with a machine that stands still for a while: most tests want no warning of it.
  void write_config(const std::string& data, const std::string& more_of_model = "") const {
    write_bytes(home_ / "tiny.toml", fmt::format(R"([run]
name = "tiny"
steps = 20
digest_interval_steps = 5
[model]
arch = "enoki"
layers = 2
heads = 2
head_dim = 8
{}
[data]
dir = "{}"
sequence_length = 32
[batch]
lanes = 3
micro_batch = 2
[parallel]
wrapping = ["per_block"]
[optimizer]
lr = 3e-3
[schedule]
warmup_steps = 4
[eval]
interval_steps = 10
lanes = 2
[checkpoint]
interval_steps = 10
keep_last = 0
[watchdog]
stall_s = 30
[runtime]
threads = 1
)",
                                                 more_of_model, data));
  }

  [[nodiscard]] const fs::path& path() const { return home_.path(); }
  fs::path operator/(std::string_view name) const { return home_ / name; }
  [[nodiscard]] fs::path run(const std::string& name = "tiny") const {
    return home_.path() / "runs" / name;
  }

  /// Starts the program in this directory.
  [[nodiscard]] std::unique_ptr<Process> start(
      Words words, Process::Group group = Process::Group::of_the_test) const {
    words.insert(words.begin(), program());
    return std::make_unique<Process>(std::move(words), home_.path(), group);
  }
  /// The words of `actortrain run tiny.toml` with `keys` as --set, without the program.
  [[nodiscard]] static Words run_words(const Words& keys) {
    Words words = {"run", "tiny.toml"};
    for (const std::string& key : keys) {
      words.insert(words.end(), {"--set", key});
    }
    return words;
  }
  [[nodiscard]] std::unique_ptr<Process> start_run(const Words& keys = {}) const {
    return start(run_words(keys));
  }
  [[nodiscard]] Ended call(Words words) const { return start(std::move(words))->wait(); }
  /// Trains to the end.
  Ended train(const Words& keys = {}) const {
    Ended ended = start_run(keys)->wait();
    INFO(ended.err);
    CHECK(ended.signal == 0);
    REQUIRE(ended.exit_code == 0);
    return ended;
  }

 private:
  TempDirectory home_;
};

/// The lines of metrics.jsonl; each must be whole.
inline std::vector<nlohmann::json> metrics_of(const fs::path& run) {
  std::vector<nlohmann::json> entries;
  for (const std::string& line : lines_of(read_bytes(run / "metrics.jsonl"))) {
    INFO(line);
    entries.push_back(nlohmann::json::parse(line, nullptr, false));
    REQUIRE(entries.back().is_object());
  }
  return entries;
}

/// The lines of metrics.jsonl without what depends on the clock.
inline Words results_of(const fs::path& run) {
  Words results;
  for (nlohmann::json entry : metrics_of(run)) {
    entry.erase("tokens_per_second");
    entry.erase("mfu");
    entry.erase("trained_tokens_per_second");
    entry.erase("sample_seconds");
    results.push_back(entry.dump());
  }
  return results;
}

/// Steps of the checkpoints, ascending. Each must be whole.
inline std::vector<std::int64_t> checkpoint_steps(const fs::path& run) {
  std::vector<std::int64_t> steps;
  const auto found = checkpoint::list_checkpoints(run / "checkpoints");
  REQUIRE(found.ok());
  for (const checkpoint::Candidate& candidate : *found) {
    const auto verified = checkpoint::verify_checkpoint(candidate.path);
    REQUIRE(verified.ok());
    INFO(candidate.path.string() << ": " << verified->defect);
    REQUIRE(verified->whole());
    steps.insert(steps.begin(), candidate.step);
  }
  return steps;
}

/// The newest step of the checkpoints, each of which must be whole; fails the test if there is
/// none.
inline std::int64_t newest_checkpoint(const fs::path& run) {
  const std::vector<std::int64_t> steps = checkpoint_steps(run);
  INFO("checkpoints of " << run.string());
  return last_of(steps);
}

/// Removes the checkpoints after `step`, as if the run had been stopped there.
inline void forget_after(const fs::path& run, std::int64_t step) {
  for (const std::int64_t found : checkpoint_steps(run)) {
    if (found > step) {
      fs::remove_all(run / "checkpoints" / checkpoint::checkpoint_name(found));
    }
  }
}

/// One line on stderr, which holds every one of `parts`.
inline void check_one_line(const Ended& ended, int exit_code, const Words& parts) {
  INFO("stderr: " << ended.err);
  CHECK(ended.signal == 0);
  CHECK(ended.exit_code == exit_code);
  REQUIRE(lines_of(ended.err).size() == 1);
  CHECK(ended.err.starts_with("error "));
  for (const std::string& part : parts) {
    INFO("wanted: " << part);
    CHECK(has(ended.err, part));
  }
}

/// Every file below a directory, with its bytes; but for run.lock, which names its last owner.
inline std::map<std::string, std::string> tree_of(const fs::path& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.path().filename() == "run.lock") {
      continue;
    }
    files[entry.path().string()] = entry.is_regular_file() ? read_bytes(entry.path()) : "directory";
  }
  return files;
}

/// The command fails as check_one_line says, writes nothing to standard output, changes no file.
inline void check_mistake(const RunSite& site, const Words& words, const Words& parts,
                          int exit_code = 2) {
  const auto before = tree_of(site.path());
  const Ended ended = site.call(words);
  check_one_line(ended, exit_code, parts);
  CHECK(ended.out.empty());
  CHECK(tree_of(site.path()) == before);
}

/// data/ with a train.bin and a val.bin of the given bytes, which the run file names.
inline void write_tokens(const RunSite& site, const std::string& train) {
  fs::create_directories(site / "data");
  write_bytes(site / "data/train.bin", train);
  write_bytes(site / "data/val.bin", std::string(2000, '\0'));
  site.write_config("data");
}

}  // namespace train::test
