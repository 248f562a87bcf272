#pragma once

namespace train {

/// Exit codes of the program; users and schedulers rely on them.
inline constexpr int kExitFinished = 0;
inline constexpr int kExitFailure = 1;    ///< Environment failure: disk full, corrupt file, lost
                                          ///< peer.
inline constexpr int kExitUserError = 2;  ///< User error; nothing was started.
inline constexpr int kExitStopped = 75;   ///< Stopped by a signal, and saved; the same command
                                          ///< resumes.

}  // namespace train
