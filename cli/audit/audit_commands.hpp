#pragma once

#include "cli/audit_options.hpp"

// Commands that check a finished or running run; they write nothing, so they need no lock. Each
// returns the exit code: 1 where something differs. Errors are one line on stderr.
namespace train::cli {

/// `actortrain replay`: computes steps again, from the newest checkpoint in place before them or
/// from the initial weights, and compares loss, norms, learning rate and digests with the journal,
/// and digests with the checkpoints in place.
[[nodiscard]] int replay_command(const ReplayOptions& options);

/// `actortrain verify`: a line for each thing that does not fit, or one that says what fits.
[[nodiscard]] int verify_command(const VerifyOptions& options);

}  // namespace train::cli
