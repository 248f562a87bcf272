#pragma once

namespace train {

/// Exit codes of the program; users and schedulers rely on them.
inline constexpr int kExitFinished = 0;
inline constexpr int kExitFailure = 1;  ///< Disk full, corrupt file, lost peer: the world's fault.
inline constexpr int kExitUserError = 2;  ///< The user's mistake; nothing was started.
inline constexpr int kExitStopped = 75;   ///< A signal; saved; the same command resumes.

}  // namespace train
