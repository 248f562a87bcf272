#include "checkpoint/models/gguf_rope.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/math/fixed_math.hpp"

namespace train::checkpoint {
namespace {

using Json = nlohmann::ordered_json;

/// Divisor of frequency `i` of `count`, as written by llama.cpp's converter.
double llama3_divisor(const Llama3Rule& rule, double factor, double theta, std::size_t i,
                      std::size_t count) {
  const double exponent = static_cast<double>(i) / static_cast<double>(count);
  const double wavelength = 2.0 * std::numbers::pi * fixed::pow(theta, exponent);
  if (wavelength < rule.context / rule.high) {
    return 1.0;
  }
  if (wavelength > rule.context / rule.low) {
    return factor;
  }
  const double smooth = (rule.context / wavelength - rule.low) / (rule.high - rule.low);
  return 1.0 / ((1.0 - smooth) / factor + smooth);
}

/// Searches the common parameters (contexts of powers of two) for a rule with these factors.
std::optional<Llama3Rule> llama3_of(const std::vector<float>& factors, double factor,
                                    double theta) {
  constexpr double kNear = 1e-4;
  for (const double high : {4.0, 2.0, 8.0}) {
    for (double context = 64.0; context <= 1 << 20; context *= 2.0) {
      const Llama3Rule rule{.context = context, .low = 1.0, .high = high};
      bool fits = true;
      for (std::size_t i = 0; fits && i < factors.size(); ++i) {
        const double divisor = llama3_divisor(rule, factor, theta, i, factors.size());
        fits = std::abs(static_cast<double>(factors[i]) / divisor - 1.0) < kNear;
      }
      if (fits) {
        return rule;
      }
    }
  }
  return std::nullopt;
}

/// Reads a factor tensor; empty if there is none. Errors (user): not one positive factor per
/// frequency.
Result<std::vector<float>> factors_of(const storage::GgufFile& file, std::string_view name,
                                      std::uint64_t count) {
  std::vector<float> factors;
  const storage::GgufEntry* entry = file.find(name);
  if (entry == nullptr) {
    return factors;
  }
  const bool fits = entry->elements_count == count;
  if (fits) {
    factors.resize(count);
    TRAIN_RETURN_IF_ERROR(file.read_fp32(*entry, 0, factors));
  }
  if (!fits || std::any_of(factors.begin(), factors.end(), [](float factor) {
        return !(factor > 0.0F && std::isfinite(factor));
      })) {
    return user_error(fmt::format("{}: tensor {} is not a list of {} positive numbers",
                                  file.file().path().string(), name, count));
  }
  return factors;
}

/// Converts rope_freqs.weight, for any rule that made it.
Json scaling_of_factors(const std::vector<float>& factors, double theta, const Json& config) {
  const auto largest = static_cast<double>(*std::max_element(factors.begin(), factors.end()));
  if (const auto rule = llama3_of(factors, largest, theta)) {
    return {{"rope_type", "llama3"},
            {"factor", largest},
            {"low_freq_factor", rule->low},
            {"high_freq_factor", rule->high},
            {"original_max_position_embeddings", rule->context}};
  }
  return {{"rope_type", "longrope"},
          {"short_factor", factors},
          {"long_factor", factors},
          {"attention_factor", 1.0},
          {"original_max_position_embeddings", config["max_position_embeddings"]}};
}

Json yarn_of(GgufKeys& keys, double factor) {
  Json scaling = {
      {"rope_type", "yarn"},
      {"factor", factor},
      {"original_max_position_embeddings",
       keys.count("rope.scaling.original_context_length", keys.count("context_length"))}};
  if (keys.real("rope.scaling.yarn_ext_factor", 1.0) != 1.0) {
    keys.refuse("rope.scaling.yarn_ext_factor", "1 is supported");
  }
  for (const auto& [key, of] : {std::pair("beta_fast", "rope.scaling.yarn_beta_fast"),
                                std::pair("beta_slow", "rope.scaling.yarn_beta_slow"),
                                std::pair("attention_factor", "rope.scaling.yarn_attn_factor")}) {
    if (keys.has(of)) {
      scaling[key] = keys.real(of);
    }
  }
  // This gain is multiplied by the rule's own in llama.cpp.
  if (const double gain = keys.real("rope.scaling.attn_factor", 1.0); gain != 1.0) {
    const double rule = factor <= 1.0 ? 1.0 : 0.1 * fixed::log(factor) + 1.0;
    scaling["attention_factor"] = gain * scaling.value("attention_factor", rule);
  }
  return scaling;
}

/// Scaling of Phi-3: a factor list for contexts up to the original length, and one for longer ones.
Json longrope_of(GgufKeys& keys, std::vector<float> shorter, std::vector<float> longer) {
  Json scaling = {
      {"rope_type", "longrope"},
      {"short_factor", shorter.empty() ? longer : shorter},
      {"long_factor", longer.empty() ? shorter : longer},
      {"original_max_position_embeddings",
       keys.count("rope.scaling.original_context_length", keys.count("context_length"))}};
  if (keys.has("rope.scaling.attn_factor")) {
    scaling["attention_factor"] = keys.real("rope.scaling.attn_factor");
  }
  if (const double factor = keys.real("rope.scaling.factor", 0.0); factor > 1.0) {
    scaling["factor"] = factor;
  }
  return scaling;
}

/// Share of the head's width that gives this many elements when rounded down.
double share_of(std::uint64_t elements, double width) {
  const double share = static_cast<double>(elements) / width;
  return share * width < static_cast<double>(elements) ? std::nextafter(share, 2.0) : share;
}

/// Returns the number of rotated elements per head.
std::uint64_t add_width(GgufKeys& keys, Json& config) {
  const auto head_dim = config["head_dim"].get<std::uint64_t>();
  const std::uint64_t rotary = keys.count("rope.dimension_count", head_dim);
  if (rotary == 0 || rotary > head_dim) {
    keys.refuse("rope.dimension_count", "it must be at most the width of a head");
  } else if (rotary != head_dim) {
    config["partial_rotary_factor"] = share_of(rotary, static_cast<double>(head_dim));
  }
  return rotary;
}

}  // namespace

std::vector<float> llama3_divisors(const Llama3Rule& rule, double factor, double theta,
                                   std::size_t count) {
  std::vector<float> divisors;
  for (std::size_t i = 0; i < count; ++i) {
    divisors.push_back(static_cast<float>(llama3_divisor(rule, factor, theta, i, count)));
  }
  return divisors;
}

Status add_gguf_rope(GgufKeys& keys, Json& config) {
  keys.ignore({"rope.scaling.finetuned"});
  const double theta = keys.real("rope.freq_base", 10000.0);
  config["rope_theta"] = theta;
  const std::uint64_t rotary = add_width(keys, config);
  const auto factors = TRAIN_TRY(factors_of(keys.file(), kGgufRopeTensors[0], rotary / 2));
  auto shorter = TRAIN_TRY(factors_of(keys.file(), kGgufRopeTensors[1], rotary / 2));
  auto longer = TRAIN_TRY(factors_of(keys.file(), kGgufRopeTensors[2], rotary / 2));
  // Without a type the factor is that of linear scaling, as in files of 2023.
  const double old_factor = keys.real("rope.scale_linear", 0.0);
  const std::string kind = keys.text("rope.scaling.type", "linear");
  if (!shorter.empty() || !longer.empty()) {
    config["rope_scaling"] = longrope_of(keys, std::move(shorter), std::move(longer));
    config["original_max_position_embeddings"] =
        config["rope_scaling"]["original_max_position_embeddings"];
    return {};
  }
  if (kind == "longrope") {
    keys.refuse("rope.scaling.type", "its factors, rope_factors_long.weight, are missing");
    return {};
  }
  const double given = keys.real("rope.scaling.factor", old_factor);
  if (given < 0.0) {
    keys.refuse("rope.scaling.factor", "it must be a positive number");
  }
  const double factor = given == 0.0 || kind == "none" ? 1.0 : given;
  if (kind == "yarn") {
    config["rope_scaling"] = yarn_of(keys, factor);
  } else if (kind == "linear" || kind == "none") {
    keys.ignore({"rope.scaling.original_context_length"});
    if (keys.real("rope.scaling.attn_factor", 1.0) != 1.0) {
      keys.refuse("rope.scaling.attn_factor", "an attention factor needs yarn or longrope");
    }
    if (factor != 1.0) {
      config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", factor}};
    }
  } else {
    keys.refuse("rope.scaling.type", "none, linear, yarn and longrope are known");
  }
  if (!factors.empty()) {
    if (config.contains("rope_scaling")) {
      keys.refuse("rope.scaling.factor", "rope_freqs.weight scales the frequencies, too");
    }
    const bool plain = std::all_of(factors.begin(), factors.end(),
                                   [](float factor_of_one) { return factor_of_one == 1.0F; });
    if (!plain) {
      config["rope_scaling"] = scaling_of_factors(factors, theta, config);
    }
  }
  return {};
}

}  // namespace train::checkpoint
