#pragma once

#include <sys/types.h>

#include <string_view>

namespace train::cli {

/// True if people other than user `own` can log in, according to the text of /etc/passwd: an
/// account with a person's uid and a shell.
[[nodiscard]] bool names_other_people(std::string_view passwd, uid_t own);

/// True if other people use this machine, as far as visible: from its accounts, or, with a
/// directory service, from processes. Blocks for a moment.
[[nodiscard]] bool other_people_here();

}  // namespace train::cli
