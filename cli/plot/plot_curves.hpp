#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "cli/options.hpp"

namespace train::cli {

/// Curve of a plot.
struct Curve {
  std::string name;                               ///< Name of the run.
  std::vector<std::pair<double, double>> points;  ///< (x, value), x ascending, all finite.
};

/// Values of `options.what` in `metrics`, the text of a metrics.jsonl: one point per step.
/// Truncated or invalid lines are skipped, as are non-finite values (a loss that overflowed); if a
/// step was measured twice (a resumed run) the later value counts. Smoothed as requested.
///
/// x: steps; tokens; or seconds of training, summed from the tokens per second of each line, so
/// that stops, evaluations and saves do not count. With `log_x` points at x = 0 are skipped.
[[nodiscard]] std::vector<std::pair<double, double>> points_of(std::string_view metrics,
                                                               const PlotOptions& options);

/// Curves of all runs, each named after its directory, or by its path if names collide. Blocks on
/// the file system. Errors: (user) no such run, no metrics yet, none of this quantity; (failure)
/// unreadable.
[[nodiscard]] Result<std::vector<Curve>> read_curves(const PlotOptions& options);

/// CSV with a header and one line per point: run, x, value; all digits. Names are quoted as CSV
/// requires.
[[nodiscard]] std::string csv_of(const std::vector<Curve>& curves, const PlotOptions& options);

/// Gnuplot script that contains all points and writes `picture`, as SVG or PNG by `options.out`.
/// Names and paths are quoted as data, whatever their content.
[[nodiscard]] std::string script_of(const std::vector<Curve>& curves, const PlotOptions& options,
                                    const std::filesystem::path& picture);

/// Reads the runs and writes `options.out` atomically; an existing file stays until then. Pictures
/// are drawn by the program gnuplot. Blocks. Errors: (user) those of read_curves, gnuplot missing,
/// output not writable; (failure) gnuplot fails, disk full.
[[nodiscard]] Status write_plot(const PlotOptions& options);

}  // namespace train::cli
