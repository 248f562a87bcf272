#include "cli/board/board_news.hpp"

#include <fmt/format.h>

#include <iterator>

namespace train::cli {

std::string BoardNews::of(const WatchedRun& run) {
  fmt::memory_buffer text;
  const auto out = std::back_inserter(text);
  for (const WatchedRun::Event& event : run.events()) {
    if (event.number > event_) {
      event_ = event.number;
      fmt::format_to(out, "event: log\ndata: {}\n\n", event.json);
    }
  }
  if (run.status_version() != status_) {
    status_ = run.status_version();
    fmt::format_to(out, "event: status\ndata: {}\n\n", run.status_json());
  }
  if (run.metrics() != nullptr && run.metrics()->version() != metrics_) {
    metrics_ = run.metrics()->version();
    fmt::format_to(out, "event: metrics\ndata: {{\"last_step\":{}}}\n\n",
                   run.metrics()->history().last_step());
  }
  return fmt::to_string(text);
}

std::string BoardNews::gone() { return "event: gone\ndata: {}\n\n"; }

}  // namespace train::cli
