#include "cli/plot/plot_curves.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/process/process.hpp"
#include "base/text/log.hpp"
#include "base/text/paths.hpp"
#include "cli/plot/axis_ticks.hpp"
#include "cli/report/untrusted_json.hpp"
#include "storage/files/atomic_file.hpp"

namespace train::cli {
namespace {

namespace fs = std::filesystem;
using Points = std::vector<std::pair<double, double>>;

/// Limit of a file read into memory: some 20 million steps.
constexpr std::uint64_t kMostBytes = std::uint64_t{8} << 30;

/// Distinguishable with any colour vision, as far as ten can be; repeated after that.
constexpr std::array kColours = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00",
                                 "#56b4e9", "#000000", "#8c510a", "#762a83", "#7f7f7f"};

/// Names of --what in metrics.jsonl and on the axis.
struct Quantity {
  const char* key;
  const char* title;
};

Quantity quantity_of(const std::string& what) {
  if (what == "val") {
    return {"val_loss", "validation loss (nats per token)"};
  }
  if (what == "grad_norm") {
    return {"grad_norm", "gradient norm"};
  }
  return what == "lr" ? Quantity{"lr", "learning rate"} : Quantity{"loss", "loss"};
}

std::string title_of_x(const std::string& x) { return x == "time" ? std::string("seconds") : x; }

std::optional<double> number(const nlohmann::ordered_json& entry, const char* key) {
  const auto found = entry.find(key);
  if (found == entry.end() || !found->is_number()) {
    return std::nullopt;
  }
  const auto value = found->get<double>();
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

/// Values of one step, from its training line and its evaluation.
struct StepFacts {
  std::optional<double> tokens;
  std::optional<double> tokens_per_second;
  std::optional<double> value;
};

std::map<double, StepFacts> facts_of(std::string_view metrics, const char* key) {
  std::map<double, StepFacts> steps;
  while (!metrics.empty()) {
    const std::string_view line = metrics.substr(0, metrics.find('\n'));
    metrics.remove_prefix(std::min(metrics.size(), line.size() + 1));
    const auto read = parse_untrusted_json(line, kLineLimits);
    if (!read || !read->is_object()) {
      continue;
    }
    const auto& entry = *read;
    const auto step = number(entry, "step");
    if (!step) {
      continue;
    }
    StepFacts& facts = steps[*step];
    if (entry.contains("tokens")) {
      facts.tokens = number(entry, "tokens");
      facts.tokens_per_second = number(entry, "tokens_per_second");
    }
    if (entry.contains(key)) {
      facts.value = number(entry, key);  // Empty if the later value is not finite.
    }
  }
  return steps;
}

/// Computes the x value of each step.
class Axis {
 public:
  explicit Axis(std::string x) : x_(std::move(x)) {}

  double at(double step, const StepFacts& facts) {
    if (facts.tokens) {
      const double speed = facts.tokens_per_second.value_or(0.0);
      seconds_ += speed > 0.0 ? std::max(*facts.tokens - tokens_, 0.0) / speed : 0.0;
      tokens_ = *facts.tokens;
    }
    return x_ == "steps" ? step : x_ == "tokens" ? tokens_ : seconds_;
  }

 private:
  std::string x_;
  double tokens_ = 0.0;
  double seconds_ = 0.0;
};

/// Moving average over the last `window` values. Windows are composed of prefix and suffix sums of
/// blocks of `window` points: nothing is subtracted, so a huge value leaves no rounding error
/// behind.
void smooth(Points& points, std::size_t window) {
  std::vector<double> to_end_of_block(points.size());
  for (std::size_t i = points.size(); i-- > 0;) {
    const bool last = (i + 1) % window == 0 || i + 1 == points.size();
    to_end_of_block[i] = points[i].second + (last ? 0.0 : to_end_of_block[i + 1]);
  }
  double from_begin_of_block = 0.0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    from_begin_of_block = points[i].second + (i % window == 0 ? 0.0 : from_begin_of_block);
    const std::size_t first = i + 1 < window ? 0 : i + 1 - window;
    const double before = first % window == 0 ? 0.0 : to_end_of_block[first];
    points[i].second = (before + from_begin_of_block) / static_cast<double>(i + 1 - first);
  }
}

std::string quoted_for_csv(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) {
    return text;
  }
  std::string quoted = "\"";
  for (const char letter : text) {
    quoted += letter == '"' ? "\"\"" : std::string(1, letter);
  }
  return quoted + "\"";
}

/// Gnuplot string, in which only the quote is special.
std::string quoted_for_gnuplot(const std::string& text) {
  std::string quoted = "'";
  for (const char letter : text) {
    const bool control = static_cast<unsigned char>(letter) < 32 || letter == 127;
    quoted += letter == '\'' ? "''" : std::string(1, control ? ' ' : letter);
  }
  return quoted + "'";
}

