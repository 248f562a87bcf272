#pragma once

#include "base/error.hpp"

namespace train::cli {

/// How a command of the program fails: the error as one line on stderr. Returns the exit code.
int report_error(const Error& error);

}  // namespace train::cli
