#pragma once

#include <filesystem>
#include <string>
#include <vector>

// This program's own file. A packed launcher (cli/launcher) starts the program through a loader of
// its own; the launcher then stands for it.
namespace train {

/// Absolute path, for people and for other machines. Empty: the system does not tell.
[[nodiscard]] std::string own_program();

/// Absolute path that starts the same program from this process, also where its file has been
/// replaced meanwhile; of a package, what lies in its place, now or at name_process().
[[nodiscard]] std::string own_program_now();

/// The launcher of the package of `loader`; of the package of `earlier`, a path that the same
/// loader had, if only that is there: an update may first move a package away, then delete it.
[[nodiscard]] std::string launcher_of(const std::filesystem::path& loader,
                                      const std::filesystem::path& earlier);

/// Gives the process the program's name, as others list it, where a loader has started it, and
/// remembers the loader's path. Call it first in main.
void name_process();

/// Environment for other programs, "NAME=value" each: LD_PRELOAD and LD_AUDIT as they were before
/// the launcher set them aside, the rest as it is. A launcher sets them aside again. REQUIRES: no
/// thread changes the environment meanwhile.
[[nodiscard]] std::vector<std::string> environment_of_others();

}  // namespace train
