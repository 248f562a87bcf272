#include <algorithm>

#include "configs/fields/field_table.hpp"
#include "configs/rules/rules.hpp"
#include "configs/words/nearest.hpp"

namespace train::configs {
namespace {

/// Checks "pattern = strategy" texts, and the groups of "hybrid".
void check_strategies(const RunConfig& config, Rules& rules) {
  const ParallelSection& parallel = config.parallel;
  const std::string key = "parallel.strategy_by_unit";
  const std::vector<std::string> known = split_choices(*find_field("parallel.strategy"));
  bool hybrid = parallel.strategy == "hybrid";
  for (const std::string& text : parallel.strategy_by_unit) {
    const std::optional<UnitStrategy> parsed = parse_unit_strategy(text);
    const std::string strategy = parsed ? parsed->strategy : std::string();
    rules.refuse_if(!parsed, key,
                    "holds \"{}\"; write \"pattern = strategy\", for example \"block * = full\"",
                    text);
    rules.refuse_if(std::find(known.begin(), known.end(), strategy) == known.end(), key,
                    "names the strategy \"{}\"; there are \"{}\"{}", strategy,
                    fmt::join(known, "\", \""), did_you_mean(strategy, known, "parallel.strategy"));
    hybrid = hybrid || strategy == "hybrid";
  }
  rules.refuse_if(!hybrid && parallel.group != 0, "parallel.group",
                  "is {}, but only the strategy \"hybrid\" has groups; set it to 0",
                  parallel.group);
  rules.refuse_if(hybrid && (parallel.group == 0 || parallel.ranks % parallel.group != 0),
                  "parallel.group",
                  "must be a divisor of parallel.ranks ({}) with the strategy \"hybrid\", found {}",
                  parallel.ranks, parallel.group);
}

}  // namespace

void check_parallel(const RunConfig& config, Rules& rules) {
  const ParallelSection& parallel = config.parallel;
  rules.refuse_if(
      parallel.ranks > config.batch.lanes, "parallel.ranks",
      "is {}, but a step has {} lanes and each rank needs one; raise batch.lanes or use "
      "fewer ranks",
      parallel.ranks, config.batch.lanes);
  check_strategies(config, rules);
  const std::vector<std::string>& wrapping = parallel.wrapping;
  rules.refuse_if(wrapping.empty(), "parallel.wrapping",
                  "is empty; give \"per_block\", \"by_size\" or patterns of unit names");
  const bool rule = std::any_of(wrapping.begin(), wrapping.end(), [](const std::string& text) {
    return text == "per_block" || text == "by_size";
  });
  rules.refuse_if(rule && wrapping.size() > 1, "parallel.wrapping",
                  "is \"per_block\" or \"by_size\" alone, or patterns of unit names");
  rules.refuse_if(parallel.ranks % parallel.nodes != 0, "parallel.nodes",
                  "must be a divisor of parallel.ranks ({}), found {}; set parallel.ranks to the "
                  "ranks of all nodes together",
                  parallel.ranks, parallel.nodes);
  rules.refuse_if(parallel.nodes > 1 && parallel.transport == "inproc", "parallel.nodes",
                  "is {}, but with parallel.transport \"inproc\" all ranks are in one process; use "
                  "\"tcp\" or \"nccl\"",
                  parallel.nodes);
  rules.refuse_if(parallel.nodes > 1 && parallel.interface.empty(), "parallel.interface",
                  "is empty, but parallel.nodes is {}: name the private network that joins the "
                  "nodes (\"lo\" to try it on one machine)",
                  parallel.nodes);
}

std::optional<UnitStrategy> parse_unit_strategy(std::string_view rule) {
  const auto trimmed = [](std::string_view text) {
    const std::size_t first = text.find_first_not_of(" \t");
    const std::size_t last = text.find_last_not_of(" \t");
    return first == std::string_view::npos ? std::string()
                                           : std::string(text.substr(first, last - first + 1));
  };
  const std::size_t equals = rule.rfind('=');
  if (equals == std::string_view::npos) {
    return std::nullopt;
  }
  UnitStrategy parsed{trimmed(rule.substr(0, equals)), trimmed(rule.substr(equals + 1))};
  const bool whole = !parsed.pattern.empty() && !parsed.strategy.empty();
  return whole ? std::optional(std::move(parsed)) : std::nullopt;
}

}  // namespace train::configs
