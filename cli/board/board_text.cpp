#include "cli/board/board_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

namespace train::cli {
namespace {

using Bins = std::vector<MetricBin>;

template <class NumberOf>
void add_list(fmt::memory_buffer& text, const char* name, const Bins& bins, std::size_t from,
              NumberOf number_of) {
  fmt::format_to(std::back_inserter(text), "\"{}\":[", name);
  for (std::size_t bin = from; bin < bins.size(); ++bin) {
    const char* comma = bin == from ? "" : ",";
    // The mean of rates around 0 may not be finite.
    const auto number = bins[bin].count == 0 ? std::numeric_limits<double>::quiet_NaN()
                                             : static_cast<double>(number_of(bins[bin]));
    if (std::isfinite(number)) {
      fmt::format_to(std::back_inserter(text), "{}{:.9g}", comma, number);
    } else {
      fmt::format_to(std::back_inserter(text), "{}null", comma);
    }
  }
  text.push_back(']');
}

void add_column(fmt::memory_buffer& text, const MetricHistory::Column& column, std::size_t from) {
  const std::size_t begin = std::min(from, column.bins.size());
  const bool single =
      std::all_of(column.bins.begin() + static_cast<std::ptrdiff_t>(begin), column.bins.end(),
                  [](const MetricBin& bin) { return bin.count < 2; });
  text.push_back('{');
  if (!single) {
    add_list(text, "min", column.bins, begin, [](const MetricBin& bin) { return bin.least; });
    text.push_back(',');
    add_list(text, "max", column.bins, begin, [](const MetricBin& bin) { return bin.most; });
    text.push_back(',');
  }
  add_list(text, "mean", column.bins, begin,
           [&column](const MetricBin& bin) { return column.mean(bin); });
  if (column.newest_step >= 0) {
    fmt::format_to(std::back_inserter(text), ",\"newest\":{:.9g}", column.newest);
  }
  text.push_back('}');
}

std::string json_text(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::string series_json(const MetricHistory& history, const SeriesRequest& request,
                        const std::string& more) {
  std::size_t from = 0;
  if (request.since_width == history.width() && request.since > history.first_step() &&
      request.since <= history.last_step()) {
    from = static_cast<std::size_t>((request.since - history.first_step()) / history.width());
  }
  fmt::memory_buffer text;
  fmt::format_to(std::back_inserter(text),
                 R"({{"first":{},"width":{},"last_step":{},"lost":{}{},"columns":{{)",
                 history.first_step() + static_cast<std::int64_t>(from) * history.width(),
                 history.width(), history.last_step(), history.lost(), more);
  const char* comma = "";
  for (const MetricHistory::Column& column : history.columns()) {
    fmt::format_to(std::back_inserter(text), "{}{}:", comma, json_text(column.name));
    add_column(text, column, from);
    comma = ",";
  }
  text.push_back('}');
  text.push_back('}');
  return fmt::to_string(text);
}

namespace {

/// Quoted label value, escaped as in JSON, which matches OpenMetrics except for control characters;
/// a run name with those, or with invalid UTF-8, must not break the other runs.
std::string label(const std::string& text) {
  std::string plain = text;
  std::replace_if(
      plain.begin(), plain.end(),
      [](char each) { return static_cast<unsigned char>(each) < ' ' && each != '\n'; }, '?');
  return json_text(plain);
}

template <class NumberOf>
void add_gauge(fmt::memory_buffer& text, const std::vector<RunGauges>& runs, const char* name,
               const char* help, NumberOf number_of) {
  fmt::format_to(std::back_inserter(text),
                 "# TYPE actortrain_{0} gauge\n# HELP actortrain_{0} {1}\n", name, help);
  for (const RunGauges& run : runs) {
    const double number = static_cast<double>(number_of(run));
    if (!std::isnan(number)) {
      fmt::format_to(std::back_inserter(text), "actortrain_{}{{run={}}} {}\n", name, label(run.run),
                     number);
    }
  }
}

}  // namespace

std::string open_metrics_text(const std::vector<RunGauges>& runs) {
  fmt::memory_buffer text;
  const auto gauge = [&](const char* name, const char* help, auto number_of) {
    add_gauge(text, runs, name, help, number_of);
  };
  gauge("running", "1 while the run's launcher lives.",
        [](const RunGauges& run) { return run.running ? 1.0 : 0.0; });
  gauge("step", "Finished optimizer steps.", [](const RunGauges& run) { return run.step; });
  gauge("steps", "Optimizer steps of the whole run.",
        [](const RunGauges& run) { return run.steps; });
  gauge("loss", "Loss of the newest step, in nats.", [](const RunGauges& run) { return run.loss; });
  gauge("validation_loss", "Loss of the newest evaluation, in nats.",
        [](const RunGauges& run) { return run.val_loss; });
  gauge("gradient_norm", "Norm of the newest gradient before clipping.",
        [](const RunGauges& run) { return run.grad_norm; });
  gauge("learning_rate", "Of the newest step.", [](const RunGauges& run) { return run.lr; });
  gauge("tokens_per_second", "Over the last 30 s of training, evaluations left out.",
        [](const RunGauges& run) { return run.tokens_per_second; });
  gauge("generation", "How many times ranks were started again.",
        [](const RunGauges& run) { return run.generation; });
  gauge("ranks", "Ranks of the present generation.",
        [](const RunGauges& run) { return run.ranks; });
  gauge("checkpoint_step", "Step of the newest checkpoint of this start; -1: none.",
        [](const RunGauges& run) { return run.saved_step; });
  gauge("status_timestamp_seconds", "When the run last said how it is, in Unix time.",
        [](const RunGauges& run) { return run.written_unix_s; });
  fmt::format_to(std::back_inserter(text), "# EOF\n");
  return fmt::to_string(text);
}

}  // namespace train::cli
