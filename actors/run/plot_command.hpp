#pragma once

#include "actors/cli/plot_options.hpp"
#include "engine/base/result.hpp"

namespace train::actors {

/// Reads the runs and writes `options.out`, whole or not at all; what was there before stays until
/// then. Pictures are drawn by gnuplot, a program of its own. Blocks.
/// Errors: (user) those of read_curves, no gnuplot, nowhere to write; (failure) gnuplot fails, disk
/// full.
[[nodiscard]] Status write_plot(const cli::PlotOptions& options);

/// `actortrain plot`: writes it and says where. Returns the exit code; errors are one line on
/// stderr.
[[nodiscard]] int plot_command(const cli::PlotOptions& options);

}  // namespace train::actors
