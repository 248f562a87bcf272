#pragma once

#include "cli/export_options.hpp"

namespace train::cli {

/// `actortrain export`: a checkpoint's weights as safetensors files and what is needed to use them,
/// for other programs. Returns the exit code; errors are one line on stderr. A signal ends it and
/// leaves nothing.
[[nodiscard]] int export_command(const ExportOptions& options);

}  // namespace train::cli
