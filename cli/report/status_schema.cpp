#include "cli/report/status_schema.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

namespace train::cli {
namespace {

using Json = nlohmann::ordered_json;

/// Sums and differences of a few such values fit in 64 bits.
bool is_moderate(const Json& value) {
  constexpr double kMost = 1e18;
  return value.is_number() && std::abs(value.get<double>()) <= kMost;
}

struct Kind {
  std::string_view fault;  ///< Said of a value that is not of this kind.
  bool (*is_of)(const Json& value);
  std::vector<std::string_view> names;
};

/// A name has the same type everywhere in a status.
const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"no text",
       [](const Json& value) { return value.is_string(); },
       {"run", "host", "phase", "text", "who", "what", "name", "doing", "command", "directory",
        "failure"}},
      {"no number up to 1e18",
       is_moderate,
       {"version",       "pid",         "written_unix_s", "started_unix_s",
        "generation",    "step",        "steps",          "tokens_per_second",
        "rate_window_s", "remaining_s", "step_unix_s",    "unix_s",
        "exit_code",     "for_s",       "heard_s",        "command_for_s",
        "in_use",        "length",      "limit",          "rank",
        "ranks_count"}},
      {"no count", [](const Json& value) { return value.is_number_unsigned(); }, {"process_start"}},
      {"no truth value",
       [](const Json& value) { return value.is_boolean(); },
       {"heard", "waits_for_another"}},
      {"no list of objects",
       [](const Json& value) {
         return value.is_array() && std::ranges::all_of(value, &Json::is_object);
       },
       {"waits", "streams", "credits", "collectives", "mailboxes", "ranks"}},
      {"no object",
       [](const Json& value) { return value.is_object(); },
       {"saved", "stall", "outcome", "memory_plan"}}};
  return all;
}

}  // namespace

// Recursion depth equals that of the text, which was limited before parsing (untrusted_json.hpp).
std::string status_fault(const Json& status) {
  for (const auto& [name, value] : status.items()) {
    if (!value.is_primitive()) {
      if (std::string inner = status_fault(value); !inner.empty()) {
        return inner;
      }
    }
    if (!status.is_object()) {
      continue;
    }
    for (const Kind& kind : kinds()) {
      if (std::ranges::find(kind.names, name) != kind.names.end() && !kind.is_of(value)) {
        return fmt::format("{} is {}", name, kind.fault);
      }
    }
  }
  return {};
}

}  // namespace train::cli
