#pragma once

#include <string>

// This program's own file. A packed launcher (cli/launcher) starts the program through a loader of
// its own; the launcher then stands for it.
namespace train {

/// Absolute path, for people and for other machines. Empty: the system does not tell.
[[nodiscard]] std::string own_program();

/// Absolute path that starts the same program from this process, also where its file has been
/// replaced meanwhile; of a package, what lies in its place.
[[nodiscard]] std::string own_program_now();

/// Gives the process the program's name, as others list it, where a loader has started it.
void name_process();

}  // namespace train