/// Minimum and maximum of `number_of` over the points. REQUIRES: there is one.
template <class NumberOf>
std::pair<double, double> range_of(const std::vector<Curve>& curves, const NumberOf& number_of) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::pair<double, double> range(kInfinity, -kInfinity);
  for (const Curve& curve : curves) {
    for (const auto& point : curve.points) {
      range.first = std::min(range.first, number_of(point));
      range.second = std::max(range.second, number_of(point));
    }
  }
  return range;
}

/// Gnuplot's own tick labels have six digits, which may not distinguish them.
std::string marks_of(const char* axis, const AxisTicks& ticks) {
  std::string script =
      fmt::format("set {0}range [{1}:{2}]\nset {0}tics (", axis, ticks.low, ticks.high);
  const std::vector<std::string> labels = axis_labels(ticks.values);
  for (std::size_t at = 0; at < labels.size(); ++at) {
    fmt::format_to(std::back_inserter(script), "{}'{}' {}", at == 0 ? "" : ", ", labels[at],
                   ticks.values[at]);
  }
  return script + ")\n";
}

/// Name "a" for "runs/a/"; for "." that of the current directory.
std::string name_of(const fs::path& run) {
  const fs::path name = without_slash(run.lexically_normal()).filename();
  if (!name.empty() && name != "." && name != "..") {
    return name.string();
  }
  std::error_code unknown;
  const fs::path place = without_slash(fs::weakly_canonical(run, unknown));
  return unknown || place.filename().empty() ? run.string() : place.filename().string();
}

Result<Points> read_points(const fs::path& run, const PlotOptions& options) {
  std::error_code unknown;
  if (!fs::is_directory(run, unknown)) {
    return user_error(fmt::format(
        "{}: no such run; give the directory that a run writes to, such as runs/quickstart",
        run.string()));
  }
  const fs::path file = run / "metrics.jsonl";
  if (!fs::exists(file, unknown)) {
    return user_error(
        fmt::format("{}: no metrics; this is not a run, or it has not begun", file.string()));
  }
  const auto text = TRAIN_TRY(storage::read_file(file, kMostBytes));
  Points points = points_of(text, options);
  if (points.empty()) {
    const std::string_view mend =
        options.what == "val" ? "; the run has eval.interval_steps = 0, or is not there yet" : "";
    return user_error(fmt::format("{}: no values of \"{}\"{}", file.string(),
                                  quantity_of(options.what).key, mend));
  }
  return points;
}

}  // namespace

Points points_of(std::string_view metrics, const PlotOptions& options) {
  Axis axis(options.x);
  Points points;
  for (const auto& [step, facts] : facts_of(metrics, quantity_of(options.what).key)) {
    const double x = axis.at(step, facts);
    if (facts.value && (x > 0.0 || !options.log_x)) {
      points.emplace_back(x, *facts.value);
    }
  }
  smooth(points, static_cast<std::size_t>(options.smooth));
  return points;
}

Result<std::vector<Curve>> read_curves(const PlotOptions& options) {
  std::vector<Curve> curves;
  std::map<std::string, int> named;
  for (const std::string& run : options.runs) {
    auto points = TRAIN_TRY(read_points(run, options));
    curves.push_back({.name = name_of(run), .points = std::move(points)});
    ++named[curves.back().name];
  }
  for (std::size_t i = 0; i < curves.size(); ++i) {
    if (named[curves[i].name] > 1) {
      curves[i].name = options.runs[i];
    }
  }
  return curves;
}

std::string csv_of(const std::vector<Curve>& curves, const PlotOptions& options) {
  std::string text =
      fmt::format("run,{},{}\n", title_of_x(options.x), quantity_of(options.what).key);
  for (const Curve& curve : curves) {
    const std::string name = quoted_for_csv(curve.name);
    for (const auto& [x, value] : curve.points) {
      fmt::format_to(std::back_inserter(text), "{},{},{}\n", name, x, value);
    }
  }
  return text;
}

