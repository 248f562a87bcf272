#include "cli/board/expert_history.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <iterator>
#include <utility>

namespace train::cli {
namespace {

std::size_t count_of(const ExpertHistory::Loads& loads) {
  std::size_t count = 1;  // A list without loads has its size, too.
  for (const std::vector<float>& layer : loads) {
    count += layer.size() + 1;
  }
  return count;
}

}  // namespace

ExpertHistory::Place ExpertHistory::erase(Place place) {
  count_ -= count_of(place->second);
  return steps_.erase(place);
}

void ExpertHistory::add(std::int64_t step, Loads loads) {
  if (const auto known = steps_.find(step); known != steps_.end()) {
    erase(known);
  }
  if (!steps_.empty() && step > steps_.rbegin()->first && steps_.size() > 1) {
    // Until now the newest one, which remained whatever its distance.
    const auto before = std::prev(steps_.end());
    if (before->first - std::prev(before)->first < distance_) {
      erase(before);
    }
  }
  count_ += count_of(loads);
  steps_.emplace(step, std::move(loads));
  while (steps_.size() > 2 && (steps_.size() > kMostSteps || count_ > kMostLoads)) {
    distance_ *= 2;
    thin();
  }
}

void ExpertHistory::thin() {
  std::int64_t kept = steps_.begin()->first;
  for (auto at = std::next(steps_.begin()); std::next(at) != steps_.end();) {
    if (at->first - kept < distance_) {
      at = erase(at);
    } else {
      kept = at->first;
      ++at;
    }
  }
}

std::string expert_loads_json(const ExpertHistory& history, std::optional<std::int64_t> wanted) {
  const auto& steps = history.steps();
  fmt::memory_buffer text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "{{\"steps\":[");
  const char* comma = "";
  for (const auto& [step, loads] : steps) {
    fmt::format_to(out, "{}{}", comma, step);
    comma = ",";
  }
  text.push_back(']');
  if (!steps.empty()) {
    auto found = wanted ? steps.upper_bound(*wanted) : steps.end();
    found = found == steps.begin() ? found : std::prev(found);
    fmt::format_to(out, ",\"step\":{},\"loads\":[", found->first);
    comma = "";
    for (const std::vector<float>& layer : found->second) {
      fmt::format_to(out, "{}[{:.4g}]", comma, fmt::join(layer, ","));
      comma = ",";
    }
    text.push_back(']');
  }
  text.push_back('}');
  return fmt::to_string(text);
}

}  // namespace train::cli
