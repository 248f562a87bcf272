#include "configs/fields/optimizer_table.hpp"

#include <fmt/format.h>

#include <array>
#include <string>

#include "base/check.hpp"

namespace train::configs {
namespace {

#define TRAIN_OPTIMIZER_ENTRY(identifier, name, keys) {name, keys},
constexpr auto kOptimizers = std::to_array<NamedOptions>({TRAIN_OPTIMIZERS(TRAIN_OPTIMIZER_ENTRY)});
#undef TRAIN_OPTIMIZER_ENTRY

}  // namespace

const NamedSection& optimizer_options() {
  static constexpr NamedSection section{
      "optimizer", kOptimizers,
      [](const RunConfig& config) -> const std::string& { return config.optimizer.name; }};
  return section;
}

std::span<const NamedOptions> all_optimizers() { return kOptimizers; }

const NamedOptions* find_optimizer(std::string_view name) { return optimizer_options().find(name); }

bool has_key(std::string_view optimizer, std::string_view key) {
  return optimizer_options().has_key(optimizer, key);
}

OptimizerSection default_optimizer(std::string_view name) {
  const NamedOptions* entry = find_optimizer(name);
  TRAIN_CHECK(entry != nullptr, "optimizer \"{}\"", name);
  RunConfig config;
  config.optimizer.name = name;
  optimizer_options().set_defaults(*entry, config, /*places=*/nullptr);
  return config.optimizer;
}

}  // namespace train::configs
