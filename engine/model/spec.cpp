#include "engine/model/spec.hpp"

#include <fnmatch.h>

#include <algorithm>

#include "engine/model/unit_parameters.hpp"

namespace train::engine {
namespace {

/// Mean number of keys that a query of a sequence sees, as the figures of other programs count it.
double mean_keys(std::int64_t seq_len, std::int64_t window) {
  const auto all = static_cast<double>(seq_len);
  if (window == 0 || window >= seq_len) {
    return all / 2.0;
  }
  const auto seen = static_cast<double>(window);
  return seen - seen * seen / (2.0 * all);
}

}  // namespace

std::int64_t ModelSpec::widest_head() const {
  std::int64_t widest = 0;
  for (const LayerSpec& layer : layers) {
    widest = std::max(widest, layer.attention.head_dim);
  }
  return widest;
}

bool ModelSpec::is_frozen(const std::string& unit, const std::string& parameter) const {
  const auto matches = [](const std::string& pattern, const std::string& name) {
    return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
  };
  return std::any_of(frozen.begin(), frozen.end(), [&](const std::string& pattern) {
    return matches(pattern, unit) || matches(pattern, parameter);
  });
}

ParameterCount count_parameters(const ModelSpec& spec) {
  ParameterCount count;
  count.embedding = spec.vocab_size * spec.embedding_dim;
  count.head = spec.tie_embeddings ? 0 : count.embedding;
  for (const UnitParameters& unit : describe_units(spec)) {
    for (const Parameter& parameter : unit.parameters) {
      count.total += parameter.count();
    }
  }
  return count;
}

double flops_per_token(const ModelSpec& spec, std::int64_t seq_len) {
  std::int64_t matrices = spec.vocab_size * spec.embedding_dim;  // the head's
  for (const UnitParameters& unit : describe_units(spec)) {
    for (const Parameter& parameter : unit.parameters) {
      const bool product = !parameter.vector && !parameter.is_head;
      matrices += product && parameter.init != InitKind::embedding ? parameter.count() : 0;
    }
  }
  double attention = 0.0;
  for (const LayerSpec& layer : spec.layers) {
    attention += static_cast<double>(layer.attention.heads * layer.attention.head_dim) *
                 mean_keys(seq_len, layer.attention.window);
  }
  return 6.0 * static_cast<double>(matrices) + 12.0 * attention;
}

}  // namespace train::engine
