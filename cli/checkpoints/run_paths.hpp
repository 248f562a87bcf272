#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "configs/run_config.hpp"

namespace train::cli {

/// Configuration of a run whose paths are found from the working directory.
struct FoundPaths {
  configs::RunConfig config;
  std::vector<std::string> notes = {};  ///< Paths that exist here, too, and are not the run's.
  std::string missing = {};  ///< First relative data directory that does not exist, as an error's
                             ///< text; empty: none.
};

/// Makes the paths of `config`, as the run in directory `run` has stored it, right for the working
/// directory. Relative paths of data, models and questions begin where the run was started:
/// the directory of `run` without run.dir at its end. Such a path that exists there becomes
/// absolute; one that does not exist there, or of a run with an absolute run.dir, stays as it is.
/// run.dir and run.name become those of `run`, unless they lead there already. Blocks on the file
/// system.
[[nodiscard]] FoundPaths find_paths(configs::RunConfig config, const std::filesystem::path& run);

}  // namespace train::cli
