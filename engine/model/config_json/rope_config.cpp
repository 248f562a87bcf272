#include "engine/model/config_json/rope_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "base/math/fixed_math.hpp"
#include "kernels/rope/rope.hpp"

namespace train::engine {
namespace {

/// A rope's settings, for numbers.
class Scaling {
 public:
  Scaling(ModelConfig& config, const RopeSettings& settings)
      : config_(&config), settings_(&settings) {}

  [[nodiscard]] const RopeSettings* find(const char* key) const {
    const auto found = settings_->find(key);
    return found == settings_->end() || found->is_null() ? nullptr : &*found;
  }
  /// Neither missing nor 0.
  [[nodiscard]] bool has(const char* key) const {
    return find(key) != nullptr && *find(key) != 0.0;
  }
  [[nodiscard]] double real(const char* key) const {
    const RopeSettings* value = find(key);
    if (value != nullptr && value->is_number()) {
      return value->get<double>();
    }
    config_->refuse(fmt::format("{} of the rope's scaling is missing or not a number", key));
    return 1.0;
  }
  [[nodiscard]] double real_unless_0(const char* key, double otherwise) const {
    return has(key) ? real(key) : otherwise;
  }

 private:
  ModelConfig* config_;
  const RopeSettings* settings_;
};

/// 1 / theta^(2i / dim), in the single precision that published weights were trained with.
std::vector<float> plain_frequencies(double theta, std::int64_t dim) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < dim / 2; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
    const auto power = static_cast<float>(
        fixed::pow(static_cast<double>(static_cast<float>(theta)), static_cast<double>(exponent)));
    values.push_back(1.0F / power);
  }
  return values;
}

void scale_llama3(const Scaling& scaling, std::vector<float>& frequencies) {
  const double factor = scaling.real("factor");
  const double low = scaling.real("low_freq_factor");
  const double high = scaling.real("high_freq_factor");
  const double context = scaling.real("original_max_position_embeddings");
  for (float& frequency : frequencies) {
    const auto value = static_cast<double>(frequency);
    const double wavelength = 2.0 * std::numbers::pi / value;
    const double smooth = (context / wavelength - low) / (high - low);
    if (wavelength > context / low) {
      frequency = static_cast<float>(value / factor);
    } else if (wavelength >= context / high) {
      frequency = static_cast<float>((1.0 - smooth) * value / factor + smooth * value);
    }
  }
}

/// Returns the attention factor.
double scale_yarn(const Scaling& scaling, double theta, std::vector<float>& frequencies) {
  const auto dim = static_cast<double>(2 * frequencies.size());
  const double context = scaling.real("original_max_position_embeddings");
  const double factor = scaling.real("factor");
  const auto correction = [&](double rotations) {
    return dim * fixed::log(context / (rotations * 2.0 * std::numbers::pi)) /
           (2.0 * fixed::log(theta));
  };
  double low = correction(scaling.real_unless_0("beta_fast", 32.0));
  double high = correction(scaling.real_unless_0("beta_slow", 1.0));
  const RopeSettings* truncate = scaling.find("truncate");
  if (truncate == nullptr || *truncate != false) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dim - 1.0);
  high = low == high ? high + 0.001 : high;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    const auto value = static_cast<double>(frequencies[i]);
    frequencies[i] = static_cast<float>(ramp * value / factor + (1.0 - ramp) * value);
  }
  if (scaling.find("attention_factor") != nullptr) {
    return scaling.real("attention_factor");
  }
  if (scaling.has("mscale") && scaling.has("mscale_all_dim")) {
    return yarn_gain(factor, scaling.real("mscale")) /
           yarn_gain(factor, scaling.real("mscale_all_dim"));
  }
  return yarn_gain(factor, 1.0);
}

