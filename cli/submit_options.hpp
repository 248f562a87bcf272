#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace train::cli {

/// actortrain submit CONFIG
struct SubmitOptions {
  std::string config;                 ///< Path of the run file.
  std::vector<std::string> set;       ///< As in RunOptions.
  std::optional<std::int64_t> nodes;  ///< Instead of parallel.nodes; 1 or more.
  std::optional<std::int64_t> cpus;   ///< Per node, instead of the profile's; 1 or more.
  std::string profile;                ///< A name or a path; empty: by the host's name.
  std::string time;                   ///< This and the following: empty: the profile's.
  std::string account;
  std::string partition;
  std::string constraint;
  std::string gpus;      ///< Per node.
  std::string mem;       ///< Per node.
  bool dry_run = false;  ///< Print the script, write and submit nothing.
};

}  // namespace train::cli
