#pragma once

#include "base/result.hpp"

namespace train {

/// Raises the soft limit of the stack (`ulimit -s`) to the hard one, and the stacks of threads that
/// are started from now on, where it is too small for this program. A hard limit that is too small
/// is an error: functions would end by SIGSEGV without a word.
[[nodiscard]] Status raise_stack_limit();

}  // namespace train
