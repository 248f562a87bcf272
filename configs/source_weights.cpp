#include "configs/source_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "base/check.hpp"
#include "base/text/paths.hpp"

namespace train::configs {
namespace {

std::vector<std::string> names_of(const std::vector<std::string>& directories) {
  std::vector<std::string> names;
  std::ranges::transform(directories, std::back_inserter(names), [](const std::string& directory) {
    return without_slash(std::filesystem::path(directory).lexically_normal()).filename().string();
  });
  const std::vector<std::string> all = names;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (all[i].empty() || std::ranges::count(all, all[i]) > 1) {
      names[i] = directories[i];
    }
  }
  return names;
}

/// Table of a stage that began before a step, by the number of its directory.
struct ReadTable {
  std::size_t directory = 0;
  double weight = 0.0;
  std::int64_t from_step = 0;

  bool operator==(const ReadTable&) const = default;
};

std::vector<ReadTable> tables_read(std::span<const DataSource> sources, std::int64_t steps) {
  std::vector<std::string> directories;
  std::vector<ReadTable> tables;
  for (const DataSource& source : sources) {
    const auto known = std::ranges::find(directories, source.dir);
    const auto number = static_cast<std::size_t>(known - directories.begin());
    if (known == directories.end()) {
      directories.push_back(source.dir);
    }
    if (source.from_step < steps) {
      tables.push_back({number, source.weight, source.from_step});
    }
  }
  return tables;
}

}  // namespace

std::optional<std::vector<std::uint64_t>> whole_weights(std::span<const double> weights) {
  for (double scale = 1.0; scale <= 1e6; scale *= 10.0) {
    std::vector<std::uint64_t> whole;
    for (const double weight : weights) {
      const double parts = std::round(weight * scale);
      // Equal to what the decimal text of these parts reads as.
      if (parts < 1.0 || parts > 9e15 || parts / scale != weight) {
        break;
      }
      whole.push_back(static_cast<std::uint64_t>(parts));
    }
    if (whole.size() < weights.size()) {
      continue;
    }
    std::uint64_t divisor = 0, sum = 0;
    for (const std::uint64_t each : whole) {
      divisor = std::gcd(divisor, each);
    }
    for (std::uint64_t& each : whole) {
      each /= divisor;
      sum += each;
    }
    return sum <= static_cast<std::uint64_t>(kMostWeightParts) ? std::optional(whole)
                                                               : std::nullopt;
  }
  return std::nullopt;
}

Status check_sources_read(std::span<const DataSource> before, std::span<const DataSource> now,
                          std::int64_t steps) {
  if (tables_read(before, steps) == tables_read(now, steps)) {
    return {};
  }
  return user_error(
      fmt::format("data.sources: of the stages that the {} finished steps read, directories, "
                  "weights or from_step differ now; put them back, and change the mixture by "
                  "sources with from_step = {} or later",
                  steps, steps));
}

SourcePlan plan_sources(std::span<const DataSource> sources) {
  SourcePlan plan;
  std::vector<std::vector<double>> weights;
  for (const DataSource& source : sources) {
    const auto known = std::ranges::find(plan.directories, source.dir);
    const auto index = static_cast<std::size_t>(known - plan.directories.begin());
    if (known == plan.directories.end()) {
      plan.directories.push_back(source.dir);
      plan.max_epochs.push_back(source.max_epochs);
    } else if (double& limit = plan.max_epochs[index]; source.max_epochs > 0.0) {
      limit = limit > 0.0 ? std::min(limit, source.max_epochs) : source.max_epochs;
    }
    auto stage = std::ranges::find(plan.stages, source.from_step, &SourceStage::from_step);
    if (stage == plan.stages.end()) {
      plan.stages.push_back({.from_step = source.from_step});
      weights.emplace_back();
      stage = std::prev(plan.stages.end());
    }
    stage->sources.push_back(index);
    weights[static_cast<std::size_t>(stage - plan.stages.begin())].push_back(source.weight);
  }
  for (std::size_t i = 0; i < plan.stages.size(); ++i) {
    const auto whole = whole_weights(weights[i]);
    TRAIN_CHECK(whole.has_value(), "weights of a stage that no whole parts are of");
    plan.stages[i].weights = *whole;
  }
  std::ranges::sort(plan.stages, {}, &SourceStage::from_step);
  plan.names = names_of(plan.directories);
  return plan;
}

}  // namespace train::configs
