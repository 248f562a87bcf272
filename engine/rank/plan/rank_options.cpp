#include "engine/rank/plan/rank_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <utility>

#include "base/check.hpp"
#include "engine/model/blocks/block.hpp"
#include "engine/model/blocks/latent_attention_spec.hpp"
#include "engine/model/spec.hpp"
#include "engine/objective/registry.hpp"
#include "engine/optimizer/averaged.hpp"
#include "engine/optimizer/registry.hpp"
#include "engine/optimizer/tallied.hpp"

// Plans from options, with the errors a user can mend.

namespace train::engine {

std::unique_ptr<Optimizer> optimizer_of(const RankOptions& options) {
  return with_tallies(
      with_average(make_optimizer(options.optimizer, options.total_steps), options.train));
}

ModelSpec trained_model(const RankOptions& options) {
  ModelSpec model = options.model;
  model.frozen = options.train.freeze;
  model.lora = {.rank = options.lora.rank,
                .alpha = options.lora.alpha,
                .rslora = options.lora.rslora,
                .targets = options.lora.targets};
  if (const auto schedule = schedule_of(options.objective); schedule != nullptr) {
    model.frozen.emplace_back("embedding");
    model.frozen.emplace_back("head");
    for (std::size_t layer = 0; layer < model.layers.size(); ++layer) {
      const auto number = static_cast<std::int64_t>(layer);
      const bool trained = options.phase_step < 0 ? schedule->ever_trains(number)
                                                  : schedule->trains(number, options.phase_step);
      if (!trained) {
        model.frozen.push_back(fmt::format("block {}", layer));
      }
    }
  }
  return model;
}

bool state_ends_with_phase(const RankOptions& options) {
  const auto schedule = schedule_of(options.objective);
  return schedule != nullptr && schedule->state_by_phase() && options.train.ema == 0.0;
}

bool keeps_state_by_phase(const RankOptions& options) {
  return state_ends_with_phase(options) && options.parallel.nodes == 1;
}

std::int64_t last_step_of(const RankOptions& options) {
  return options.phase_step < 0 ? options.total_steps
                                : schedule_of(options.objective)->phase_end(options.phase_step);
}

bool begins_phase(const RankOptions& options, std::int64_t step) {
  return options.phase_step >= 0 && schedule_of(options.objective)->begins_phase(step);
}

bool goes_on_training(const RankOptions& options, std::int64_t layer, std::int64_t step) {
  const auto schedule = schedule_of(options.objective);
  return schedule->trains(layer, step) && !schedule->begins_phase(step);
}

configs::ObjectiveSection with_layers(const configs::ObjectiveSection& section,
                                      std::int64_t layers) {
  configs::ObjectiveSection resolved = section;
  resolved.first_layer = section.first_layer < 0 ? layers - 1 : section.first_layer;
  return resolved;
}

Status check_schedule(const RankOptions& options) {
  const auto schedule = schedule_of(options.objective);
  if (schedule == nullptr) {
    return {};
  }
  if (options.lora.rank > 0) {
    return user_error(fmt::format(
        "lora.rank is {}, but objective.name = \"{}\" trains whole layers; leave [lora] out",
        options.lora.rank, options.objective.name));
  }
  const auto layers = static_cast<std::int64_t>(options.model.layers.size());
  TRAIN_RETURN_IF_ERROR(schedule->check(layers, options.total_steps));
  RankOptions whole = options;
  whole.phase_step = -1;
  const std::vector<UnitParameters> units = describe_units(trained_model(whole));
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    const UnitParameters& unit = units[static_cast<std::size_t>(layer) + 1];
    if (schedule->ever_trains(layer) && unit.gradient_count() == 0) {
      return user_error(
          fmt::format("train.freeze leaves nothing of {}, which objective.name = \"{}\" trains; "
                      "freeze less, or choose other layers",
                      unit.name, options.objective.name));
    }
  }
  return {};
}

