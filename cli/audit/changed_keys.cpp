#include "cli/audit/changed_keys.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "checkpoint/index/index_content.hpp"
#include "run/directory/config_changes.hpp"

namespace train::cli {
namespace {

constexpr std::ptrdiff_t kShown = 12;

}  // namespace

Result<std::vector<std::string>> changed_keys(storage::KvStore& store, StepSpan range) {
  const auto events = TRAIN_TRY(checkpoint::read_events(store));
  std::vector<std::string> changes;
  for (const checkpoint::EventRecord& event : events) {
    const auto step =
        event.kind == run::kConfigChanged ? run::change_step(event.text) : std::nullopt;
    if (step && *step >= range.first && *step < range.end) {
      changes.push_back(event.text);
    }
  }
  return changes;
}

std::string changed_keys_text(const std::vector<std::string>& changes) {
  if (changes.empty()) {
    return {};
  }
  const std::ptrdiff_t older = std::max<std::ptrdiff_t>(0, std::ssize(changes) - kShown);
  return fmt::format("changed between starts: {}{}",
                     older > 0 ? fmt::format("{} older ones (events.jsonl); ", older) : "",
                     fmt::join(changes.begin() + older, changes.end(), "; "));
}

}  // namespace train::cli
