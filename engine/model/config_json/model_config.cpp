#include "engine/model/config_json/model_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/check.hpp"
#include "engine/model/config_json/config_keys.hpp"

namespace train::engine {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kLargestSize = std::int64_t{1} << 32;
constexpr std::int64_t kMostParts = 65536;  // Layers of a model, experts of a layer.

/// Largest value of a size: parts that are listed one by one are fewer than elements.
std::int64_t largest(std::string_view key) {
  constexpr auto kParts =
      std::to_array<std::string_view>({"num_hidden_layers", "n_layer", "num_nextn_predict_layers",
                                       "n_routed_experts", "num_experts", "num_local_experts"});
  return std::ranges::count(kParts, key) > 0 ? kMostParts : kLargestSize;
}

std::string wanted(const std::string& key, const Json* value, const std::string& what) {
  return fmt::format("{} is {}: it must be {}", key, value == nullptr ? "null" : value->dump(),
                     what);
}

}  // namespace

bool ModelConfig::may_read(const std::string& key) const { return defaults_->contains(key); }

const Json* ModelConfig::find(const std::string& key) {
  const auto otherwise = defaults_->find(key);
  TRAIN_CHECK(otherwise != defaults_->end(), "{} is read, and no key of its architecture", key);
  read_.insert(key);
  const auto given = json_->find(key);
  const Json& value = given == json_->end() ? *otherwise : *given;
  return value.is_null() ? nullptr : &value;
}

bool ModelConfig::gives(const std::string& key) const { return json_->contains(key); }

void ModelConfig::set_if_none(const std::string& key, const Json& value) {
  if (find(key) == nullptr) {
    (*json_)[key] = value;
  }
}

const Json* ModelConfig::otherwise(const std::string& key) const {
  const Json& value = defaults_->at(key);
  return value.is_null() ? nullptr : &value;
}

void ModelConfig::take_as(const std::string& other, const std::string& key) {
  if (const auto given = json_->find(other); given != json_->end()) {
    (*json_)[key] = Json(*given);
    read_.insert(other);
  }
}

void ModelConfig::take_alias(const std::string& other, const std::string& key) {
  const auto given = json_->find(other);
  const auto own = json_->find(key);
  if (given != json_->end() && own != json_->end() && *given != *own) {
    refuse(fmt::format("{} is {}, but {} is {}: they are one number; leave one of them out", other,
                       given->dump(), key, own->dump()));
  }
  take_as(other, key);
}

void ModelConfig::pass_over(const std::string& what) { passed_over_.push_back(what); }

void ModelConfig::refuse(const std::string& what) {
  if (!error_) {
    error_ = fmt::format("{}: {}", source_, what);
  }
}

void ModelConfig::judge(const std::string& key, const Json& value, ModelSpec& spec) {
  const ConfigKeys* known = find_config_key(key);
  if (known == nullptr) {
    spec.unread_keys.push_back(key);
  } else if (known->use == KeyUse::refused && value != Json::parse(known->neutral)) {
    refuse(fmt::format("{} is {}, which is not supported: {}", key, value.dump(), known->why));
  } else if (known->use == KeyUse::dropout && value != 0) {
    spec.dropout.push_back(fmt::format("{} {}", key, value.dump()));
  }
}

Status ModelConfig::finish(ModelSpec& spec) {
  spec.unread_keys = passed_over_;
  spec.dropout.clear();
  for (const auto& [key, value] : json_->items()) {
    if (!value.is_null() && !read_.contains(key)) {
      judge(key, value, spec);
    }
  }
  if (error_) {
    return user_error(*error_);
  }
  return {};
}

std::int64_t ModelConfig::size(const std::string& key) {
  const Json* value = find(key);
  if (value == nullptr || !value->is_number_integer() || value->get<std::int64_t>() < 1) {
    refuse(wanted(key, value, "an integer of 1 or more"));
    return 1;
  }
  if (value->get<std::int64_t>() > largest(key)) {
    refuse(wanted(key, value, fmt::format("at most {}", largest(key))));
    return 1;
  }
  return value->get<std::int64_t>();
}

std::optional<std::int64_t> ModelConfig::size_if_any(const std::string& key) {
  return find(key) == nullptr ? std::nullopt : std::optional(size(key));
}

