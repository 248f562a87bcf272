#pragma once

#include <csignal>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "tests/integration/event_log.hpp"
#include "tests/integration/sites/run_site.hpp"
#include "tests/support/harness/hang_limit.hpp"

// Runs whose ranks are processes: who they are, and how to wait for them.
namespace train::test {

/// Keys for `ranks` processes, then `more`.
inline Words rank_keys(int ranks, const std::string& strategy, const Words& more = {}) {
  Words keys = {fmt::format("parallel.ranks={}", ranks),
                fmt::format("parallel.strategy={}", strategy)};
  if (strategy == "hybrid") {
    keys.push_back("parallel.group=2");
  }
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

inline Words joined(Words keys, const Words& more) {
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

/// For the environment of a run none of whose processes falls silent: one that waits for a core, or
/// that a test stops for a while, is not taken for lost; a killed one closes its connections.
inline const char* const kPatient = "ACTORTRAIN_TEST_PATIENT=1";

/// Starts such a run.
inline std::unique_ptr<Process> start_patient_run(const RunSite& site, const Words& keys) {
  return std::make_unique<Process>(
      joined({"/usr/bin/env", kPatient, program()}, RunSite::run_words(keys)), site.path());
}

/// Processes with `text` in their command line, and those lines: words parted by zero bytes. Those
/// that run a script have its path. One that has ended is not among them, whether its parent knows
/// yet or not.
inline std::map<pid_t, std::string> processes_with(const std::string& text) {
  std::map<pid_t, std::string> processes;
  std::error_code ended;  // processes come and go while the directory is read
  for (fs::directory_iterator entry("/proc", ended), end; !ended && entry != end;
       entry.increment(ended)) {
    const std::string name = entry->path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) {
      continue;
    }
    // Not by iterators: reading what ends meanwhile is an error, which they throw.
    std::ifstream file(entry->path() / "cmdline", std::ios::binary);
    std::string words;
    for (char letter = 0; file.get(letter);) {
      words.push_back(letter);
    }
    if (has(words, text)) {
      processes.emplace(std::stoi(name), std::move(words));
    }
  }
  return processes;
}

/// Parent of a process; 0 if the process has ended.
inline pid_t parent_of(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/status", process));
  for (std::string word; file >> word;) {
    if (word == "PPid:" && file >> word) {
      return std::stoi(word);
    }
  }
  return 0;
}

/// The workers of runs in `directory`, by rank: where their credentials are tells them from any
/// other's. A program that a worker is about to start has the worker's words until then.
inline std::map<int, pid_t> workers_of(const fs::path& directory) {
  std::map<int, pid_t> workers;
  const auto processes = processes_with(directory.string() + "/");
  const std::string option("--rank\0", 7);
  const auto has_rank = [&](pid_t process) {
    const auto found = processes.find(process);
    return found != processes.end() && has(found->second, option);
  };
  for (const auto& [process, words] : processes) {
    const std::size_t rank = words.find(option);
    const pid_t parent = parent_of(process);
    if (rank != std::string::npos && parent != 0 && !has_rank(parent)) {
      workers[std::stoi(words.substr(rank + option.size()))] = process;
    }
  }
  return workers;
}

/// Waits until the launcher has started all of its ranks.
inline std::map<int, pid_t> started_workers(const RunSite& site, Process& launcher,
                                            std::size_t ranks) {
  std::map<int, pid_t> workers;
  const bool all = launcher.until([&] {
    workers = workers_of(site.path());
    return workers.size() == ranks;
  });
  INFO(launcher.err());
  REQUIRE(all);
  return workers;
}

/// How often `part` stands in `text`.
inline std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

/// The table of contents of a checkpoint, which must be whole.
inline checkpoint::Manifest manifest_of(const fs::path& run, std::int64_t step) {
  const auto verified =
      checkpoint::verify_checkpoint(run / "checkpoints" / checkpoint::checkpoint_name(step));
  REQUIRE(verified.ok());
  INFO(verified->defect);
  REQUIRE(verified->whole());
  return *verified->manifest;
}

}  // namespace train::test