/// Returns the attention factor.
double scale_longrope(ModelConfig& config, const Scaling& scaling, double theta,
                      std::vector<float>& frequencies) {
  const auto positions = static_cast<double>(config.size("max_position_embeddings"));
  const double context = scaling.real("original_max_position_embeddings");
  const bool is_long = static_cast<double>(config.sequence_length()) > context;
  const char* key = is_long ? "long_factor" : "short_factor";
  const RopeSettings* factors = scaling.find(key);
  if (factors == nullptr || !factors->is_array() || factors->size() != frequencies.size()) {
    config.refuse(fmt::format("{} of the rope's scaling is not a list of {} numbers", key,
                              frequencies.size()));
    return 1.0;
  }
  const auto dim = static_cast<double>(2 * frequencies.size());
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const RopeSettings& factor = factors->at(i);
    const double divisor = factor.is_number() ? factor.get<double>() : 0.0;
    if (divisor <= 0.0) {
      config.refuse(fmt::format("{} of the rope's scaling has {}", key, factor.dump()));
      return 1.0;
    }
    const auto power = static_cast<float>(fixed::pow(theta, 2.0 * static_cast<double>(i) / dim));
    frequencies[i] = 1.0F / (static_cast<float>(divisor) * power);
  }
  if (scaling.find("attention_factor") != nullptr) {
    return scaling.real("attention_factor");
  }
  const double factor =
      scaling.find("factor") == nullptr ? positions / context : scaling.real("factor");
  return factor <= 1.0 ? 1.0 : std::sqrt(1.0 + fixed::log(factor) / fixed::log(context));
}

/// Base and width, frequencies not scaled.
RopeSpec unscaled_rope(ModelConfig& config, const Scaling& scaling, std::int64_t head_dim) {
  RopeSpec rope;
  rope.pairing = kernels::RopePairing::half;
  rope.theta = scaling.real("rope_theta");
  const char* key = "partial_rotary_factor";
  const double share = scaling.find(key) == nullptr ? 1.0 : scaling.real(key);
  rope.rotary_dim = static_cast<std::int64_t>(share * static_cast<double>(head_dim));
  constexpr auto kMost = 2 * static_cast<std::int64_t>(kernels::RopeFrequencies::kMostPairs);
  if (rope.theta <= 1.0 || rope.rotary_dim < 2 || rope.rotary_dim % 2 != 0 ||
      rope.rotary_dim > std::min(kMost, head_dim)) {
    config.refuse(fmt::format("a rope of base {} over {} of {} elements of a head is impossible",
                              rope.theta, rope.rotary_dim, head_dim));
    rope.rotary_dim = 2;
  }
  rope.frequencies = plain_frequencies(rope.theta, rope.rotary_dim);
  return rope;
}

RopeSpec rope_of(ModelConfig& config, const RopeSettings& settings, std::int64_t head_dim) {
  const Scaling scaling(config, settings);
  RopeSpec rope = unscaled_rope(config, scaling, head_dim);
  rope.scaling = settings["rope_type"].get<std::string>();
  if (rope.scaling == "linear") {
    const auto factor = static_cast<float>(scaling.real("factor"));
    for (float& frequency : rope.frequencies) {
      frequency /= factor;
    }
  } else if (rope.scaling == "llama3") {
    scale_llama3(scaling, rope.frequencies);
  } else if (rope.scaling == "yarn") {
    rope.factor = static_cast<float>(scale_yarn(scaling, rope.theta, rope.frequencies));
  } else if (rope.scaling == "longrope") {
    rope.factor = static_cast<float>(scale_longrope(config, scaling, rope.theta, rope.frequencies));
  }
  return rope;
}

}  // namespace

double yarn_gain(double scale, double mscale) {
  return scale <= 1.0 ? 1.0 : 0.1 * mscale * fixed::log(scale) + 1.0;
}

void add_ropes(ModelConfig& config, const RopeFamily& family, std::int64_t head_dim,
               ModelSpec& spec) {
  const std::vector<RopeSettings> all = read_rope_settings(config, family);
  spec.rope_keys = rope_keys_of(all, family);
  for (const RopeSettings& settings : all) {
    spec.ropes.push_back(rope_of(config, settings, head_dim));
  }
}

}  // namespace train::engine