namespace {

/// "model.layers.0.mlp.experts.3.up_proj" of its weight.
std::string module_of(const Parameter& map) { return map.name.substr(0, map.name.rfind('.')); }

/// The name without its last number: that of all experts of a layer.
std::string without_number(const std::string& module) {
  for (std::size_t end = module.size(); end > 0;) {
    const std::size_t dot = module.rfind('.', end - 1);
    const std::size_t begin = dot == std::string::npos ? 0 : dot + 1;
    if (end > begin && module.find_first_not_of("0123456789", begin) >= end) {
      return module.substr(0, begin) + "*" + module.substr(end);
    }
    end = dot == std::string::npos ? 0 : dot;
  }
  return module;
}

/// Error (user): a target matches some experts of a layer, whose products are one.
Status check_expert_adapters(const LoraSpec& lora, const std::vector<const Parameter*>& maps) {
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> adapted;  // In all layers.
  for (const Parameter* map : maps) {
    if (map->used_share < 1.0) {
      auto& [with, all] = adapted[without_number(module_of(*map))];
      with += lora.adapts(module_of(*map), map->adapted_by_name) ? 1 : 0;
      ++all;
    }
  }
  for (const auto& [name, counts] : adapted) {
    if (counts.first > 0 && counts.first < counts.second) {
      return user_error(
          fmt::format("lora.targets match {} of the {} experts called \"{}\"; name all of them, as "
                      "\"{}\" does, or none",
                      counts.first, counts.second, name, name));
    }
  }
  return {};
}

/// Error (user) naming [lora] when a target matches no linear map, or the rank is above a map's.
Status check_lora(const RankOptions& options) {
  const LoraSpec lora = trained_model(options).lora;
  if (lora.rank == 0) {
    return {};
  }
  ModelSpec base = options.model;
  base.lora = {};
  std::vector<const Parameter*> maps;
  const std::vector<UnitParameters> units = describe_units(base);
  for (const UnitParameters& unit : units) {
    for (const Parameter& parameter : unit.parameters) {
      if (parameter.adaptable) {
        maps.push_back(&parameter);
      }
    }
  }
  for (const std::string& target : lora.targets) {
    LoraSpec one = lora;
    one.targets = {target};
    if (std::none_of(maps.begin(), maps.end(), [&](const Parameter* map) {
          return one.adapts(module_of(*map), map->adapted_by_name);
        })) {
      return user_error(fmt::format(
          "lora.targets: \"{}\" matches no linear layer; they are called \"{}\" to \"{}\"", target,
          module_of(*maps.front()), module_of(*maps.back())));
    }
  }
  TRAIN_RETURN_IF_ERROR(check_expert_adapters(lora, maps));
  for (const Parameter* map : maps) {
    const std::int64_t most = std::min(map->rows(), map->cols());
    if (lora.adapts(module_of(*map), map->adapted_by_name) && lora.rank > most) {
      return user_error(
          fmt::format("lora.rank is {}, but {} is a matrix of {} x {}: give {} or less", lora.rank,
                      module_of(*map), map->rows(), map->cols(), most));
    }
  }
  return {};
}

/// Error (user): latents are to be expanded again, and the model has none.
Status check_part(const RankOptions& options) {
  const configs::MemorySection& memory = options.memory;
  const auto has_latents = [](const LayerSpec& layer) {
    return find_block<LatentAttentionSpec>(layer) != nullptr;
  };
  if (memory.activation_checkpointing != "none" && memory.checkpointed_part == "latent" &&
      std::ranges::none_of(options.model.layers, has_latents)) {
    return user_error(
        "memory.checkpointed_part is \"latent\", but no layer has latent attention: take "
        "\"attention\"");
  }
  return {};
}

Error several_passes(const RankOptions& options, const char* key) {
  return user_error(
      fmt::format("{} reads the loads of a step, but a step of objective.name = \"{}\" has several "
                  "passes; balance by \"switch:lane:0.01\" in model.balance instead",
                  key, options.objective.name));
}

/// Error (user): counts of this step or the one before, where a step has several passes.
Status check_tallies(const RankOptions& options, const std::vector<UnitParameters>& units) {
  const bool several = make_objective(options.objective)->several_passes();
  if (several && options.model.reads_step_sums()) {
    return several_passes(options, "model.balance");
  }
  for (const UnitParameters& unit : units) {
    for (const Parameter& parameter : unit.parameters) {
      if (parameter.balances && parameter.tally_rate != 0.0 && !parameter.frozen &&
          options.precision.reduce == "bf16") {
        return user_error(
            "precision.reduce = \"bf16\" rounds the counts that correct the routers' choice; leave "
            "it at \"fp32\", or give model.router_bias_rate = 0");
      }
      const bool counts = parameter.unpublished() || parameter.tally_rate != 0.0;
      if (parameter.tallied && counts && !parameter.frozen && several) {
        return several_passes(options,
                              parameter.balances ? "model.router_bias_rate" : "model.balance");
      }
    }
  }
  return {};
}

/// Refuses rows of several texts where each text needs the model's prefix before it, and bf16
/// kernels, which have no window beside a prefix.
Status check_prefix(const RankOptions& options) {
  if (options.model.prefix_tokens == 0) {
    return {};
  }
  if (options.precision.compute == "bf16" && options.knows_bf16) {
    return user_error(
        fmt::format("precision.compute is \"bf16\": a model with {} learned tokens before each "
                    "text computes in fp32 on GPUs; set it to \"fp32\"",
                    options.model.prefix_tokens));
  }
  if (options.scored_lanes == 0 && !make_objective(options.objective)->columns().positions) {
    return {};
  }
  return user_error(fmt::format(
      "{}: the model has {} learned tokens before each text, and rows of {} hold several texts; "
      "train it with objective.name = \"pretrain\" and without eval.choices",
      options.scored_lanes > 0 ? "eval.choices" : "objective.name", options.model.prefix_tokens,
      options.scored_lanes > 0 ? "judged answers" : options.objective.name));
}

}  // namespace

