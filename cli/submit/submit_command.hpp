#pragma once

#include "cli/submit_options.hpp"

namespace train::cli {

/// `actortrain submit`: checks the run as `run` does, writes <run.dir>/<run.name>.sbatch and hands
/// it to sbatch. Returns the exit code; errors are one line on stderr. With dry_run it prints the
/// script and changes nothing. Blocks until sbatch has answered.
[[nodiscard]] int submit_command(const SubmitOptions& options);

}  // namespace train::cli
