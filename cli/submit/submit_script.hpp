#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "configs/cluster_profile.hpp"

namespace train::cli {

/// What a run needs to know to go on as a chain of jobs of a batch system.
struct BatchJob {
  std::string name;                      ///< Of the job, as the queue shows it.
  std::int64_t nodes = 1;                ///< One launcher on each.
  std::int64_t cpus = 1;                 ///< Per node.
  std::int64_t steps = 0;                ///< The run's last.
  std::int64_t restarts = 0;             ///< Of a launcher that is killed, on each other node.
  std::filesystem::path run_directory;   ///< Absolute. Holds the output and the marker.
  std::filesystem::path work_directory;  ///< Absolute. Where relative paths of the run begin.
  std::vector<std::string> words;        ///< The program and its arguments.
  configs::ClusterProfile cluster;       ///< With what the command line asked for put in.
};

/// File in the run's directory that the job leaves after the last step: the number of steps, one
/// line. A job that finds it ends at once.
[[nodiscard]] std::filesystem::path finished_marker(const std::filesystem::path& run_directory);

/// `word` as a shell takes it for exactly that. REQUIRES: no zero byte. Pure.
[[nodiscard]] std::string shell_quoted(const std::string& word);

/// The batch script of a job for Slurm's sbatch. It is submitted once: the same job is queued again
/// until the run's last step and never after it.
///   SB-1 A job that ends with exit code 75 is queued again by itself, unless Slurm is ending it
///        (a cancelled job stays cancelled), and so is one whose head was killed after it had saved
///        something new; one that ends with 0 leaves finished_marker(); with any other code the
///        chain ends.
///   SB-2 The warning before the job's time is over reaches every launcher of the run.
///        A launcher of a node other than the first that is killed is started again, at most
///        `restarts` times a job, unless the job has been told to end. The loss of such a node does
///        not end the job.
///   SB-3 Paths, arguments and values of the environment arrive as they are, whatever they hold.
/// Errors (user): a path, an argument or a value with a line break or another control character;
/// names it. Pure.
[[nodiscard]] Result<std::string> batch_script(const BatchJob& job);

}  // namespace train::cli
