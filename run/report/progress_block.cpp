#include "run/report/progress_block.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text/units.hpp"

namespace train::run {
namespace {

constexpr std::size_t kCurve = 40;
constexpr std::size_t kLeastBar = 10;

/// Truncates a line of ASCII to `columns`.
std::string fit(std::string line, std::size_t columns) {
  if (line.size() > columns) {
    line.resize(columns);
  }
  return line;
}

std::string bar(double share, std::size_t letters) {
  const auto full =
      static_cast<std::size_t>(std::clamp(share, 0.0, 1.0) * static_cast<double>(letters));
  std::string text;
  for (std::size_t letter = 0; letter < letters; ++letter) {
    text += letter < full ? "█" : "░";
  }
  return text;
}

}  // namespace

std::string sparkline(const std::deque<double>& values, std::size_t letters) {
  static constexpr std::array<const char*, 8> kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const std::size_t begin = values.size() > letters ? values.size() - letters : 0;
  double least = INFINITY;
  double most = -INFINITY;
  for (std::size_t at = begin; at < values.size(); ++at) {
    if (std::isfinite(values[at])) {
      least = std::min(least, values[at]);
      most = std::max(most, values[at]);
    }
  }
  std::string text;
  for (std::size_t at = begin; at < values.size(); ++at) {
    const double share = most > least ? (values[at] - least) / (most - least) : 0.0;
    text += std::isfinite(values[at]) ? kBlocks.at(static_cast<std::size_t>(std::lround(share * 7)))
                                      : "!";
  }
  return text;
}

std::vector<std::string> progress_block(const ProgressView& view, std::size_t columns) {
  const double share =
      view.steps > 0 ? static_cast<double>(view.step) / static_cast<double>(view.steps) : 0.0;
  const std::string counts = fmt::format(" {}/{}  {:.0f} %  ETA {}", view.step, view.steps,
                                         100.0 * share, format_duration(view.remaining_s));
  const std::size_t room =
      columns > counts.size() + kLeastBar ? columns - counts.size() : kLeastBar;
  std::vector<std::string> lines = {bar(share, std::min<std::size_t>(room, 60)) + counts};
  const double loss = view.losses.empty() ? NAN : view.losses.back();
  const std::string words =
      fmt::format("loss {:.4f}  grad norm {:.3f}  lr {:.2e}  ", loss, view.grad_norm, view.lr);
  lines.push_back(
      fit(words, columns) +
      sparkline(view.losses, std::min(kCurve, columns - std::min(columns, words.size()))));
  const std::string mfu =
      view.mfu > 0.0 ? fmt::format("  MFU {:.0f} %", 100.0 * view.mfu) : std::string();
  lines.push_back(fit(fmt::format("{} tokens/s{}  {} {}  {}", format_count(view.tokens_per_second),
                                  mfu, view.ranks, view.ranks == 1 ? "rank" : "ranks",
                                  view.saved.empty() ? "no checkpoint yet" : view.saved),
                      columns));
  if (!view.stalled.empty()) {
    lines.push_back(fit("stands still: " + view.stalled, columns));
  }
  return lines;
}

}  // namespace train::run
