#include "configs/optimizer_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <type_traits>
#include <vector>

#include "base/check.hpp"

namespace train::configs {
namespace {

#define TRAIN_OPTIMIZER_ENTRY(identifier, name, keys) {name, keys},
constexpr auto kOptimizers =
    std::to_array<OptimizerEntry>({TRAIN_OPTIMIZERS(TRAIN_OPTIMIZER_ENTRY)});
#undef TRAIN_OPTIMIZER_ENTRY

bool in(const OptimizerEntry& entry, std::string_view key) {
  return std::any_of(entry.keys.begin(), entry.keys.end(),
                     [&](const OptimizerKey& known) { return known.name == key; });
}

void set_default(const OptimizerKey& key, RunConfig& config) {
  const Field* field = find_field(fmt::format("optimizer.{}", key.name));
  TRAIN_CHECK(field != nullptr, "no key {}", key.name);
  std::visit(
      [](auto* target, auto value) {
        using Target = std::remove_pointer_t<decltype(target)>;
        using Value = decltype(value);
        if constexpr (std::is_same_v<Target, Value> || (std::is_same_v<Target, std::string> &&
                                                        std::is_same_v<Value, std::string_view>)) {
          *target = value;
        } else {
          TRAIN_CHECK(false, "a default of another type");
        }
      },
      field->locate(config), key.value);
}

/// Of an optimizer's options: `key` is one, but not of this optimizer.
Error foreign_key(const Field& field, const RunConfig& config, const KeyPositions& places) {
  std::vector<std::string_view> owners;
  for (const OptimizerEntry& entry : kOptimizers) {
    if (in(entry, field.name)) {
      owners.push_back(entry.name);
    }
  }
  return user_error(fmt::format(
      "{}: {} is no option of optimizer.name = \"{}\"; remove it, or choose one that has it: {}",
      places.of(field.key()), field.key(), config.optimizer.name, fmt::join(owners, ", ")));
}

}  // namespace

std::span<const OptimizerEntry> all_optimizers() { return kOptimizers; }

const OptimizerEntry* find_optimizer(std::string_view name) {
  const auto* const found =
      std::find_if(kOptimizers.begin(), kOptimizers.end(),
                   [&](const OptimizerEntry& entry) { return entry.name == name; });
  return found == kOptimizers.end() ? nullptr : found;
}

bool has_key(std::string_view optimizer, std::string_view key) {
  const OptimizerEntry* entry = find_optimizer(optimizer);
  return entry == nullptr || key == "name" || in(*entry, key);
}

bool applies(const Field& field, const RunConfig& config) {
  return field.section != "optimizer" || has_key(config.optimizer.name, field.name);
}

OptimizerSection default_optimizer(std::string_view name) {
  const OptimizerEntry* entry = find_optimizer(name);
  TRAIN_CHECK(entry != nullptr, "optimizer \"{}\"", name);
  RunConfig config;
  config.optimizer.name = name;
  for (const OptimizerKey& key : entry->keys) {
    set_default(key, config);
  }
  return config.optimizer;
}

Status apply_optimizer(RunConfig& config, const KeyPositions& places) {
  TRAIN_RETURN_IF_ERROR(check_value(*find_field("optimizer.name"), config, places));
  for (const Field& field : all_fields()) {
    if (!applies(field, config) && places.by_key.contains(field.key())) {
      return foreign_key(field, config, places);
    }
  }
  for (const OptimizerKey& key : find_optimizer(config.optimizer.name)->keys) {
    if (!places.by_key.contains(fmt::format("optimizer.{}", key.name))) {
      set_default(key, config);
    }
  }
  return {};
}

Status check_optimizer(const RunConfig& config, const KeyPositions& places) {
  const OptimizerSection& optimizer = config.optimizer;
  const auto steps = static_cast<double>(config.run.steps);
  if (has_key(optimizer.name, "beta3") && optimizer.beta3 == 0.0 && steps <= optimizer.delta) {
    return user_error(
        fmt::format("{}: optimizer.beta3 is 0, which stands for 1 - optimizer.delta ({}) / "
                    "run.steps ({}) and must be above 0; set optimizer.beta3",
                    places.of("optimizer.beta3"), optimizer.delta, config.run.steps));
  }
  if (optimizer.beta3_warmup > 0 && has_key(optimizer.name, "beta3_warmup") &&
      optimizer.beta1 == 0.0) {
    return user_error(fmt::format(
        "{}: optimizer.beta3_warmup begins at optimizer.beta1, which must be above 0 then",
        places.of("optimizer.beta3_warmup")));
  }
  return {};
}

}  // namespace train::configs