std::string script_of(const std::vector<Curve>& curves, const PlotOptions& options,
                      const fs::path& picture) {
  const bool svg = fs::path(options.out).extension() == ".svg";
  std::string script;
  for (std::size_t i = 0; i < curves.size(); ++i) {
    fmt::format_to(std::back_inserter(script), "$curve{} << END\n", i);
    for (const auto& [x, value] : curves[i].points) {
      fmt::format_to(std::back_inserter(script), "{} {}\n", x, value);
    }
    script += "END\n";
  }
  script += fmt::format("set terminal {} size 960,600 noenhanced background rgb 'white'\n",
                        svg ? "svg" : "pngcairo");
  script += fmt::format("set output {}\n", quoted_for_gnuplot(picture.string()));
  script += fmt::format("set xlabel '{}'\nset ylabel '{}'\n", title_of_x(options.x),
                        quantity_of(options.what).title);
  script += "set grid lt 1 lw 0.5 lc rgb '#dddddd'\nset border 3\nset tics nomirror\n";
  script += "set key outside right Left reverse\n";
  script += options.log_x ? "set logscale x\n" : "";
  const auto [first_x, last_x] = range_of(curves, [](const auto& point) { return point.first; });
  AxisTicks x_ticks = options.log_x ? log_axis_ticks(first_x, last_x) : axis_ticks(first_x, last_x);
  if (first_x < last_x) {  // No empty space before the first step and after the last.
    x_ticks.low = first_x;
    x_ticks.high = last_x;
  }
  const auto [least, most] = range_of(curves, [](const auto& point) { return point.second; });
  script += marks_of("x", x_ticks) + marks_of("y", axis_ticks(least, most));
  for (std::size_t i = 0; i < curves.size(); ++i) {
    script += fmt::format(
        "{}$curve{} using 1:2 with {} lw 1.5 dt {} lc rgb '{}' title {}",
        i == 0 ? "plot " : ", \\\n  ", i, curves[i].points.size() == 1 ? "points" : "lines",
        i / kColours.size() + 1, kColours[i % kColours.size()], quoted_for_gnuplot(curves[i].name));
  }
  return script + "\nset output\n";
}

namespace {

/// Far more than a picture of millions of points takes.
constexpr std::chrono::minutes kDrawingLimit(5);

/// Removes a directory tree.
struct RemoveTree {
  void operator()(const fs::path* directory) const {
    if (const Status removed = storage::remove_tree(*directory); !removed) {
      log_warning(removed.error().message);
    }
    delete directory;
  }
};
using Workshop = std::unique_ptr<const fs::path, RemoveTree>;

/// Hidden directory beside `target`, so that a rename moves the picture into place.
Result<Workshop> workshop_beside(const fs::path& target) {
  const fs::path parent = target.parent_path();
  std::string name = (parent / fmt::format(".{}.tmp-XXXXXX", target.filename().string())).string();
  if (::mkdtemp(name.data()) == nullptr) {
    return storage::os_error(storage::Access::write, target, errno);
  }
  return Workshop(new fs::path(name));
}

/// First line of gnuplot's error output, without the place in the script.
std::string complaint_of(const ChildEnd& end) {
  if (end.timed_out) {
    return fmt::format("not ready after {} minutes", kDrawingLimit.count());
  }
  const std::size_t begin = std::min(end.errors.find_first_not_of(" \r\n\t"), end.errors.size());
  const std::string line =
      end.errors.substr(begin, end.errors.find_first_of("\r\n", begin) - begin);
  return fmt::format("{} {}{}{}", end.signal != 0 ? "signal" : "exit code",
                     end.signal != 0 ? end.signal : end.exit_code, line.empty() ? "" : ": ", line);
}

Status draw(const std::vector<Curve>& curves, const PlotOptions& options, const fs::path& target) {
  const auto gnuplot = find_program("gnuplot");
  if (!gnuplot) {
    return user_error(
        fmt::format("{}: drawing needs the program \"gnuplot\"; install the Debian package "
                    "gnuplot-nox, or let --out end in .csv",
                    options.out));
  }
  const auto workshop = TRAIN_TRY(workshop_beside(target));
  const fs::path script = *workshop / "script";
  const fs::path picture = *workshop / "picture";
  TRAIN_RETURN_IF_ERROR(
      storage::write_file_atomically(script, script_of(curves, options, picture)));
  const auto end =
      TRAIN_TRY(run_child({*gnuplot, "-d", script.string()}, {.timeout = kDrawingLimit}));
  std::error_code unknown;
  const auto bytes = fs::file_size(picture, unknown);
  if (end.exit_code != 0 || end.timed_out || unknown || bytes == 0) {
    return failure(fmt::format("{}: not drawn: gnuplot: {}", options.out, complaint_of(end)));
  }
  TRAIN_RETURN_IF_ERROR(storage::fsync_file(picture));
  return storage::rename_durably(picture, target);
}

}  // namespace

Status write_plot(const PlotOptions& options) {
  std::error_code unknown;
  const fs::path target = fs::absolute(options.out, unknown);
  if (unknown || fs::is_directory(target, unknown)) {
    return user_error(fmt::format("--out {}: is a directory; name a file", options.out));
  }
  const auto curves = TRAIN_TRY(read_curves(options));
  if (target.extension() == ".csv") {
    return storage::write_file_atomically(target, csv_of(curves, options));
  }
  return draw(curves, options, target);
}

}  // namespace train::cli
