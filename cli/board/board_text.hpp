#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/board/metric_history.hpp"

namespace train::cli {

/// Parameters of a series request.
struct SeriesRequest {
  std::int64_t since = 0;        ///< Bins that end before this step are already known, if they
  std::int64_t since_width = 0;  ///< had this width; 0: none are known. All are sent if there is no
                                 ///< such step: the file was begun anew.
};

/// A history as one JSON object, for charts:
///   first, width, last_step     bin i begins at step first + i * width
///   columns.<name>              min, max, mean: lists of numbers, null for an empty bin; only
///                               mean if all bins have one value at most; newest: the value of
///                               the last step that has one, as no bin's mean shows it
/// Numbers have nine digits. `more`: further members, each ", \"key\": value".
[[nodiscard]] std::string series_json(const MetricHistory& history, const SeriesRequest& request,
                                      const std::string& more);

/// Values of a run for OpenMetrics.
struct RunGauges {
  std::string run;
  bool running = false;
  std::int64_t step = 0, steps = 0, generation = 0, ranks = 0;
  double loss = 0.0, val_loss = 0.0, grad_norm = 0.0, lr = 0.0;  ///< NaN: unknown.
  double tokens_per_second = 0.0;
  std::int64_t saved_step = -1;
  std::int64_t written_unix_s = 0;
};

/// All runs in the OpenMetrics format 1.0.0 (openmetrics.io): one gauge per quantity, with the
/// run's name as label.
[[nodiscard]] std::string open_metrics_text(const std::vector<RunGauges>& runs);

}  // namespace train::cli
