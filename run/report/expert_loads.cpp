#include "run/report/expert_loads.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "base/math/fixed_math.hpp"

namespace train::run {
namespace {

constexpr std::string_view kLoad = "expert_load/";
constexpr std::string_view kLeastBias = "expert_bias_min/", kMostBias = "expert_bias_max/";

/// Entropy of the shares, over ln of their number; 1 of a single expert.
double relative_entropy(const std::vector<double>& loads) {
  const auto experts = static_cast<double>(loads.size());
  double entropy = 0.0;
  for (const double load : loads) {
    const double share = load / experts;
    entropy -= share > 0.0 ? share * fixed::log(share) : 0.0;
  }
  return loads.size() < 2 ? 1.0 : entropy / fixed::log(experts);
}

}  // namespace

std::vector<std::pair<std::string, double>> ExpertLoads::figures() const {
  double largest = 0.0, smallest = std::numeric_limits<double>::max(), dead = 0.0, entropy = 0.0;
  for (const std::vector<double>& layer : layers) {
    const auto [low, high] = std::ranges::minmax(layer);
    largest = std::max(largest, high);
    smallest = std::min(smallest, low);
    dead += static_cast<double>(std::ranges::count(layer, 0.0));
    entropy += relative_entropy(layer) / static_cast<double>(layers.size());
  }
  std::vector<std::pair<std::string, double>> figures = {{"expert_load_max", largest},
                                                         {"expert_load_min", smallest},
                                                         {"dead_experts", dead},
                                                         {"expert_entropy", entropy}};
  if (!biases.empty()) {
    const auto low = [](const std::array<double, 2>& range) { return range[0]; };
    const auto high = [](const std::array<double, 2>& range) { return range[1]; };
    figures.emplace_back("expert_bias_min", low(*std::ranges::min_element(biases, {}, low)));
    figures.emplace_back("expert_bias_max", high(*std::ranges::max_element(biases, {}, high)));
  }
  return figures;
}

std::vector<std::vector<double>> ExpertLoads::rounded() const {
  std::vector<std::vector<double>> all = layers;
  for (std::vector<double>& layer : all) {
    for (double& load : layer) {
      load = std::round(load * 1e3) / 1e3;
    }
  }
  return all;
}

ExpertLoads take_expert_loads(std::vector<std::pair<std::string, double>>& metrics) {
  ExpertLoads loads;
  std::string layer;
  std::erase_if(metrics, [&](const auto& metric) {
    const auto& [name, value] = metric;
    if (name.starts_with(kLoad)) {
      std::string of = name.substr(0, name.rfind('/'));
      if (loads.empty() || of != layer) {
        loads.layers.emplace_back();
        layer = std::move(of);
      }
      loads.layers.back().push_back(value);
    } else if (name.starts_with(kLeastBias)) {
      loads.biases.push_back({value, value});
    } else if (name.starts_with(kMostBias) && !loads.biases.empty()) {
      loads.biases.back()[1] = value;
    } else {
      return false;
    }
    return true;
  });
  return loads;
}

}  // namespace train::run
