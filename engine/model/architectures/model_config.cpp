#include "engine/model/architectures/model_config.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace train::engine {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kLargestSize = std::int64_t{1} << 32;

/// The key that an error names: the one that is there, or the usual one.
std::string name_of(const Json& json, ModelConfig::Keys keys) {
  for (const char* key : keys) {
    const auto found = json.find(key);
    if (found != json.end() && !found->is_null()) {
      return key;
    }
  }
  return *keys.begin();
}

}  // namespace

const Json* ModelConfig::find(Keys keys) const {
  for (const char* key : keys) {
    const auto found = json_->find(key);
    if (found != json_->end() && !found->is_null()) {
      return &*found;
    }
  }
  return nullptr;
}

void ModelConfig::refuse(const std::string& what) {
  if (!error_) {
    error_ = fmt::format("{}: {}", source_, what);
  }
}

Status ModelConfig::status() const {
  if (error_) {
    return user_error(*error_);
  }
  return {};
}

std::int64_t ModelConfig::size(Keys keys) {
  if (find(keys) == nullptr) {
    refuse(fmt::format("{} is missing", name_of(*json_, keys)));
    return 1;
  }
  return size_or(keys, 1);
}

std::int64_t ModelConfig::size_or(Keys keys, std::int64_t otherwise) {
  const Json* value = find(keys);
  if (value == nullptr) {
    return otherwise;
  }
  if (!value->is_number_integer() || value->get<std::int64_t>() < 1 ||
      value->get<std::int64_t>() > kLargestSize) {
    refuse(fmt::format("{} is {}: a whole number from 1 on is wanted", name_of(*json_, keys),
                       value->dump()));
    return 1;
  }
  return value->get<std::int64_t>();
}

double ModelConfig::real_or(Keys keys, double otherwise) {
  const Json* value = find(keys);
  if (value == nullptr) {
    return otherwise;
  }
  if (!value->is_number() || !std::isfinite(value->get<double>()) || value->get<double>() < 0.0) {
    refuse(fmt::format("{} is {}: a number that is not negative is wanted", name_of(*json_, keys),
                       value->dump()));
    return otherwise;
  }
  return value->get<double>();
}

bool ModelConfig::flag_or(Keys keys, bool otherwise) {
  const Json* value = find(keys);
  if (value == nullptr) {
    return otherwise;
  }
  if (!value->is_boolean()) {
    refuse(fmt::format("{} is {}: true or false is wanted", name_of(*json_, keys), value->dump()));
    return otherwise;
  }
  return value->get<bool>();
}

std::string ModelConfig::text_or(Keys keys, const std::string& otherwise) {
  const Json* value = find(keys);
  if (value == nullptr) {
    return otherwise;
  }
  if (!value->is_string()) {
    refuse(fmt::format("{} is {}: a string is wanted", name_of(*json_, keys), value->dump()));
    return otherwise;
  }
  return value->get<std::string>();
}

kernels::ActivationKind ModelConfig::activation(Keys keys, const std::string& otherwise) {
  const std::string name = text_or(keys, otherwise);
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
                     name_of(*json_, keys), name));
  return kernels::ActivationKind::silu;
}

std::vector<bool> ModelConfig::windowed_layers(std::int64_t layers,
                                               bool (*otherwise)(std::int64_t layer)) {
  std::vector<bool> windowed;
  const Json* types = find({"layer_types"});
  if (types == nullptr) {
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      windowed.push_back(otherwise(layer));
    }
    return windowed;
  }
  if (!types->is_array() || types->size() != static_cast<std::size_t>(layers)) {
    refuse(fmt::format("layer_types is no list of {} names, one a layer", layers));
    windowed.assign(static_cast<std::size_t>(layers), false);
    return windowed;
  }
  for (const Json& type : *types) {
    const bool window = type == "sliding_attention";
    if (!window && type != "full_attention") {
      refuse(
          fmt::format("layer_types has {}: \"full_attention\" and \"sliding_attention\" are known",
                      type.dump()));
    }
    windowed.push_back(window);
  }
  return windowed;
}

void ModelConfig::require_zero(Keys keys) {
  for (const char* key : keys) {
    const Json* value = find({key});
    if (value != nullptr && !(value->is_number() && value->get<double>() == 0.0)) {
      refuse(
          fmt::format("{} is {}: it changes the model and is not supported; set it to 0 if the "
                      "model may do without",
                      key, value->dump()));
    }
  }
}

void ModelConfig::require_absent(Keys keys, const char* why) {
  for (const char* key : keys) {
    const Json* value = find({key});
    if (value != nullptr && *value != false) {
      refuse(fmt::format("{} is not supported: {}", key, why));
    }
  }
}

}  // namespace train::engine
