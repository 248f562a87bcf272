#include "configs/key_changes.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <sstream>
#include <utility>

#include "base/check.hpp"
#include "base/text/one_line.hpp"
#include "configs/fields/source_table.hpp"
#include "configs/fields/toml_text.hpp"
#include "configs/load_config.hpp"
#include "configs/scaling/scaling.hpp"

namespace train::configs {
namespace {

std::string value_text(const toml::node& node);

std::string array_text(const toml::array& array) {
  std::vector<std::string> parts;
  for (const toml::node& element : array) {
    parts.push_back(value_text(element));
  }
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

std::string table_text(const toml::table& table) {
  std::vector<std::string> parts;
  for (const auto& [key, node] : table) {
    parts.push_back(fmt::format("{} = {}", key.str(), value_text(node)));
  }
  return fmt::format("{{{}}}", fmt::join(parts, ", "));
}

// Text of a value; equal texts mean equal values.
std::string value_text(const toml::node& node) {
  if (const auto* text = node.as_string()) {
    return toml_quoted(text->get());
  }
  if (const auto* real = node.as_floating_point(); real != nullptr && std::isfinite(real->get())) {
    return float_text(real->get());
  }
  if (const auto* array = node.as_array()) {
    return array_text(*array);
  }
  if (const auto* table = node.as_table()) {
    return table_text(*table);
  }
  std::ostringstream out;  // Integers, booleans, dates, times.
  node.visit([&out](const auto& value) { out << value; });
  return out.str();
}

bool holds_tables(const toml::array& array) {
  return !array.empty() && std::all_of(array.begin(), array.end(),
                                       [](const toml::node& each) { return each.is_table(); });
}

/// Walks two files side by side; either may lack entries of the other.
class Walk {
 public:
  void tables(const std::string& path, const toml::table* before, const toml::table* now) {
    std::set<std::string> names;
    for (const toml::table* side : {before, now}) {
      if (side != nullptr) {
        for (const auto& [name, node] : *side) {
          names.emplace(name.str());
        }
      }
    }
    for (const std::string& name : names) {
      nodes(path.empty() ? name : fmt::format("{}.{}", path, name),
            before == nullptr ? nullptr : before->get(name),
            now == nullptr ? nullptr : now->get(name));
    }
  }

  std::vector<KeyChange> take() {
    const auto place = [](const KeyChange& change) {
      const Field* const first = all_fields().data();
      return change.field == nullptr ? std::ssize(all_fields()) : change.field - first;
    };
    std::stable_sort(changes_.begin(), changes_.end(),
                     [&](const auto& a, const auto& b) { return place(a) < place(b); });
    return std::move(changes_);
  }

 private:
  void nodes(const std::string& path, const toml::node* before, const toml::node* now) {
    const toml::table* const table_before = before == nullptr ? nullptr : before->as_table();
    const toml::table* const table_now = now == nullptr ? nullptr : now->as_table();
    // A section missing on one side is walked too: its keys have rules of their own.
    const bool section = path.find('.') == std::string::npos;
    if ((table_before != nullptr && table_now != nullptr) ||
        (section && (before == nullptr || table_before != nullptr) &&
         (now == nullptr || table_now != nullptr))) {
      tables(path, table_before, table_now);
      return;
    }
    const toml::array* const array_before = before == nullptr ? nullptr : before->as_array();
    const toml::array* const array_now = now == nullptr ? nullptr : now->as_array();
    if (array_before != nullptr && array_now != nullptr &&
        array_before->size() == array_now->size() && holds_tables(*array_before) &&
        holds_tables(*array_now)) {
      for (std::size_t i = 0; i < array_now->size(); ++i) {
        tables(fmt::format("{}[{}]", path, i), array_before->get(i)->as_table(),
               array_now->get(i)->as_table());
      }
      return;
    }
    values(path, before == nullptr ? std::string() : value_text(*before),
           now == nullptr ? std::string() : value_text(*now));
  }

  void values(const std::string& path, std::string before, std::string now) {
    if (before == now) {
      return;
    }
    // "section.name" of "section.name[2].part"
    const std::size_t name = path.find('.');
    const std::size_t end = name == std::string::npos ? name : path.find_first_of(".[", name + 1);
    const Field* const whole = find_field(path);  // "train.stop_after.patience"
    changes_.push_back({.path = path,
                        .before = std::move(before),
                        .now = std::move(now),
                        .field = whole != nullptr ? whole : find_field(path.substr(0, end))});
  }

  std::vector<KeyChange> changes_;
};

/// True if the key's value in `now` comes from the length of the run, by the means that gave the
/// value in `before` from the length there.
bool follows_length(std::string_view key, const RunConfig& before, const RunConfig& now) {
  const std::int64_t steps_before = before.run.steps;
  const std::int64_t steps_now = now.run.steps;
  if (steps_before == steps_now) {
    return false;
  }
  if (key == "schedule.warmup_steps") {
    const std::int64_t warmup_before = before.schedule.warmup_steps;
    const std::int64_t warmup_now = now.schedule.warmup_steps;
    return cut_warmup(warmup_now, steps_before) == warmup_before ||
           cut_warmup(warmup_before, steps_now) == warmup_now ||
           (warmup_before == steps_before / 10 && warmup_now == steps_now / 10);
  }
  const auto origin = now.origins.find(key);
  if (origin == now.origins.end() || origin->second != "rule") {
    return false;
  }
  const OptimizerSection& optimizer = before.optimizer;
  return key == "optimizer.wd_ts"
             ? optimizer.wd_ts == static_cast<double>(scaled_decay_time(steps_before))
             : key == "optimizer.weight_decay" && before.scaling.omega == now.scaling.omega &&
                   optimizer.weight_decay == ruled_weight_decay(before);
}

/// Reason that the key never changes within a run; empty: it may.
std::string_view fixed_because(BetweenStarts rule) {
  switch (rule) {
    case BetweenStarts::shapes:
      return "it determines shapes of the weights or of the optimizer's state";
    case BetweenStarts::data:
      return "it determines the tokens that each step reads";
    case BetweenStarts::state:
      return "it determines the meaning of what the checkpoints hold";
    default:
      return {};
  }
}

}  // namespace

BetweenStarts KeyChange::rule() const {
  if (const SourceMember* member = parse_source_path(path).member) {
    return member->between_starts;
  }
  return follows_length     ? BetweenStarts::warns
         : field == nullptr ? BetweenStarts::state
                            : field->between_starts;
}

std::string_view KeyChange::before_text() const {
  return before.empty() ? "not set" : std::string_view(before);
}

std::string_view KeyChange::now_text() const {
  return now.empty() ? "not set" : std::string_view(now);
}

Result<std::vector<KeyChange>> key_changes(std::string_view before, std::string_view now) {
  try {
    const toml::table table_before = toml::parse(before);
    const toml::table table_now = toml::parse(now);
    Walk walk;
    walk.tables("", &table_before, &table_now);
    return walk.take();
  } catch (const toml::parse_error& error) {
    return user_error(fmt::format("not valid TOML: {}", one_line(error.description())));
  }
}

std::vector<KeyChange> key_changes(const RunConfig& before, const RunConfig& now) {
  auto changes = key_changes(to_toml(before), to_toml(now));
  TRAIN_CHECK(changes.ok(), "{}", changes.error().message);
  for (KeyChange& change : *changes) {
    change.follows_length = follows_length(change.path, before, now);
  }
  return std::move(changes).value();
}

Status check_accepted(std::span<const std::string> keys) {
  for (const std::string& key : keys) {
    const std::string place = fmt::format("--accept-config {}", one_line(key));
    const std::string name = key.substr(0, key.find('='));
    if (name != key && find_field(name) != nullptr) {
      return user_error(fmt::format("{}: takes a key alone; give --accept-config {} --set {}",
                                    place, name, one_line(key)));
    }
    const Field* const field = find_field(key);
    if (field == nullptr) {
      return unknown_key(place, key);
    }
    if (const std::string_view reason = fixed_because(field->between_starts); !reason.empty()) {
      return user_error(fmt::format(
          "{}: never changes within a run, as {}; choose another run.name, or start anew with "
          "--fresh",
          place, reason));
    }
    if (field->between_starts != BetweenStarts::on_request) {
      return user_error(fmt::format("{}: may change without being accepted; leave it out", place));
    }
  }
  return {};
}

}  // namespace train::configs
