#include "engine/model/spec.hpp"

#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <unordered_set>

#include "engine/model/blocks/block.hpp"
#include "engine/model/unit_parameters.hpp"

namespace train::engine {
bool matches_shell(const std::string& pattern, const std::string& name) {
  return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

std::int64_t ModelSpec::widest_head() const {
  std::int64_t widest = 0;
  for (const LayerSpec& layer : layers) {
    for (const BranchSpec& branch : layer.branches) {
      widest = std::max(widest, branch.block->widest_head());
    }
  }
  return widest;
}

std::int64_t ModelSpec::branch_count() const {
  std::int64_t count = 0;
  for (const LayerSpec& layer : layers) {
    count += std::ssize(layer.branches);
  }
  return count;
}

std::vector<std::string> ModelSpec::block_sums() const {
  std::vector<std::string> names;
  for (const LayerSpec& layer : layers) {
    for (const BranchSpec& branch : layer.branches) {
      std::ranges::move(branch.block->sums(), std::back_inserter(names));
    }
  }
  return names;
}

bool ModelSpec::reads_step_sums() const {
  return std::ranges::any_of(layers, [](const LayerSpec& layer) {
    return std::ranges::any_of(
        layer.branches, [](const BranchSpec& branch) { return branch.block->reads_step_sums(); });
  });
}

float LoraSpec::scale() const {
  const auto inner = static_cast<double>(rank);
  return static_cast<float>(alpha / (rslora ? std::sqrt(inner) : inner));
}

bool LoraSpec::adapts(const std::string& module, bool by_name) const {
  if (rank == 0) {
    return false;
  }
  return std::any_of(targets.begin(), targets.end(), [&](const std::string& target) {
    return (target == "all-linear" && !by_name) || matches_shell(target, module) ||
           matches_shell("*." + target, module);
  });
}

bool ModelSpec::is_frozen(const std::string& unit, const Parameter& parameter) const {
  if (!parameter.frozen_with.empty()) {
    Parameter other{.name = parameter.frozen_with};
    return is_frozen(unit, other);
  }
  if (lora.rank > 0 && !parameter.adapter) {
    return true;
  }
  return std::any_of(frozen.begin(), frozen.end(), [&](const std::string& pattern) {
    return matches_shell(pattern, unit) || matches_shell(pattern, parameter.name);
  });
}

ParameterCount count_parameters(const ModelSpec& spec) {
  ParameterCount count;
  count.embedding = spec.vocab_size * spec.embedding_dim;
  count.head = spec.tie_embeddings ? 0 : count.embedding;
  double active = 0.0;
  for (const UnitParameters& unit : describe_units(spec)) {
    for (const Parameter& parameter : unit.parameters) {
      if (!parameter.tallied) {
        count.total += parameter.count();
        active += parameter.used_share * static_cast<double>(parameter.count());
      }
    }
  }
  count.active = std::llround(active);
  return count;
}

std::string block_sizes(const LayerSpec& layer) {
  std::vector<std::string> sizes;
  sizes.reserve(layer.branches.size());
  for (const BranchSpec& branch : layer.branches) {
    sizes.push_back(branch.block->sizes());
  }
  return fmt::format("{}", fmt::join(sizes, ", "));
}

std::vector<std::string> block_metrics(const ModelSpec& spec) {
  std::vector<std::string> names;
  std::unordered_set<std::string> known;  // A layer of experts has one for each.
  for (std::string& name : spec.block_sums()) {
    if (known.insert(name).second) {
      names.push_back(std::move(name));
    }
  }
  return names;
}

double flops_per_token(const ModelSpec& spec, std::int64_t seq_len) {
  // FLOPs per product: forward 2, input gradient 2, weight gradient 2 (where there is one).
  const std::size_t lowest = lowest_trained_unit(spec);
  const auto flops_of = [&](std::size_t unit, bool frozen) {
    return unit < lowest ? 2 : frozen ? 4 : 6;
  };
  const std::vector<UnitParameters> units = describe_units(spec);
  const bool tied_frozen =
      spec.tie_embeddings && spec.is_frozen("embedding", {.name = spec.embedding});
  double products = 0.0, scores = 0.0;
  // The rows before a sequence are its tokens' expense.
  const std::int64_t rows = seq_len + spec.prefix_tokens;
  const double share = static_cast<double>(rows) / static_cast<double>(seq_len);
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    bool head_frozen = tied_frozen;
    for (const Parameter& parameter : units[unit].parameters) {
      head_frozen = head_frozen || (parameter.is_head && parameter.frozen);
      if (parameter.linear) {
        products += share * parameter.used_share *
                    static_cast<double>(flops_of(unit, parameter.frozen) * parameter.count());
      }
    }
    if (unit + 1 == units.size()) {
      products +=
          static_cast<double>(flops_of(unit, head_frozen) * spec.vocab_size * spec.embedding_dim);
    } else if (unit > 0) {
      for (const BranchSpec& branch : spec.layers[unit - 1].branches) {
        scores += share * (unit < lowest ? 1.0 : 3.0) * branch.block->score_flops(rows);
      }
    }
  }
  return products + scores;
}

}  // namespace train::engine
