#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "configs/clusters/cluster_profile.hpp"

namespace train::cli {

/// Description of a run as a chain of batch jobs.
struct BatchJob {
  std::string name;                      ///< Name of the job in the queue.
  std::int64_t nodes = 1;                ///< One launcher on each.
  std::int64_t cpus = 1;                 ///< Per node.
  std::int64_t steps = 0;                ///< Last step of the run.
  std::int64_t restarts = 0;             ///< Restarts of a killed launcher, on each other node.
  std::filesystem::path run_directory;   ///< Absolute path for the output and the marker.
  std::filesystem::path work_directory;  ///< Absolute path to which the run's relative paths refer.
  std::vector<std::string> words;        ///< The program and its arguments.
  configs::ClusterProfile cluster;       ///< With the command line's overrides.
};

/// File in the run's directory that the job leaves after the last step: the number of steps, one
/// line. A job that finds it ends at once.
[[nodiscard]] std::filesystem::path finished_marker(const std::filesystem::path& run_directory);

/// Quotes `word` so that a shell reads exactly that. REQUIRES: no zero byte. Pure.
[[nodiscard]] std::string shell_quoted(const std::string& word);

/// Batch script of a job for Slurm's sbatch. It is submitted once: the job is requeued until the
/// run's last step and never after it.
///   SB-1 A job that ends with exit code 75 requeues itself, unless Slurm is ending it (a cancelled
///        job stays cancelled); so does one whose head was killed after it had saved something new.
///        One that ends with 0 leaves finished_marker(); with any other code the chain ends.
///   SB-2 The warning before the job's time limit reaches every launcher of the run. A killed
///        launcher of a node other than the first is restarted, at most `restarts` times per job,
///        unless the job has been told to end. The loss of such a node does not end the job.
///   SB-3 Paths, arguments and environment values arrive unchanged, whatever their content.
/// Errors (user): a path, an argument or a value with a line break or another control character;
/// names it. Pure.
[[nodiscard]] Result<std::string> batch_script(const BatchJob& job);

}  // namespace train::cli
