#include "configs/rules/idle_keys.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace train::configs {
namespace {

bool needs_by_size(const RunConfig& config) {
  return std::ranges::count(config.parallel.wrapping, "by_size") == 0;
}

/// True if no unit's weights are gathered from other ranks because of the strategy.
bool keeps_weights(const RunConfig& config) {
  const ParallelSection& parallel = config.parallel;
  return parallel.ranks > 1 && parallel.strategy_by_unit.empty() &&
         (parallel.strategy == "none" || parallel.strategy == "optimizer" ||
          parallel.strategy == "gradient");
}

bool one_process(const RunConfig& config) {
  return config.parallel.ranks == 1 || config.parallel.transport == "inproc";
}

constexpr auto kTable = std::to_array<IdleKeys>({
    {"run.sample_prompt", [](const RunConfig& c) { return c.run.sample_tokens == 0; },
     "without run.sample_tokens"},
    {"run.sample_prompts|run.sample_chats|run.sample_temperature|run.sample_seed",
     [](const RunConfig& c) { return c.run.sample_interval_steps == 0; },
     "without run.sample_interval_steps"},
    {"run.sample_prompt",
     [](const RunConfig& c) {
       return c.run.sample_interval_steps > 0 &&
              !(c.run.sample_prompts.empty() && c.run.sample_chats.empty());
     },
     "with run.sample_prompts or run.sample_chats"},
    {"model.init_scheme|model.init_std", [](const RunConfig& c) { return !c.model.from.empty(); },
     "with model.from, whose weights training starts from"},
    {"model.init_std",
     [](const RunConfig& c) {
       return c.model.from.empty() && c.model.init_scheme != "karpathy_gpt2";
     },
     "unless model.init_scheme is \"karpathy_gpt2\""},
    {"model.attention_output_gate", [](const RunConfig& c) { return c.model.arch == "enoki"; },
     "with model.arch = \"enoki\""},
    {"model.experts_per_token|model.expert_hidden|model.shared_expert_hidden|model.router|"
     "model.router_scale|model.router_groups",
     [](const RunConfig& c) { return c.model.experts == 0; }, "without model.experts"},
    {"model.router_bias_rate",
     [](const RunConfig& c) { return !c.model.arch.empty() && c.model.experts == 0; },
     "without model.experts"},
    {"model.router_bias_rate", [](const RunConfig& c) { return c.lora.rank > 0; },
     "with lora.rank, which trains adapters alone"},
    {"model.router_kept_groups", [](const RunConfig& c) { return c.model.router_groups == 1; },
     "without model.router_groups"},
    {"model.mlp_hidden",
     [](const RunConfig& c) { return c.model.experts > 0 && c.model.expert_hidden > 0; },
     "with model.expert_hidden, as all layers have experts"},
    {"optimizer.wd_decaying|optimizer.wd_coupling|optimizer.wd_ts",
     [](const RunConfig& c) { return c.optimizer.weight_decay == 0.0; },
     "without optimizer.weight_decay"},
    {"optimizer.wd_ts",
     [](const RunConfig& c) { return c.optimizer.weight_decay > 0.0 && !c.optimizer.wd_decaying; },
     "without optimizer.wd_decaying"},
    {"schedule.div_factor",
     [](const RunConfig& c) {
       const std::string& name = c.schedule.name;
       return (name == "wsd" || name == "constant") && c.schedule.warmup_steps == 0;
     },
     "without schedule.warmup_steps"},
    {"schedule.final_div_factor",
     [](const RunConfig& c) { return c.schedule.name == "wsd" || c.schedule.name == "constant"; },
     "unless schedule.name is \"cos\", \"linear\" or \"cos_inf\""},
    {"schedule.decay_fraction|schedule.decay_shape|schedule.decay_floor",
     [](const RunConfig& c) { return c.schedule.name != "wsd"; },
     "unless schedule.name is \"wsd\""},
    {"scaling.params|scaling.tokens_per_parameter|scaling.omega",
     [](const RunConfig& c) { return c.scaling.rule == "none"; }, "without scaling.rule"},
    {"objective.target_seed",
     [](const RunConfig& c) { return c.objective.forget_loss != "random_targets"; },
     "unless objective.forget_loss is \"random_targets\""},
    {"eval.lanes", [](const RunConfig& c) { return c.eval.interval_steps == 0; },
     "without eval.interval_steps"},
    {"checkpoint.keep_every|checkpoint.keep_best",
     [](const RunConfig& c) { return c.checkpoint.keep_last == 0; },
     "with checkpoint.keep_last = 0, which keeps all checkpoints"},
    {"recovery.max_respawns|recovery.snapshot_interval_steps|recovery.buddy_snapshots",
     [](const RunConfig& c) { return c.recovery.rank_loss == "stop"; },
     "with recovery.rank_loss = \"stop\""},
    {"recovery.snapshot_interval_steps",
     [](const RunConfig& c) { return c.recovery.rank_loss != "stop" && one_process(c); },
     "while all ranks are in one process"},
    {"recovery.start_wait_s|recovery.node_wait_s|recovery.buddy_snapshots",
     [](const RunConfig& c) { return c.recovery.rank_loss != "stop" && c.parallel.nodes == 1; },
     "with one node"},
    {"watchdog.abort_after_s", [](const RunConfig& c) { return c.watchdog.stall_s == 0; },
     "without watchdog.stall_s"},
    {"status.token_file", [](const RunConfig& c) { return c.status.listen.empty(); },
     "without status.listen"},
    {"batch.radix", [](const RunConfig& c) { return c.precision.determinism == "run"; },
     "with precision.determinism = \"run\""},
    {"parallel.wrap_min_parameters", needs_by_size, "unless parallel.wrapping is \"by_size\""},
    {"parallel.reshard|parallel.gather_credits|parallel.prefetch_forward|"
     "parallel.prefetch_backward",
     keeps_weights, "unless parallel.strategy is \"full\" or \"hybrid\""},
    {"parallel.strategy|parallel.strategy_by_unit|parallel.sync|parallel.reshard|"
     "parallel.gather_credits|parallel.prefetch_forward|parallel.prefetch_backward",
     [](const RunConfig& c) { return c.parallel.ranks == 1; }, "with one rank"},
    {"parallel.gather_credits",
     [](const RunConfig& c) {
       return c.parallel.ranks > 1 && !keeps_weights(c) && c.parallel.reshard == "never";
     },
     "with parallel.reshard = \"never\", which keeps all gathered weights"},
    {"parallel.interface|parallel.port", one_process, "while all ranks are in one process"},
    {"train.ema_warmup", [](const RunConfig& c) { return c.train.ema == 0.0; },
     "without train.ema"},
    {"train.stop_after.metric", [](const RunConfig& c) { return c.train.stop_after.patience == 0; },
     "without train.stop_after.patience"},
});

}  // namespace

std::span<const IdleKeys> idle_key_table() { return kTable; }

std::vector<std::string> idle_key_notes(const RunConfig& config, const KeyPositions& places) {
  std::vector<std::string> notes;
  const RunConfig defaults;
  for (const IdleKeys& entry : kTable) {
    for (const std::string& key :
         entry.idle(config) ? split_choices(entry.keys) : std::vector<std::string>()) {
      const Field& field = *find_field(key);
      if (places.by_key.contains(key) && toml_value(field, config) != toml_value(field, defaults)) {
        notes.push_back(fmt::format("{}: {} has no effect {}", places.of(key), key, entry.without));
      }
    }
  }
  return notes;
}

}  // namespace train::configs
