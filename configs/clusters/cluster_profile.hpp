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

/// Settings shared by jobs on one cluster: a file of configs/clusters/. An empty text or list, or
/// an absent number, leaves it to the command line, then to the cluster's defaults.
struct ClusterProfile {
  std::string name;                ///< File name without ".toml".
  std::vector<std::string> hosts;  ///< Patterns (* ? [..]) of host names that select it.
  std::string partition;
  std::string account;
  std::string constraint;
  std::string time;                  ///< In Slurm's format: minutes, H:M:S, D-H, ...
  std::string mem;                   ///< Per node, as "320G"; "0": all of it.
  std::string gpus;                  ///< Per node, as "4" or "h100:4".
  std::int64_t cpus = 0;             ///< Per node; 0: the threads of its ranks, or all.
  std::int64_t grace_s = 180;        ///< Seconds from the warning to the end of a job's time.
  std::string interface;             ///< parallel.interface, unless the run sets it.
  std::string run_dir;               ///< run.dir, unless the run sets it.
  std::string local_dir;             ///< checkpoint.local_dir, unless the run sets it.
  std::vector<std::string> modules;  ///< Modules to load, in order.
  std::vector<std::pair<std::string, std::string>> environment;  ///< Set before the run starts.
  std::vector<std::string> before;  ///< Shell lines before the run starts, verbatim.
};

/// Seconds of `time`, or nullopt if it is not in Slurm's format. Pure.
[[nodiscard]] std::optional<std::int64_t> seconds_of_job_time(std::string_view time);

/// True if Slurm accepts `text` as an amount of memory. Pure.
[[nodiscard]] bool is_memory(std::string_view text);

/// True if `text` is safe as a name (of a partition, an account, ...) in a batch script: letters,
/// digits and some signs, nothing special to a shell or Slurm. Pure.
[[nodiscard]] bool is_plain_word(std::string_view text);

/// Parses a profile; `file_name` is used for messages and, without directory and ".toml", as the
/// profile's name. Errors (user), each one line "file:line: ...": invalid TOML; an unknown key
/// (names the nearest), one of another type, or with a value that a batch script cannot hold. Pure.
[[nodiscard]] Result<ClusterProfile> parse_cluster_profile(std::string_view text,
                                                           const std::string& file_name);

/// Finds a profile among the .toml files of `directory`. With a `name`: that one; a name with a "/"
/// or ".toml" is a path. Without: the one with a pattern that matches `host`, or an empty profile
/// if none does. Blocks on the file system. Errors (user): those of parse_cluster_profile; no
/// profile of that name (lists the existing ones); a host that several match.
[[nodiscard]] Result<ClusterProfile> find_cluster_profile(const std::filesystem::path& directory,
                                                          const std::string& name,
                                                          const std::string& host);

}  // namespace train::configs
