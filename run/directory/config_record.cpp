#include "run/directory/config_record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "checkpoint/index/index_content.hpp"
#include "run/directory/config_changes.hpp"

namespace train::run {
namespace {

// An event is one line, and to_toml() writes tabs as escapes.
std::string with_replaced(std::string text, char from, char to) {
  std::replace(text.begin(), text.end(), from, to);
  return text;
}

}  // namespace

std::string config_record_text(const ConfigRecord& record) {
  return fmt::format("step={} {}", record.step, with_replaced(record.text, '\n', '\t'));
}

Result<std::vector<ConfigRecord>> read_config_records(storage::KvStore& store) {
  const auto events = TRAIN_TRY(checkpoint::read_events(store));
  std::vector<ConfigRecord> records;
  for (const checkpoint::EventRecord& event : events) {
    if (!records.empty() && (event.kind == "started" || event.kind == "resumed")) {
      records.back().begun = true;
    }
    const auto step = event.kind == kConfigRecorded ? change_step(event.text) : std::nullopt;
    if (step) {
      records.push_back(
          {.step = *step,
           .text = with_replaced(event.text.substr(event.text.find(' ') + 1), '\t', '\n')});
    }
  }
  return records;
}

const ConfigRecord* record_of(const std::vector<ConfigRecord>& records, std::int64_t step) {
  const auto found = std::find_if(records.rbegin(), records.rend(),
                                  [step](const ConfigRecord& one) { return one.step < step; });
  return found == records.rend() ? nullptr : &*found;
}

}  // namespace train::run
