#include "cli/board/board_news.hpp"

#include <fmt/format.h>

#include <iterator>

namespace train::cli {

std::string BoardNews::of(const WatchedRun& run) {
  fmt::memory_buffer text;
  const auto out = std::back_inserter(text);
  const bool anew = run.first_event() != first_event_;
  first_event_ = run.first_event();
  if (anew && event_ > 0) {
    fmt::format_to(out, "event: restart\ndata: {{}}\n\n");
  }
  // Numbers are consecutive, so events already sent can be skipped.
  const std::deque<WatchedRun::Event>& events = run.events();
  const std::uint64_t first = events.empty() ? 0 : events.front().number;
  for (std::size_t at = event_ < first ? 0 : event_ - first + 1; at < events.size(); ++at) {
    event_ = events[at].number;
    fmt::format_to(out, "event: log\ndata: {}\n\n", events[at].json);
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
