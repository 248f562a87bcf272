#include "engine/model/config_json/rope_settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace train::engine {
namespace {

constexpr std::string_view kFull = "full_attention";
constexpr std::string_view kSliding = "sliding_attention";
constexpr const char* kContext = "original_max_position_embeddings";
constexpr const char* kShare = "partial_rotary_factor";

/// Keys that each kind reads besides rope_type, rope_theta and partial_rotary_factor.
const std::map<std::string, std::vector<std::string>>& kinds() {
  static const std::map<std::string, std::vector<std::string>> all = {
      {"default", {}},
      {"linear", {"factor"}},
      {"llama3", {"factor", "low_freq_factor", "high_freq_factor", kContext}},
      {"yarn",
       {"factor", kContext, "attention_factor", "beta_fast", "beta_slow", "mscale",
        "mscale_all_dim", "truncate"}},
      {"longrope", {"short_factor", "long_factor", kContext, "factor", "attention_factor"}}};
  return all;
}

bool is_said(const RopeSettings& settings, std::string_view key) {
  const auto found = settings.find(key);
  return found != settings.end() && !found->is_null();
}

/// The value of a key; null where it is missing.
RopeSettings value_of(const RopeSettings& settings, const char* key) {
  return settings.value(key, RopeSettings());
}

/// Takes `key` of the configuration where the settings do not have it.
void set_default(ModelConfig& config, RopeSettings& settings, const char* key, const char* from) {
  const nlohmann::json* value = config.find(from);
  if (!settings.contains(key) && value != nullptr) {
    settings[key] = *value;
  }
}

/// Names a key of the configuration that gives way to the one in `where`, and says something else.
void name_second(ModelConfig& config, const RopeSettings& settings, const char* key,
                 const char* from, std::string_view where) {
  const nlohmann::json* value = config.find(from);
  if (value != nullptr && !value->is_null() && is_said(settings, key) &&
      settings[key] != RopeSettings(*value)) {
    config.pass_over(
        fmt::format("{} {} ({}.{} is {})", from, value->dump(), where, key, settings[key].dump()));
  }
}

/// One rope's settings with their sources, for messages and rules.
struct Reading {
  ModelConfig& config;
  const RopeFamily& family;
  std::string where;  ///< "rope_scaling" or "rope_parameters.full_attention".
};

/// Decides the kind, and refuses those that are not computed here.
std::string settle_kind(const Reading& reading, RopeSettings& settings) {
  const char* key = settings.contains("rope_type") ? "rope_type" : "type";
  const RopeSettings given = settings.contains(key) ? settings[key] : RopeSettings("default");
  std::string kind = given.is_string() ? given.get<std::string>() : given.dump();
  if (reading.family.longrope_alone && (kind == "su" || kind == "yarn")) {
    kind = "longrope";
  }
  const bool is_own = !reading.family.longrope_alone || kind == "default" || kind == "longrope";
  if (!kinds().contains(kind) || !is_own) {
    reading.config.refuse(fmt::format(
        "rope_type \"{}\" is not supported{}: {} are", kind, is_own ? "" : " in this family",
        is_own ? "default, linear, llama3, yarn and longrope" : "default and longrope"));
    kind = "default";
  }
  settings.erase("type");
  settings["rope_type"] = kind;
  return kind;
}

/// A share of a head that turns, where heads turn whole: without effect on a plain rope, and what
/// transformers cannot compute on another.
void drop_share(const Reading& reading, RopeSettings& settings, const std::string& kind) {
  if (!is_said(settings, kShare) || settings[kShare] == 1.0) {
    settings.erase(kShare);
    return;
  }
  if (kind != "default") {
    reading.config.refuse(fmt::format("{} is {}, but this family rotates whole heads: set it to 1",
                                      kShare, settings[kShare].dump()));
  }
  reading.config.pass_over(fmt::format("{} (this family rotates whole heads)", kShare));
  settings.erase(kShare);
}

/// Beside one rope for all layers the configuration's own goes before what its settings say.
void set_context(const Reading& reading, RopeSettings& settings) {
  if (!reading.family.by_layer && reading.config.find(kContext) != nullptr) {
    settings[kContext] = *reading.config.find(kContext);
  }
  set_default(reading.config, settings, kContext, "max_position_embeddings");
}

/// Adds settings that the kind needs, removes those it does not read and notes the removed ones.
void complete(const Reading& reading, RopeSettings& settings) {
  const std::string kind = settle_kind(reading, settings);
  if (!reading.family.partial) {
    drop_share(reading, settings, kind);
  }
  const std::vector<std::string>& own = kinds().at(kind);
  if (std::find(own.begin(), own.end(), kContext) != own.end()) {
    set_context(reading, settings);
  }
  for (auto it = settings.begin(); it != settings.end();) {
    const bool known = it.key() == "rope_type" || it.key() == "rope_theta" || it.key() == kShare ||
                       std::find(own.begin(), own.end(), it.key()) != own.end();
    if (!known && !it->is_null()) {
      reading.config.pass_over(fmt::format("{}.{}", reading.where, it.key()));
    }
    it = !known || (it->is_null() && it.key() != "factor") ? settings.erase(it) : std::next(it);
  }
  if (kind == "yarn" && settings.contains("factor") && settings["factor"].is_null() &&
      is_said(settings, kContext) && settings[kContext].is_number()) {
    settings["factor"] = static_cast<double>(reading.config.size("max_position_embeddings")) /
                         settings[kContext].get<double>();
  }
  if (kind == "longrope" && !is_said(settings, "factor")) {
    settings.erase("factor");
  }
}

/// The value of a key that is an object where it is there; an empty one else.
RopeSettings object_at(ModelConfig& config, const char* key) {
  const nlohmann::json* value = config.find(key);
  if (value != nullptr && !value->is_object()) {
    config.refuse(fmt::format("{} is {}: it must be an object", key, value->dump()));
  }
  return value != nullptr && value->is_object() ? RopeSettings(*value) : RopeSettings::object();
}

RopeSettings read_single(ModelConfig& config, const RopeFamily& family) {
  RopeSettings settings = object_at(config, "rope_scaling");
  const RopeSettings parameters = object_at(config, "rope_parameters");
  const char* where = settings.empty() ? "rope_parameters" : "rope_scaling";
  settings = settings.empty() ? parameters : settings;
  for (const auto& [key, value] : settings.items()) {
    if (value.is_object()) {
      config.refuse(fmt::format(
          "{}.{} is an object, but all layers of this family have one rope: put its keys beside "
          "rope_type",
          where, key));
    }
  }
  name_second(config, settings, "rope_theta", family.theta_key, where);
  name_second(config, settings, kShare, family.share_key, where);
  set_default(config, settings, "rope_theta", family.theta_key);
  set_default(config, settings, kShare, family.share_key);
  static_cast<void>(config.find(kContext));  // read, whether or not the kind needs it
  complete({.config = config, .family = family, .where = where}, settings);
  return settings;
}

/// rope_scaling on top of what layers that see all have.
void add_scaling(ModelConfig& config, const RopeSettings& scaling, RopeSettings& parameters) {
  if (scaling.empty()) {
    return;
  }
  if (!is_said(parameters, kFull) || !parameters[kFull].is_object()) {
    return config.refuse(
        "rope_scaling comes with a rope_parameters without full_attention, which it would apply "
        "to: remove one of them");
  }
  RopeSettings& full = parameters[kFull];
  if (!scaling.contains("rope_type") && scaling.contains("type") && full.contains("rope_type") &&
      scaling["type"] != full["rope_type"]) {
    return config.refuse(fmt::format(
        "rope_scaling has type {} and no rope_type, which transformers 5 reads as no scaling in "
        "this family and transformers 4 as scaling: rename it rope_type, or leave rope_scaling out",
        scaling["type"].dump()));
  }
  full.update(scaling);
}

/// The part of a kind of layer, complete.
RopeSettings part_of(ModelConfig& config, const RopeFamily& family, RopeSettings& parameters,
                     std::string_view part) {
  if (is_said(parameters, part) && !parameters[part].is_object()) {
    config.refuse(fmt::format("rope_parameters.{} is not an object", part));
  }
  RopeSettings settings = is_said(parameters, part) && parameters[part].is_object()
                              ? parameters[part]
                              : RopeSettings{{"rope_type", "default"}};
  const std::string where = fmt::format("rope_parameters.{}", part);
  const char* theta_key = part == kSliding ? family.local_theta_key : family.theta_key;
  const nlohmann::json* theta =
      theta_key != nullptr ? config.find(theta_key) : config.otherwise(family.theta_key);
  if (theta_key != nullptr) {
    name_second(config, settings, "rope_theta", theta_key, where);
  }
  if (!settings.contains("rope_theta") && theta != nullptr) {
    settings["rope_theta"] = *theta;
  }
  complete({.config = config, .family = family, .where = where}, settings);
  const bool truncates = settings.value("truncate", RopeSettings(true)) != false &&
                         parameters.value("truncate", RopeSettings(true)) != false;
  if (settings["rope_type"] == "yarn" && !truncates) {
    config.refuse(
        "truncate of rope_parameters is false, which programs read in different places where ropes "
        "go by layers: leave it out");
  }
  return settings;
}

std::vector<RopeSettings> read_by_layer(ModelConfig& config, const RopeFamily& family) {
  RopeSettings parameters = object_at(config, "rope_parameters");
  if (config.find("rope_parameters") == nullptr) {
    parameters = {{kSliding, {{"rope_type", "default"}}}, {kFull, {{"rope_type", "default"}}}};
  }
  add_scaling(config, object_at(config, "rope_scaling"), parameters);
  for (const auto& [key, value] : parameters.items()) {
    if (key != kFull && key != kSliding && !value.is_null() && key != "truncate") {
      config.pass_over(fmt::format("rope_parameters.{} (this family reads {} and {} in it)", key,
                                   kFull, kSliding));
    }
  }
  return {part_of(config, family, parameters, kFull),
          part_of(config, family, parameters, kSliding)};
}

/// As rope_scaling, which has neither theta nor share.
RopeSettings scaling_of(RopeSettings settings) {
  settings.erase("rope_theta");
  settings.erase(kShare);
  return settings;
}

/// The older dialect of one rope; nothing of a rope that it cannot say.
void add_old_keys(RopeSettings& keys, const RopeSettings& settings, const RopeFamily& family) {
  RopeSettings scaling = scaling_of(settings);
  const bool is_scaled = settings["rope_type"] != "default";
  if (is_scaled && family.longrope_alone) {
    if (is_said(settings, "factor") || is_said(settings, "attention_factor")) {
      return;  // older programs take three keys alone
    }
    scaling = {{"type", "longrope"},
               {"short_factor", value_of(settings, "short_factor")},
               {"long_factor", value_of(settings, "long_factor")}};
  }
  keys[family.theta_key] = value_of(settings, "rope_theta");
  if (family.partial) {
    keys[family.share_key] = value_of(settings, kShare);
  }
  if (is_scaled) {
    keys["rope_scaling"] = std::move(scaling);
  }
}

}  // namespace

