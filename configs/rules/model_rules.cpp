#include <algorithm>
#include <array>

#include "base/text/one_line.hpp"
#include "configs/fields/field_table.hpp"
#include "configs/rules/rules.hpp"

namespace train::configs {
namespace {

// Keeps tokens of one lane addressable with 32-bit counts, and tokens of a step times the largest
// number of steps below 2^62.
constexpr std::int64_t kLargestLaneTokens = std::int64_t{1} << 31;
constexpr std::int64_t kLargestStepTokens = std::int64_t{1} << 32;
constexpr std::size_t kLongestName = 200;
// Keys of [model] that do not say what a config.json says.
constexpr std::array<std::string_view, 10> kNotOfArch = {
    "arch",    "config",           "from",      "init_scheme", "init_std", "z_loss_coeff",
    "balance", "router_bias_rate", "rope.type", "rope.factor"};

}  // namespace

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
  rules.refuse_if(config.data.order != "dstar" && config.data.seed != DataSection{}.seed,
                  "data.seed",
                  "belongs to data.order \"dstar\"; with \"{}\" run.seed decides the reading order",
                  config.data.order);
}

/// Checks that exactly one of three keys gives the model, and dimensions only with the first.
void check_model(const RunConfig& config, Rules& rules) {
  const ModelSection& model = config.model;
  const bool published = !model.config.empty() || !model.from.empty();
  rules.refuse_if(
      model.arch.empty() && !published, "model.arch",
      "is missing; add arch = ..., config = ... or from = ... under [model] (an "
      "architecture of this program, a published one's config.json, a model's directory)");
  rules.refuse_if(
      !model.config.empty() && !model.from.empty(), "model.config",
      "has no effect with model.from, which has its own config.json; remove one of them");
  const char* other = model.from.empty() ? "model.config" : "model.from";
  rules.refuse_if(published && !model.arch.empty(), "model.arch",
                  "has no effect with {}, whose config.json defines it; remove one of them", other);
  rules.refuse_if(!published && model.rope.type != "none", "model.rope.type",
                  "stretches the rope of a published model; with model.arch set model.rope_theta, "
                  "and leave model.rope out");
  rules.refuse_if(published && model.rope.type != "none" && model.rope.factor == 1.0,
                  "model.rope.factor", "is 1, which stretches nothing; give more, such as 4");
  rules.refuse_if(model.rope.type == "none" && model.rope.factor != 1.0, "model.rope.factor",
                  "needs model.rope.type: give \"yarn\" or \"linear\", or leave it out");
  const RunConfig none;
  for (const Field& field : all_fields()) {
    const bool of_arch =
        field.section == "model" && std::ranges::count(kNotOfArch, field.name) == 0;
    rules.refuse_if(
        of_arch && published && toml_value(field, config) != toml_value(field, none), field.key(),
        "belongs to model.arch; with {} the config.json defines it: leave it out", other);
  }
}

/// Checks that groups divide the experts, and that those kept have enough for a token.
void check_router_groups(const ModelSection& model, Rules& rules) {
  const std::int64_t groups = model.router_groups, kept = model.router_kept_groups;
  if (model.experts == 0 || groups == 1) {
    return;
  }
  const bool divides = model.experts % groups == 0 && model.experts / groups >= 2;
  rules.refuse_if(
      !divides, "model.router_groups",
      "is {}, but {} experts are not divided into as many groups of two or more; give a "
      "divisor of at most {}, or 1",
      groups, model.experts, model.experts / 2);
  rules.refuse_if(kept > groups, "model.router_kept_groups", "is {} of {} groups; give {} or less",
                  kept, groups, groups);
  const std::int64_t most = model.experts / groups * kept;
  rules.refuse_if(
      divides && kept <= groups && model.experts_per_token > most, "model.router_kept_groups",
      "is {}, groups of {} experts in all, but model.experts_per_token is {}; keep more "
      "groups",
      kept, most, model.experts_per_token);
}

void check_experts(const RunConfig& config, Rules& rules) {
  const ModelSection& model = config.model;
  rules.refuse_if(model.experts > 0 && model.experts_per_token > model.experts,
                  "model.experts_per_token", "is {}, but a layer has {} experts",
                  model.experts_per_token, model.experts);
  rules.refuse_if(model.experts > 0 && config.scaling.rule != "none", "model.experts",
                  "does not go with scaling.rule, whose rules are of models without experts; leave "
                  "one of them out");
  rules.refuse_if(!model.arch.empty() && model.experts == 0 && !model.balance.empty(),
                  "model.balance", "needs experts; give model.experts, or leave it out");
  check_router_groups(model, rules);
}

void check_sizes(const RunConfig& config, Rules& rules) {
  rules.refuse_if(config.model.head_dim % 2 != 0, "model.head_dim",
                  "must be even (rotary positions rotate pairs of channels), found {}",
                  config.model.head_dim);
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

void check_lora(const RunConfig& config, Rules& rules) {
  const LoraSection& lora = config.lora;
  rules.refuse_if(lora.dropout != 0.0, "lora.dropout",
                  "is {}, but dropout on adapters is not supported; set it to 0", lora.dropout);
  rules.refuse_if(
      lora.rank > 0 && lora.targets.empty(), "lora.targets",
      "is empty; give \"all-linear\" or patterns of the linear layers that get an adapter");
  const LoraSection none;
  const bool asked = lora.targets != none.targets || lora.alpha != none.alpha || lora.rslora;
  rules.refuse_if(lora.rank == 0 && asked, "lora.rank",
                  "is 0, so that no adapter is trained; give 1 or more, or leave [lora] out");
}

}  // namespace train::configs
