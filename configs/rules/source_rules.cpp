#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "configs/fields/named_options.hpp"
#include "configs/fields/source_table.hpp"
#include "configs/rules/rules.hpp"
#include "configs/source_weights.hpp"

namespace train::configs {
namespace {

/// Checks that the weights of each stage are parts of a whole that counts of rows can follow.
void check_weights(const std::vector<DataSource>& sources, Rules& rules) {
  std::map<std::int64_t, std::vector<double>> stages;
  std::set<std::int64_t> refused;
  const auto refuse = [&](std::size_t index) {
    const DataSource& source = sources[index];
    if (refused.insert(source.from_step).second) {
      rules.refuse_if(true, source_key(index, "weight"),
                      "is {}: the weights of a stage must be whole parts of at most {} in all, "
                      "with six decimals at most; round them",
                      source.weight, kMostWeightParts);
    }
  };
  for (std::size_t i = 0; i < sources.size(); ++i) {
    stages[sources[i].from_step].push_back(sources[i].weight);
    if (!whole_weights(std::span(&sources[i].weight, 1))) {
      refuse(i);
    }
  }
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (!whole_weights(stages.at(sources[i].from_step))) {
      refuse(i);
    }
  }
}

}  // namespace

void check_sources(const RunConfig& config, Rules& rules) {
  const std::vector<DataSource>& sources = config.data.sources;
  if (sources.empty()) {
    return;
  }
  rules.refuse_if(config.data.order == "dstar", "data.order",
                  "is \"dstar\", an order of one directory; leave out data.sources or data.order");
  rules.refuse_if(objective_form(config.objective.name) == ObjectiveForm::two_passes,
                  "data.sources",
                  "is a mixture for one pass over the data, but objective.name = \"{}\" reads "
                  "data.dir and data.forget_dir, each whole; name those instead",
                  config.objective.name);
  rules.refuse_if(config.data.dir != sources.front().dir, "data.dir",
                  "is \"{}\", but the first of data.sources is \"{}\"; leave data.dir out",
                  config.data.dir, sources.front().dir);
  const auto first = std::ranges::min_element(sources, {}, &DataSource::from_step);
  const auto of_first = static_cast<std::size_t>(first - sources.begin());
  rules.refuse_if(first->from_step > 0, source_key(of_first, "from_step"),
                  "is {}, and no source comes before; give one of the sources from_step = 0",
                  first->from_step);
  std::set<std::pair<std::int64_t, std::string>> seen;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    rules.refuse_if(
        !seen.emplace(sources[i].from_step, sources[i].dir).second, source_key(i, "dir"),
        "is \"{}\", which another source of from_step = {} is, too; add up their weights",
        sources[i].dir, sources[i].from_step);
  }
  check_weights(sources, rules);
}

}  // namespace train::configs
