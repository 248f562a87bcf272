#include "configs/fields/named_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "configs/fields/optimizer_table.hpp"

namespace train::configs {
namespace {

#define TRAIN_OBJECTIVE_ENTRY(identifier, name, form, keys) {name, keys},
constexpr auto kObjectives = std::to_array<NamedOptions>({TRAIN_OBJECTIVES(TRAIN_OBJECTIVE_ENTRY)});
#undef TRAIN_OBJECTIVE_ENTRY

bool in(const NamedOptions& entry, std::string_view key) {
  return std::any_of(entry.keys.begin(), entry.keys.end(),
                     [&](const OptionKey& known) { return known.name == key; });
}

void set_default(const std::string& key, const OptionKey& option, RunConfig& config) {
  const Field* field = find_field(key);
  TRAIN_CHECK(field != nullptr, "no key {}", key);
  RunConfig defaults;
  if (option.default_value) {
    *std::get<double*>(field->locate(defaults)) = *option.default_value;
  }
  std::visit([&](auto* target) { *target = *std::get<decltype(target)>(field->locate(defaults)); },
             field->locate(config));
}

/// Error for a key of the section that does not belong to the chosen name.
Error foreign_key(const NamedSection& section, const Field& field, const RunConfig& config,
                  const KeyPositions& places) {
  std::vector<std::string_view> owners;
  for (const NamedOptions& entry : section.entries) {
    if (in(entry, field.name)) {
      owners.push_back(entry.name);
    }
  }
  return user_error(fmt::format(
      "{}: {} is not an option of {}.name = \"{}\"; remove it, or choose one that has it: {}",
      places.of(field.key()), field.key(), section.section, section.chosen(config),
      fmt::join(owners, ", ")));
}

}  // namespace

const NamedOptions* NamedSection::find(std::string_view name) const {
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const NamedOptions& entry) { return entry.name == name; });
  return found == entries.end() ? nullptr : &*found;
}

bool NamedSection::has_key(std::string_view name, std::string_view key) const {
  const NamedOptions* entry = find(name);
  return entry == nullptr || key == "name" || in(*entry, key);
}

bool NamedSection::applies(const Field& field, const RunConfig& config) const {
  return field.section != section || has_key(chosen(config), field.name);
}

void NamedSection::set_defaults(const NamedOptions& entry, RunConfig& config,
                                const KeyPositions* places) const {
  for (const OptionKey& option : entry.keys) {
    const std::string key = fmt::format("{}.{}", section, option.name);
    if (places == nullptr || !places->by_key.contains(key)) {
      set_default(key, option, config);
    }
  }
}

void NamedSection::apply(RunConfig& config, const KeyPositions& places, Mistakes& mistakes) const {
  for (const Field& field : all_fields()) {
    if (!applies(field, config) && places.by_key.contains(field.key())) {
      mistakes.add(foreign_key(*this, field, config, places));
    }
  }
  set_defaults(*find(chosen(config)), config, &places);
}

ObjectiveForm objective_form(std::string_view objective) {
#define TRAIN_OBJECTIVE_FORM(identifier, name, form, keys) {name, ObjectiveForm::form},
  static constexpr auto kForms = std::to_array<std::pair<std::string_view, ObjectiveForm>>(
      {TRAIN_OBJECTIVES(TRAIN_OBJECTIVE_FORM)});
#undef TRAIN_OBJECTIVE_FORM
  const auto* const found = std::find_if(
      kForms.begin(), kForms.end(), [&](const auto& entry) { return entry.first == objective; });
  TRAIN_CHECK(found != kForms.end(), "objective \"{}\"", objective);
  return found->second;
}

const NamedSection& objective_options() {
  static constexpr NamedSection section{
      "objective", kObjectives,
      [](const RunConfig& config) -> const std::string& { return config.objective.name; }};
  return section;
}

bool applies(const Field& field, const RunConfig& config) {
  return optimizer_options().applies(field, config) && objective_options().applies(field, config);
}

}  // namespace train::configs
