#pragma once

#include <sys/types.h>

#include <string_view>

namespace train::cli {

/// Whether people other than user `own` may log in, as the text of /etc/passwd has it: an account
/// with a number that people get and a shell.
[[nodiscard]] bool names_other_people(std::string_view passwd, uid_t own);

/// Whether other people use this machine, as far as can be seen: by its accounts, or, where those
/// are in a directory service, by processes. Blocks for a moment.
[[nodiscard]] bool other_people_here();

}  // namespace train::cli
