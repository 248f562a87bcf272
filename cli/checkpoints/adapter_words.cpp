#include "cli/checkpoints/adapter_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/check.hpp"
#include "engine/model/experts/experts_block.hpp"
#include "engine/model/tensor_map.hpp"
#include "engine/model/unit_parameters.hpp"

namespace train::cli {
namespace {

using Json = nlohmann::ordered_json;

/// The last parts of the adapted maps' names, where these name all of them and nothing else; else
/// their whole names.
std::vector<std::string> target_modules(const engine::ModelSpec& model) {
  std::set<std::string> adapted;
  for (const checkpoint::ExportAdapter& adapter : adapters_of(model)) {
    adapted.insert(adapter.weight);
  }
  std::set<std::string> parts;
  std::set<std::string> others;
  std::vector<std::string> whole;
  for (const engine::MappedParameter& map : engine::tensor_map(model, engine::Dialect::hf)) {
    if (!map.parameter.adaptable) {
      continue;
    }
    const std::string& name = map.parts.front().name;
    const std::string module = name.substr(0, name.rfind('.'));
    const bool has_adapter = adapted.contains(map.parameter.name);
    (has_adapter ? parts : others).insert(module.substr(module.rfind('.') + 1));
    if (has_adapter) {
      whole.push_back(module);
    }
  }
  const bool shared = std::any_of(parts.begin(), parts.end(),
                                  [&](const std::string& part) { return others.contains(part); });
  return shared ? whole : std::vector<std::string>(parts.begin(), parts.end());
}

}  // namespace

std::vector<checkpoint::ExportAdapter> adapters_of(const engine::ModelSpec& model) {
  std::vector<checkpoint::ExportAdapter> adapters;
  for (const engine::UnitParameters& unit : engine::describe_units(model)) {
    for (const engine::Parameter& parameter : unit.parameters) {
      if (!parameter.adapter) {
        continue;
      }
      const std::string map = parameter.name.substr(0, parameter.name.rfind(".lora_"));
      if (parameter.name.ends_with(".lora_A.weight")) {
        adapters.push_back({.weight = map + ".weight",
                            .transposed = model.transposed_linears,
                            .scale = static_cast<double>(model.lora.scale()),
                            .a = parameter,
                            .b = {}});
      } else {
        TRAIN_CHECK(!adapters.empty() && adapters.back().weight == map + ".weight",
                    "{} comes without its first half", parameter.name);
        adapters.back().b = parameter;
      }
    }
  }
  return adapters;
}

namespace {

/// Error (user): experts of which one matrix has an adapter and another none.
Status check_whole_experts(const engine::LayerSpec& layer, const std::set<std::string>& adapted) {
  const auto* experts = engine::find_block<engine::ExpertsSpec>(layer);
  if (experts == nullptr) {
    return {};
  }
  std::string with, without;
  for (const std::string& map : {experts->in, experts->up, experts->out}) {
    const std::string name = layer.prefix + experts->map_name(0, map);
    (adapted.contains(name + ".weight") ? with : without) = name;
  }
  if (with.empty() || without.empty()) {
    return {};
  }
  return user_error(fmt::format(
      "{} has an adapter and {} has none, which PEFT does not read as it is meant: use --format "
      "hf, which merges it",
      with, without));
}

}  // namespace

Status check_peft(const engine::ModelSpec& model) {
  std::set<std::string> adapted;
  for (const checkpoint::ExportAdapter& adapter : adapters_of(model)) {
    adapted.insert(adapter.weight);
  }
  bool fused = false;
  for (const engine::LayerSpec& layer : model.layers) {
    TRAIN_RETURN_IF_ERROR(check_whole_experts(layer, adapted));
    const auto* experts = engine::find_block<engine::ExpertsSpec>(layer);
    fused = fused || (experts != nullptr && experts->fused);
  }
  for (const engine::UnitParameters& unit : engine::describe_units(model)) {
    for (const engine::Parameter& parameter : unit.parameters) {
      if (fused && parameter.adapted_by_name && adapted.contains(parameter.name)) {
        return user_error(fmt::format(
            "{} has an adapter, but files of {} have one tensor for all experts and their routers "
            "are no linear layers, for which PEFT reads no such adapter: use --format hf, which "
            "merges it",
            parameter.name, model.architecture));
      }
    }
  }
  return {};
}

std::string adapter_config(const configs::RunConfig& config, const engine::ModelSpec& model) {
  Json object = {{"peft_type", "LORA"},
                 {"task_type", "CAUSAL_LM"},
                 {"base_model_name_or_path", nullptr},
                 {"r", config.lora.rank},
                 {"lora_alpha", config.lora.alpha},
                 {"target_modules", target_modules(model)},
                 {"lora_dropout", 0.0},
                 {"bias", "none"},
                 {"fan_in_fan_out", model.transposed_linears},
                 {"use_rslora", config.lora.rslora},
                 {"modules_to_save", nullptr},
                 {"inference_mode", true}};
  if (!config.model.from.empty()) {
    object["base_model_name_or_path"] = config.model.from;
  }
  if (std::floor(config.lora.alpha) == config.lora.alpha) {
    object["lora_alpha"] = static_cast<std::int64_t>(config.lora.alpha);
  }
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace train::cli
