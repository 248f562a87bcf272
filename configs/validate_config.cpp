#include "configs/validate_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/one_line.hpp"
#include "configs/fields/field_table.hpp"
#include "configs/fields/optimizer_table.hpp"
#include "configs/nearest.hpp"
#include "configs/objective_list.hpp"

namespace train::configs {
namespace {

// Tokens of one lane stay addressable with 32-bit counts; tokens of a step times the largest
// number of steps stay below 2^62.
constexpr std::int64_t kLargestLaneTokens = std::int64_t{1} << 31;
constexpr std::int64_t kLargestStepTokens = std::int64_t{1} << 32;
constexpr std::size_t kLongestName = 200;

/// A mistake of the user's at `key`: where it was set, its name, and `rule`, which begins with what
/// is wrong and ends with the fix.
Error broken(const KeyPositions& places, std::string_view key, const std::string& rule) {
  return user_error(fmt::format("{}: {} {}", places.of(key), key, rule));
}

template <class Number>
bool inside(const Limits& limits, Number value) {
  // Whole limits are exact in a double, and compared as integers they stay exact.
  const auto low = static_cast<Number>(limits.low);
  const auto high = static_cast<Number>(limits.high);
  return (limits.low_excluded ? value > low : value >= low) &&
         (limits.high_excluded ? value < high : value <= high);
}

Status check_text(const Field& field, const std::string& value, const KeyPositions& places) {
  const std::vector<std::string> choices = split_choices(field);
  // Stored run files have every key; whether this one may be empty is check_model()'s.
  const bool not_given = value.empty() && field.key() == "model.arch";
  if (!choices.empty() && !not_given &&
      std::find(choices.begin(), choices.end(), value) == choices.end()) {
    return broken(places, field.key(),
                  fmt::format("is \"{}\"; this version supports {}{}", value, allowed_values(field),
                              did_you_mean(value, choices)));
  }
  if (value.find('\0') != std::string::npos) {
    return broken(places, field.key(), "holds a zero byte");
  }
  return {};
}

Status check_text_or_integer(const Field& field, const std::string& value,
                             const KeyPositions& places) {
  const std::vector<std::string> choices = split_choices(field);
  const std::optional<std::int64_t> number = whole_number(value);
  if (number.has_value() ? inside(field.limits, *number)
                         : std::find(choices.begin(), choices.end(), value) != choices.end()) {
    return {};
  }
  return broken(places, field.key(),
                fmt::format("must be {}, found \"{}\"{}", allowed_values(field), value,
                            did_you_mean(value, choices)));
}

Status check_list(const Field& field, const std::vector<std::string>& values,
                  const KeyPositions& places) {
  for (const std::string& value : values) {
    if (value.empty() || value.find('\0') != std::string::npos) {
      return broken(places, field.key(),
                    value.empty() ? "holds an empty text; leave it out" : "holds a zero byte");
    }
  }
  return {};
}

/// Rules between keys. The first that is broken is kept.
class Rules {
 public:
  explicit Rules(const KeyPositions& places) : places_(places) {}

  template <class... Args>
  void refuse_if(bool is_broken, std::string_view key, fmt::format_string<Args...> text,
                 Args&&... args) {
    if (is_broken && !error_) {
      error_ = broken(places_, key, fmt::format(text, std::forward<Args>(args)...));
    }
  }
  [[nodiscard]] Status result() const { return error_ ? Status(*error_) : Status(); }

