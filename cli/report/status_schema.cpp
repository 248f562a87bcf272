#include "cli/report/status_schema.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace train::cli {
namespace {

using Json = nlohmann::ordered_json;

enum class Kind : std::uint8_t { text, number, ticks, flag, objects, object };

struct Member {
  std::string_view name;
  Kind kind;
};

/// A name has the same type everywhere in a status.
constexpr std::array kMembers = {
    Member{"run", Kind::text},
    Member{"host", Kind::text},
    Member{"phase", Kind::text},
    Member{"text", Kind::text},
    Member{"who", Kind::text},
    Member{"what", Kind::text},
    Member{"name", Kind::text},
    Member{"doing", Kind::text},
    Member{"command", Kind::text},
    Member{"directory", Kind::text},
    Member{"failure", Kind::text},
    Member{"version", Kind::number},
    Member{"pid", Kind::number},
    Member{"process_start", Kind::ticks},
    Member{"written_unix_s", Kind::number},
    Member{"started_unix_s", Kind::number},
    Member{"generation", Kind::number},
    Member{"step", Kind::number},
    Member{"steps", Kind::number},
    Member{"tokens_per_second", Kind::number},
    Member{"rate_window_s", Kind::number},
    Member{"remaining_s", Kind::number},
    Member{"step_unix_s", Kind::number},
    Member{"unix_s", Kind::number},
    Member{"exit_code", Kind::number},
    Member{"for_s", Kind::number},
    Member{"heard_s", Kind::number},
    Member{"command_for_s", Kind::number},
    Member{"in_use", Kind::number},
    Member{"length", Kind::number},
    Member{"limit", Kind::number},
    Member{"rank", Kind::number},
    Member{"ranks_count", Kind::number},
    Member{"heard", Kind::flag},
    Member{"waits_for_another", Kind::flag},
    Member{"waits", Kind::objects},
    Member{"streams", Kind::objects},
    Member{"credits", Kind::objects},
    Member{"collectives", Kind::objects},
    Member{"mailboxes", Kind::objects},
    Member{"ranks", Kind::objects},
    Member{"saved", Kind::object},
    Member{"stall", Kind::object},
    Member{"outcome", Kind::object},
    Member{"memory_plan", Kind::object},
};

/// Sums and differences of a few such values fit in 64 bits.
bool is_moderate(const Json& value) {
  constexpr double kMost = 1e18;
  return value.is_number() && std::abs(value.get<double>()) <= kMost;
}

bool is_of(Kind kind, const Json& value) {
  switch (kind) {
    case Kind::text:
      return value.is_string();
    case Kind::number:
      return is_moderate(value);
    case Kind::ticks:
      return value.is_number_unsigned();
    case Kind::flag:
      return value.is_boolean();
    case Kind::objects:
      return value.is_array() && std::all_of(value.begin(), value.end(),
                                             [](const Json& one) { return one.is_object(); });
    case Kind::object:
      return value.is_object();
  }
  return false;
}

std::string_view name_of(Kind kind) {
  static constexpr std::array<std::string_view, 6> kNames = {
      "no text",        "no number up to 1e18", "no count",
      "no truth value", "no list of objects",   "no object"};
  return kNames.at(static_cast<std::size_t>(kind));
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
    const auto* known = std::find_if(kMembers.begin(), kMembers.end(),
                                     [&](const Member& one) { return one.name == name; });
    if (known != kMembers.end() && !is_of(known->kind, value)) {
      return fmt::format("{} is {}", known->name, name_of(known->kind));
    }
  }
  return {};
}

}  // namespace train::cli