std::int64_t ModelConfig::count(const std::string& key) {
  const Json* value = find(key);
  return value == nullptr || (value->is_number_integer() && *value == 0) ? 0 : size(key);
}

double ModelConfig::real(const std::string& key) {
  const Json* value = find(key);
  if (value == nullptr || !value->is_number() || !std::isfinite(value->get<double>()) ||
      value->get<double>() < 0.0) {
    refuse(wanted(key, value, "a number of 0 or more"));
    return 1.0;
  }
  if (constexpr auto kMost = std::numeric_limits<float>::max(); value->get<double>() > kMost) {
    refuse(wanted(key, value, fmt::format("at most {:.6g}", kMost)));
    return 1.0;
  }
  return value->get<double>();
}

double ModelConfig::cap_if_any(const std::string& key) {
  if (find(key) == nullptr) {
    return 0.0;
  }
  const double cap = real(key);
  if (cap == 0.0) {
    refuse(fmt::format(
        "{} is 0, which transformers divides by and other programs ignore; set it to null", key));
  }
  return cap;
}

bool ModelConfig::flag(const std::string& key) {
  const Json* value = find(key);
  if (value == nullptr || !value->is_boolean()) {
    refuse(wanted(key, value, "true or false"));
    return false;
  }
  return value->get<bool>();
}

std::string ModelConfig::text(const std::string& key) {
  const Json* value = find(key);
  if (value == nullptr || !value->is_string()) {
    refuse(wanted(key, value, "a string"));
    return "";
  }
  return value->get<std::string>();
}

kernels::ActivationKind ModelConfig::activation(const std::string& key) {
  const std::string name = text(key);
  if (name == "silu" || name == "swish") {
    return kernels::ActivationKind::silu;
  }
  if (name == "gelu") {
    return kernels::ActivationKind::gelu;
  }
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") {
    return kernels::ActivationKind::gelu_tanh;
  }
  if (name == "relu") {
    return kernels::ActivationKind::relu;
  }
  refuse(fmt::format("{} is \"{}\": silu, gelu, gelu_new, gelu_pytorch_tanh and relu are known",
                     key, name));
  return kernels::ActivationKind::silu;
}

std::vector<std::int64_t> ModelConfig::layer_numbers(const std::string& key) {
  std::vector<std::int64_t> numbers;
  const Json* value = find(key);
  if (value == nullptr) {
    return numbers;
  }
  const bool list =
      value->is_array() && std::all_of(value->begin(), value->end(), [](const Json& number) {
        return number.is_number_integer() && number.get<std::int64_t>() >= 0;
      });
  if (!list) {
    refuse(wanted(key, value, "a list of numbers of layers, each of 0 or more"));
    return numbers;
  }
  return value->get<std::vector<std::int64_t>>();
}

std::vector<std::int64_t> ModelConfig::layer_windows(
    std::int64_t layers, std::optional<std::int64_t> window,
    const std::function<bool(std::int64_t)>& windowed) {
  std::vector<std::int64_t> windows(static_cast<std::size_t>(layers), 0);
  const Json* types = find("layer_types");
  if (types != nullptr && (!types->is_array() || types->size() != windows.size())) {
    refuse(fmt::format("layer_types must be a list of {} names, one per layer", layers));
    return windows;
  }
  for (std::size_t layer = 0; layer < windows.size(); ++layer) {
    const bool local = types != nullptr ? types->at(layer) == "sliding_attention"
                                        : windowed(static_cast<std::int64_t>(layer));
    if (types != nullptr && !local && types->at(layer) != "full_attention") {
      refuse(
          fmt::format("layer_types has {}: \"full_attention\" and \"sliding_attention\" are known",
                      types->at(layer).dump()));
    }
    if (local && !window) {
      refuse(fmt::format("layer {} is a sliding_attention without a window: give sliding_window{}",
                         layer,
                         defaults_->contains("use_sliding_window")
                             ? " and set use_sliding_window to true, or call it full_attention"
                             : ", or call it full_attention in layer_types"));
    }
    windows[layer] = local ? window.value_or(0) : 0;
  }
  return windows;
}

}  // namespace train::engine
