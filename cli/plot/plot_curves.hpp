#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "cli/options.hpp"

namespace train::cli {

/// One line of a plot.
struct Curve {
  std::string name;                               ///< Of the run.
  std::vector<std::pair<double, double>> points;  ///< (x, value), x rising, all finite.
};

/// What `metrics`, the text of a metrics.jsonl, says of `options.what`: a point a step. A line that
/// is cut off or no JSON is left out, and so is a value that is no number (a loss that overflowed);
/// of a step measured twice (a resumed run) the later value counts. Smoothed as asked for.
///
/// x: steps; tokens; or seconds of training, summed up from the tokens per second of each line, so
/// that stops, evaluations and saves do not count. With `log_x` points at x = 0 are left out.
[[nodiscard]] std::vector<std::pair<double, double>> points_of(std::string_view metrics,
                                                               const PlotOptions& options);

/// The curves of all runs, each named after its directory, or as it was given where two have one
/// name. Blocks on the file system.
/// Errors: (user) no such run, no metrics yet, none of this quantity; (failure) not readable.
[[nodiscard]] Result<std::vector<Curve>> read_curves(const PlotOptions& options);

/// A header and a line a point: run, x, value; all digits. Names are quoted where CSV wants it.
[[nodiscard]] std::string csv_of(const std::vector<Curve>& curves, const PlotOptions& options);

/// A script for gnuplot that holds all points and writes `picture`, an SVG or PNG as `options.out`
/// says. Names and paths are data in it, whatever they hold.
[[nodiscard]] std::string script_of(const std::vector<Curve>& curves, const PlotOptions& options,
                                    const std::filesystem::path& picture);

/// Reads the runs and writes `options.out`, whole or not at all; what was there before stays until
/// then. Pictures are drawn by gnuplot, a program of its own. Blocks.
/// Errors: (user) those of read_curves, no gnuplot, nowhere to write; (failure) gnuplot fails, disk
/// full.
[[nodiscard]] Status write_plot(const PlotOptions& options);

}  // namespace train::cli