std::vector<RopeSettings> read_rope_settings(ModelConfig& config, const RopeFamily& family) {
  if (family.by_layer) {
    return read_by_layer(config, family);
  }
  return {read_single(config, family)};
}

std::string rope_keys_of(const std::vector<RopeSettings>& settings, const RopeFamily& family) {
  RopeSettings keys = RopeSettings::object();
  if (!family.by_layer) {
    keys["rope_parameters"] = settings.front();
    add_old_keys(keys, settings.front(), family);
    return keys.dump();
  }
  const RopeSettings& full = settings.at(0);
  const RopeSettings& local = settings.at(1);
  keys["rope_parameters"] = {{kFull, full}, {kSliding, local}};
  const bool local_is_said = family.local_theta_key != nullptr ||
                             value_of(local, "rope_theta") == value_of(full, "rope_theta");
  if (local["rope_type"] == "default" && local_is_said) {
    add_old_keys(keys, full, family);
    if (family.local_theta_key != nullptr) {
      keys[family.local_theta_key] = value_of(local, "rope_theta");
    }
  }
  return keys.dump();
}

const std::vector<std::string>& all_rope_keys() {
  static const std::vector<std::string> keys = {
      "rope_parameters", "rope_scaling", "rope_theta",           "rope_local_base_freq",
      "rotary_emb_base", "rotary_pct",   "partial_rotary_factor"};
  return keys;
}

}  // namespace train::engine
