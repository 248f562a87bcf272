#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace train::configs {

/// What jobs on one cluster have in common: a file of configs/clusters/. An empty text, list or
/// absent number leaves it to the command line, then to the cluster's own defaults.
struct ClusterProfile {
  std::string name;                ///< The file's, without ".toml".
  std::vector<std::string> hosts;  ///< Patterns (* ? [..]) of the hosts that it is chosen on.
  std::string partition;
  std::string account;
  std::string constraint;
  std::string time;                  ///< As Slurm writes it: minutes, H:M:S, D-H, ...
  std::string mem;                   ///< Per node, as "320G"; "0": all of it.
  std::string gpus;                  ///< Per node, as "4" or "h100:4".
  std::int64_t cpus = 0;             ///< Per node; 0: the threads of its ranks, or all.
  std::int64_t grace_s = 180;        ///< From the warning to the end of a job's time.
  std::string interface;             ///< parallel.interface, where the run leaves it open.
  std::string run_dir;               ///< run.dir, where the run leaves it open.
  std::string local_dir;             ///< checkpoint.local_dir, where the run leaves it open.
  std::vector<std::string> modules;  ///< To load, in order.
  std::vector<std::pair<std::string, std::string>> environment;  ///< Set before the run starts.
  std::vector<std::string> before;  ///< Lines of shell before the run starts, as they are.
};

/// The most of `time` in seconds, or nothing if that is not how Slurm writes a time. Pure.
[[nodiscard]] std::optional<std::int64_t> seconds_of_job_time(std::string_view time);

/// Whether Slurm takes `text` as an amount of memory. Pure.
[[nodiscard]] bool is_memory(std::string_view text);

/// Whether `text` may stand for a name (of a partition, an account, ...) in a batch script:
/// letters, digits and some signs, nothing that a shell or Slurm would take apart. Pure.
[[nodiscard]] bool is_plain_word(std::string_view text);

/// A profile from text; `file_name` names places and, without directory and ".toml", the profile.
/// Errors (user), each one line "file:line: ...": not TOML; a key that is unknown (names the
/// nearest), of another type, or with a value that no batch script could hold. Pure.
[[nodiscard]] Result<ClusterProfile> parse_cluster_profile(std::string_view text,
                                                           const std::string& file_name);

/// The profile that is asked for, from the .toml files of `directory`. With a `name` that one; a
/// name with a "/" or ".toml" is a path. Without, the one with a pattern that matches `host`; if
/// none does, one that says nothing. Blocks on the file system.
/// Errors (user): those of parse_cluster_profile; no profile of that name (lists those there are);
/// a host that several match.
[[nodiscard]] Result<ClusterProfile> find_cluster_profile(const std::filesystem::path& directory,
                                                          const std::string& name,
                                                          const std::string& host);

}  // namespace train::configs