 private:
  const KeyPositions& places_;
  std::optional<Error> error_;
};

void check_names(const RunConfig& config, Rules& rules) {
  const std::string& name = config.run.name;
  rules.refuse_if(name.empty(), "run.name", "is empty; name the run");
  rules.refuse_if(name == "." || name == ".." || name.find('/') != std::string::npos, "run.name",
                  "is \"{}\"; it becomes one directory below run.dir, so no \"/\", \".\" or \"..\"",
                  name);
  rules.refuse_if(std::any_of(name.begin(), name.end(), is_control) || name.size() > kLongestName,
                  "run.name", "must be at most {} bytes of printable text", kLongestName);
  rules.refuse_if(config.run.dir.empty(), "run.dir", "is empty; \".\" is the current directory");
  rules.refuse_if(config.data.dir.empty(), "data.dir",
                  "is empty; name a directory that \"actortrain data prepare\" made");
  rules.refuse_if(
      config.data.order != "dstar" && config.data.seed != DataSection{}.seed, "data.seed",
      "belongs to data.order \"dstar\"; in the order \"{}\" it is run.seed that decides "
      "what is read when",
      config.data.order);
}

/// Whose model it is: one of three keys says it, and dimensions belong to the first of them.
void check_model(const RunConfig& config, Rules& rules) {
  const ModelSection& model = config.model;
  const bool published = !model.config.empty() || !model.from.empty();
  rules.refuse_if(
      model.arch.empty() && !published, "model.arch",
      "is missing; add arch = ..., config = ... or from = ... under [model] (an "
      "architecture of this program, a published one's config.json, a model's directory)");
  rules.refuse_if(
      !model.config.empty() && !model.from.empty(), "model.config",
      "is of no use beside model.from, which has a config.json of its own; leave one out");
  const char* other = model.from.empty() ? "model.config" : "model.from";
  rules.refuse_if(published && !model.arch.empty(), "model.arch",
                  "is of no use beside {}, whose config.json says it; leave one out", other);
  const ModelSection none;
  const auto belongs = [&](bool changed, std::string_view key) {
    rules.refuse_if(published && changed, key,
                    "belongs to model.arch; with {} the config.json says it: leave it out", other);
  };
  belongs(model.layers != none.layers, "model.layers");
  belongs(model.heads != none.heads, "model.heads");
  belongs(model.head_dim != none.head_dim, "model.head_dim");
  belongs(model.embedding_dim != none.embedding_dim, "model.embedding_dim");
  belongs(model.mlp_hidden != none.mlp_hidden, "model.mlp_hidden");
  belongs(model.vocab_size != none.vocab_size, "model.vocab_size");
  belongs(model.norm_eps != none.norm_eps, "model.norm_eps");
  belongs(model.rope_theta != none.rope_theta, "model.rope_theta");
  belongs(model.residual_scale != none.residual_scale, "model.residual_scale");
  belongs(model.qk_norm != none.qk_norm, "model.qk_norm");
  belongs(model.attention_output_gate != none.attention_output_gate, "model.attention_output_gate");
  belongs(model.tie_embeddings != none.tie_embeddings, "model.tie_embeddings");
}

void check_sizes(const RunConfig& config, Rules& rules) {
  rules.refuse_if(config.model.head_dim % 2 != 0, "model.head_dim",
                  "must be even (the rotation turns pairs), found {}", config.model.head_dim);
  const std::int64_t lane_tokens = config.batch.micro_batch * config.data.sequence_length;
  rules.refuse_if(lane_tokens >= kLargestLaneTokens, "batch.micro_batch",
                  "times data.sequence_length is {} tokens a lane; at most {} fit", lane_tokens,
                  kLargestLaneTokens - 1);
  for (const auto& [key, lanes] :
       {std::pair<std::string_view, std::int64_t>("batch.lanes", config.batch.lanes),
        {"eval.lanes", config.eval.lanes}}) {
    rules.refuse_if(lane_tokens * lanes > kLargestStepTokens, key,
                    "times batch.micro_batch times data.sequence_length is {} tokens; at most {} "
                    "are possible",
                    lane_tokens * lanes, kLargestStepTokens);
  }
}

/// [objective]: what goes with the loss of a pair, and what with none of answers.
void check_objective(const RunConfig& config, Rules& rules) {
  const ObjectiveSection& objective = config.objective;
  const bool two_streams = objective.name == "sequential_unlearning";
  const bool no_rows = two_streams && objective.forget_loss == "max_update";
  rules.refuse_if((!two_streams || no_rows) && !config.data.forget_dir.empty(), "data.forget_dir",
                  "is of no use to objective.name = \"{}\"{}; leave it out", objective.name,
                  no_rows ? " with forget_loss = \"max_update\"" : "");
  rules.refuse_if(
      (two_streams || compares_answers(objective.name)) && config.model.z_loss_coeff > 0.0,
      "model.z_loss_coeff", "is {}, but objective.name = \"{}\" has no z-loss; leave it out",
      config.model.z_loss_coeff, objective.name);
  const auto belongs = [&](bool given, const char* key, const char* loss) {
    rules.refuse_if(two_streams && given && objective.forget_loss != loss, key,
                    "belongs to objective.forget_loss = \"{}\"; leave it out", loss);
  };
  belongs(objective.beta != ObjectiveSection{}.beta, "objective.beta", "npo");
  belongs(objective.top_k != ObjectiveSection{}.top_k, "objective.top_k", "top_k_entropy");
  if (objective.name != "dpo") {
    return;
  }
  const std::string& loss = objective.loss;
  const bool smooths = loss == "sigmoid" || loss == "robust" || loss == "exo_pair";
  rules.refuse_if(objective.label_smoothing > 0.0 && !smooths, "objective.label_smoothing",
                  "is {}, but objective.loss = \"{}\" has none; leave it out, or use \"sigmoid\", "
                  "\"robust\" or \"exo_pair\"",
                  objective.label_smoothing, loss);
  rules.refuse_if(loss == "robust" && objective.label_smoothing >= 0.5, "objective.label_smoothing",
                  "is {}; objective.loss = \"robust\" needs less than 0.5",
                  objective.label_smoothing);
  rules.refuse_if(loss == "exo_pair" && objective.label_smoothing == 0.0,
                  "objective.label_smoothing",
                  "is 0, and objective.loss = \"exo_pair\" needs more; try 0.001");
  rules.refuse_if(loss != "discopop" && objective.discopop_tau != ObjectiveSection{}.discopop_tau,
                  "objective.discopop_tau",
                  "belongs to objective.loss = \"discopop\", not \"{}\"; leave it out", loss);
}

void check_schedule(const RunConfig& config, Rules& rules) {
  const ScheduleSection& schedule = config.schedule;
  const std::int64_t steps = config.run.steps;
  rules.refuse_if(schedule.constant_tail_steps > 0 && schedule.name != "cos_inf",
                  "schedule.constant_tail_steps",
                  "belongs to schedule \"cos_inf\", not \"{}\"; set it to 0", schedule.name);
  rules.refuse_if(schedule.warmup_steps + schedule.constant_tail_steps > steps,
                  "schedule.constant_tail_steps",
                  "({}) and schedule.warmup_steps ({}) exceed run.steps ({})",
                  schedule.constant_tail_steps, schedule.warmup_steps, steps);
  if (schedule.name != "wsd") {
    return;
  }
  const std::int64_t decay_steps = wsd_decay_steps(schedule, steps);
  rules.refuse_if(schedule.warmup_steps + decay_steps > steps, "schedule.decay_fraction",
                  "({}) of run.steps ({}) is {} steps, which exceed the run together with "
                  "schedule.warmup_steps ({})",
                  schedule.decay_fraction, steps, decay_steps, schedule.warmup_steps);
  rules.refuse_if(
      schedule.decay_shape == "exp" && schedule.decay_floor <= 0.0, "schedule.decay_floor",
      "must be above 0 where schedule.decay_shape is \"exp\": a power of it is what the "
      "learning rate is multiplied with");
}

void check_scaling(const RunConfig& config, Rules& rules) {
  const ScalingSection& scaling = config.scaling;
  rules.refuse_if(scaling.rule.empty(), "scaling.rule", "is empty; \"none\" uses no rule");
  rules.refuse_if(scaling.rule == "none" && (scaling.heads != 0 || !scaling.table.empty()),
                  scaling.heads != 0 ? "scaling.heads" : "scaling.table",
                  "is of no use while scaling.rule is \"none\"; name a rule");
}

void check_evaluation(const RunConfig& config, Rules& rules) {
  const EvalSection& eval = config.eval;
  rules.refuse_if(!eval.choices.empty() && choices_interval(eval) == 0, "eval.choices",
                  "is of no use while eval.interval_steps is 0, which never evaluates; set "
                  "eval.choices_interval_steps to answer them alone");
  rules.refuse_if(eval.choices.empty() && eval.choices_interval_steps > 0,
                  "eval.choices_interval_steps",
                  "is of no use without eval.choices; name files of questions");
}

void check_checkpoint(const RunConfig& config, Rules& rules) {
  const CheckpointSection& checkpoint = config.checkpoint;
  rules.refuse_if(checkpoint.local_dir.empty(), "checkpoint.local_dir",
                  "is empty; \"none\" writes checkpoints straight to the run's directory");
  const std::int64_t evaluated = config.eval.interval_steps;
  rules.refuse_if(
      checkpoint.keep_best > 0 && (evaluated == 0 || checkpoint.interval_steps % evaluated != 0),
      "checkpoint.keep_best",
      "is {}, which needs every checkpoint evaluated: eval.interval_steps ({}) must divide "
      "checkpoint.interval_steps ({})",
      checkpoint.keep_best, evaluated, checkpoint.interval_steps);
  rules.refuse_if(config.recovery.snapshot_interval_steps == 1, "recovery.snapshot_interval_steps",
                  "is 1: a snapshot would begin while other ranks still make the one before; use 2 "
                  "or more, or 0 for none");
}

void check_made_weights(const RunConfig& config, Rules& rules) {
  const std::string_view key = "memory.bf16_weights";
  rules.refuse_if(
      config.runtime.device == "cpu" || config.precision.compute != "bf16", key,
      "is \"made\", but layers read fp32 weights; leave it out, or set runtime.device to "
      "\"cuda\" and precision.compute to \"bf16\"");
  rules.refuse_if(config.memory.offload == "parameters", key,
                  "is \"made\", but memory.offload = \"parameters\" leaves the fp32 weights to the "
                  "host; set that to \"optimizer\", or leave this out");
  const std::string& strategy = config.parallel.strategy;
  rules.refuse_if(
      config.parallel.ranks > 1 && (strategy == "optimizer" || strategy == "gradient"), key,
      "is \"made\", but with parallel.strategy = \"{}\" no rank has all of a layer's fp32 weights; "
      "leave it out, or set the strategy to \"full\"",
      strategy);
}

/// Whether what [memory] asks for can be had of this device, precision and strategy.
void check_lora(const LoraSection& lora, Rules& rules) {
  rules.refuse_if(lora.dropout != 0.0, "lora.dropout",
                  "is {}, but adapters have no dropout here; set it to 0", lora.dropout);
  rules.refuse_if(lora.rank > 0 && lora.targets.empty(), "lora.targets",
                  "is empty; give \"all-linear\" or patterns of the maps that get an adapter");
  const LoraSection none;
  const bool asked = lora.targets != none.targets || lora.alpha != none.alpha || lora.rslora;
  rules.refuse_if(lora.rank == 0 && asked, "lora.rank",
                  "is 0, so that no adapter is trained; give 1 or more, or leave [lora] out");
}

void check_memory(const RunConfig& config, Rules& rules) {
  const MemorySection& memory = config.memory;
  const ParallelSection& parallel = config.parallel;
  rules.refuse_if(
      config.runtime.device != "cuda" && parallel.transport == "nccl", "parallel.transport",
      "is \"nccl\", which moves memory of CUDA devices, but runtime.device is \"{}\"; use "
      "\"gloo\", or set runtime.device to \"cuda\"",
      config.runtime.device);
  rules.refuse_if(
      memory.checkpointed_part != "block" && memory.activation_checkpointing == "none",
      "memory.checkpointed_part",
      "is \"{}\", but no block is checkpointed; set memory.activation_checkpointing to \"all\", or "
      "leave this out",
      memory.checkpointed_part);
  if (memory.bf16_weights == "made") {
    check_made_weights(config, rules);
  }
  rules.refuse_if(memory.offload != "none" && config.runtime.device == "cpu", "memory.offload",
                  "is \"{}\", but on the CPU all memory is the host's; leave it out, or set "
                  "runtime.device to \"cuda\"",
                  memory.offload);
  if (memory.offload != "parameters") {
    return;
  }
  const bool by_nccl = parallel.transport == "nccl" || parallel.transport == "auto";
  rules.refuse_if(parallel.ranks > 1 && by_nccl, "memory.offload",
                  "is \"parameters\", but NCCL takes what it sends from the device's memory alone; "
                  "set this to \"optimizer\", or parallel.transport to \"gloo\" or \"inproc\"");
  const std::string& strategy = parallel.strategy;
  rules.refuse_if(strategy != "full" && strategy != "hybrid" && config.precision.compute == "fp32",
                  "memory.offload",
                  "is \"parameters\", but with parallel.strategy = \"{}\" and fp32 compute the "
                  "only weights are "
                  "those that layers read; set precision.compute to \"bf16\", the strategy to "
                  "\"full\", or this "
                  "to \"optimizer\"",
                  strategy);
}

/// Texts "pattern = strategy", and the groups of "hybrid".
void check_strategies(const RunConfig& config, Rules& rules) {
  const ParallelSection& parallel = config.parallel;
  const std::string key = "parallel.strategy_by_unit";
  const std::vector<std::string> known = split_choices(*find_field("parallel.strategy"));
  bool hybrid = parallel.strategy == "hybrid";
  for (const std::string& text : parallel.strategy_by_unit) {
    const std::optional<UnitStrategy> parsed = parse_unit_strategy(text);
    const std::string strategy = parsed ? parsed->strategy : std::string();
    rules.refuse_if(!parsed, key,
                    "holds \"{}\"; write \"pattern = strategy\", for example \"block * = full\"",
                    text);
    rules.refuse_if(std::find(known.begin(), known.end(), strategy) == known.end(), key,
                    "names the strategy \"{}\"; there are \"{}\"{}", strategy,
                    fmt::join(known, "\", \""), did_you_mean(strategy, known));
    hybrid = hybrid || strategy == "hybrid";
  }
  rules.refuse_if(!hybrid && parallel.group != 0, "parallel.group",
                  "is {}, but only the strategy \"hybrid\" has groups; set it to 0",
                  parallel.group);
  rules.refuse_if(hybrid && (parallel.group == 0 || parallel.ranks % parallel.group != 0),
                  "parallel.group",
                  "must be a divisor of parallel.ranks ({}) with the strategy \"hybrid\", found {}",
                  parallel.ranks, parallel.group);
}

void check_parallel(const RunConfig& config, Rules& rules) {
  const ParallelSection& parallel = config.parallel;
  rules.refuse_if(
      parallel.ranks > config.batch.lanes, "parallel.ranks",
      "is {}, but a step has {} lanes and each rank needs one; raise batch.lanes or use "
      "fewer ranks",
      parallel.ranks, config.batch.lanes);
  check_strategies(config, rules);
  const std::vector<std::string>& wrapping = parallel.wrapping;
  rules.refuse_if(wrapping.empty(), "parallel.wrapping",
                  "is empty; give \"per_block\", \"by_size\" or patterns of unit names");
  const bool rule = std::any_of(wrapping.begin(), wrapping.end(), [](const std::string& text) {
    return text == "per_block" || text == "by_size";
  });
  rules.refuse_if(rule && wrapping.size() > 1, "parallel.wrapping",
                  "is \"per_block\" or \"by_size\" alone, or patterns of unit names");
  rules.refuse_if(parallel.ranks % parallel.nodes != 0, "parallel.nodes",
                  "must be a divisor of parallel.ranks ({}), found {}", parallel.ranks,
                  parallel.nodes);
  rules.refuse_if(parallel.nodes > 1 && parallel.transport == "inproc", "parallel.nodes",
                  "is {}, but with parallel.transport \"inproc\" all ranks are in one process; use "
                  "\"gloo\" or \"nccl\"",
                  parallel.nodes);
  rules.refuse_if(parallel.nodes > 1 && parallel.interface.empty(), "parallel.interface",
                  "is empty, but parallel.nodes is {}: name the private network that joins the "
                  "nodes (\"lo\" to try it on one machine)",
                  parallel.nodes);
}

}  // namespace

std::optional<UnitStrategy> parse_unit_strategy(std::string_view rule) {
  const auto trimmed = [](std::string_view text) {
    const std::size_t first = text.find_first_not_of(" \t");
    const std::size_t last = text.find_last_not_of(" \t");
    return first == std::string_view::npos ? std::string()
                                           : std::string(text.substr(first, last - first + 1));
  };
  const std::size_t equals = rule.rfind('=');
  if (equals == std::string_view::npos) {
    return std::nullopt;
  }
  UnitStrategy parsed{trimmed(rule.substr(0, equals)), trimmed(rule.substr(equals + 1))};
  const bool whole = !parsed.pattern.empty() && !parsed.strategy.empty();
  return whole ? std::optional(std::move(parsed)) : std::nullopt;
}

const std::string& KeyPositions::of(std::string_view key) const {
  const auto found = by_key.find(key);
  return found == by_key.end() ? file : found->second;
}

Status check_value(const Field& field, const RunConfig& config, const KeyPositions& places) {
  RunConfig copy = config;
  return std::visit(
      [&](const auto* value) -> Status {
        using Value = std::remove_cv_t<std::remove_pointer_t<decltype(value)>>;
        if constexpr (std::is_same_v<Value, std::string>) {
          return field.or_integer ? check_text_or_integer(field, *value, places)
                                  : check_text(field, *value, places);
        } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
          return check_list(field, *value, places);
        } else if constexpr (!std::is_same_v<Value, bool>) {
          if (!inside(field.limits, *value)) {  // nor is a NaN
            return broken(places, field.key(),
                          fmt::format("must be {}, found {}", allowed_values(field), *value));
          }
        }
        return {};
      },
      field.locate(copy));
}

Status validate_config(const RunConfig& config, const KeyPositions& places) {
  for (const Field& field : all_fields()) {
    TRAIN_RETURN_IF_ERROR(check_value(field, config, places));
  }
  Rules before(places);
  check_names(config, before);
  check_model(config, before);
  check_sizes(config, before);
  TRAIN_RETURN_IF_ERROR(before.result());
  TRAIN_RETURN_IF_ERROR(check_optimizer(config, places));
  Rules after(places);
  for (const auto check : {check_objective, check_schedule, check_scaling, check_evaluation,
                           check_checkpoint, check_memory, check_parallel}) {
    check(config, after);
  }
  check_lora(config.lora, after);
  return after.result();
}

}  // namespace train::configs