Result<ShardPlan> plan_of(const RankOptions& options) {
  TRAIN_RETURN_IF_ERROR(check_schedule(options));
  TRAIN_RETURN_IF_ERROR(check_lora(options));
  TRAIN_RETURN_IF_ERROR(check_part(options));
  TRAIN_RETURN_IF_ERROR(check_prefix(options));
  return plan_of(options, describe_units(trained_model(options)));
}

Result<ShardPlan> plan_of(const RankOptions& options, std::vector<UnitParameters> units) {
  TRAIN_RETURN_IF_ERROR(check_tallies(options, units));
  std::vector<std::string> whole = whole_parameters(*optimizer_of(options), units);
  whole.insert(whole.end(), options.whole_parameters.begin(), options.whole_parameters.end());
  return ShardPlan::make({.parallel = options.parallel,
                          .precision = options.precision,
                          .units = std::move(units),
                          .train_lanes = options.batch.lanes,
                          .eval_lanes = options.eval_lanes,
                          .scored_lanes = options.scored_lanes,
                          .sampled_texts = options.sampled_texts,
                          .radix = options.batch.radix,
                          .tied = options.model.tie_embeddings,
                          .whole_parameters = std::move(whole)});
}

Status check_freeze(const RankOptions& options) {
  TRAIN_RETURN_IF_ERROR(check_lora(options));
  const std::vector<UnitParameters> units = describe_units(trained_model(options));
  for (const std::string& pattern : options.train.freeze) {
    const bool found = std::any_of(units.begin(), units.end(), [&](const UnitParameters& unit) {
      return matches_shell(pattern, unit.name) ||
             std::any_of(unit.parameters.begin(), unit.parameters.end(),
                         [&](const Parameter& parameter) {
                           return matches_shell(pattern, parameter.name);
                         });
    });
    if (!found) {
      return user_error(fmt::format(
          "train.freeze: \"{}\" matches no parameter and no unit; units are called \"{}\" to "
          "\"{}\", parameters \"{}\"",
          pattern, units.front().name, units.back().name, units.front().parameters.front().name));
    }
  }
  if (lowest_trained_unit(trained_model(options)) == units.size()) {
    return user_error("train.freeze leaves nothing to train: name fewer parameters and units");
  }
  return {};
}

Checkpointing checkpointing_of(const configs::MemorySection& section) {
  const std::string& text = section.activation_checkpointing;
  Checkpointing checkpointing{.part = section.checkpointed_part};
  if (text == "none" || text == "all") {
    checkpointing.every = text == "all" ? 1 : 0;
    return checkpointing;
  }
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), checkpointing.every);
  TRAIN_CHECK(error == std::errc{} && end == text.data() + text.size() && checkpointing.every > 0,
              "memory.activation_checkpointing is \"{}\"", text);
  return checkpointing;
}

Offload offload_of(const configs::MemorySection& section) {
  if (section.offload == "none") {
    return Offload::nothing;
  }
  return section.offload == "optimizer" ? Offload::optimizer : Offload::parameters;
}

bool makes_weights(const configs::MemorySection& section) { return section.bf16_weights == "made"; }

}  // namespace train::engine
