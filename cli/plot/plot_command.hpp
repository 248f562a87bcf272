#pragma once

#include "base/result.hpp"
#include "cli/plot_options.hpp"

namespace train::cli {

/// Reads the runs and writes `options.out`, whole or not at all; what was there before stays until
/// then. Pictures are drawn by gnuplot, a program of its own. Blocks.
/// Errors: (user) those of read_curves, no gnuplot, nowhere to write; (failure) gnuplot fails, disk
/// full.
[[nodiscard]] Status write_plot(const PlotOptions& options);

/// `actortrain plot`: writes it and says where. Returns the exit code; errors are one line on
/// stderr.
[[nodiscard]] int plot_command(const PlotOptions& options);

}  // namespace train::cli
