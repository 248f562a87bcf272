#include "cli/report/dry_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/units.hpp"
#include "cli/report/shard_report.hpp"
#include "configs/source_weights.hpp"
#include "engine/model/model_shape.hpp"
#include "engine/objective/registry.hpp"
#include "run/report/machine_rates.hpp"

namespace train::cli {
using namespace run;
namespace {

std::string describe_layers(const engine::TrainingSchedule& schedule, std::int64_t layers,
                            bool by_phase) {
  std::vector<std::int64_t> trained;
  for (std::int64_t layer = layers; layer-- > 0;) {
    if (schedule.ever_trains(layer)) {
      trained.push_back(layer);
    }
  }
  return fmt::format("{}, one after the other; gradients, masters and moments of {}",
                     fmt::join(trained, ", "),
                     by_phase ? "one at a time (memory is that of the largest)"
                              : "all of them are kept, of the rest none");
}

std::string describe_rate(const RunPlan& plan, const std::optional<std::string>& work) {
  if (!work) {
    return "the peak of products on this machine, where no run was measured";
  }
  if (*work == work_of(plan)) {
    return "which the newest run of this model on this machine reached";
  }
  return fmt::format(
      "an estimate: no run of this model was measured on this machine, and {} "
      "reached that",
      work->empty() ? "another" : fmt::format("one of another ({})", *work));
}

std::string describe_time(const RunPlan& plan, double flops, double flops_per_second,
                          const std::optional<std::string>& work) {
  if (flops_per_second <= 0.0) {
    return "not known: no rate of this machine has been measured";
  }
  return fmt::format("{}{} at {}FLOP/s, {}; without evaluations and answers",
                     work ? "" : "at least ", format_duration(flops / flops_per_second),
                     format_count(flops_per_second), describe_rate(plan, work));
}

/// Rows of a mixture: of each stage the shares, and of each source how often the run reads it.
std::vector<std::pair<std::string, std::string>> describe_sources(const RunPlan& plan) {
  std::vector<std::pair<std::string, std::string>> lines;
  if (plan.config.data.sources.empty()) {
    return lines;
  }
  const configs::SourcePlan sources = configs::plan_sources(plan.config.data.sources);
  const std::int64_t steps = plan.config.run.steps;
  for (std::size_t i = 0; i < sources.stages.size(); ++i) {
    const configs::SourceStage& stage = sources.stages[i];
    const std::int64_t end =
        i + 1 < sources.stages.size() ? sources.stages[i + 1].from_step : steps;
    const auto sum = std::accumulate(stage.weights.begin(), stage.weights.end(), std::uint64_t{0});
    std::vector<std::string> shares;
    for (std::size_t each = 0; each < stage.sources.size(); ++each) {
      shares.push_back(
          fmt::format("{} {:.2f} %", sources.names[stage.sources[each]],
                      100.0 * static_cast<double>(stage.weights[each]) / static_cast<double>(sum)));
    }
    lines.emplace_back(fmt::format("mixture from {}", stage.from_step),
                       stage.from_step >= steps
                           ? fmt::format("never: the run has {} steps", steps)
                           : fmt::format("steps {} to {}: {}", stage.from_step + 1,
                                         std::min(end, steps), fmt::join(shares, ", ")));
  }
  for (std::size_t source = 0; source < sources.names.size(); ++source) {
    const data::SourceFacts& facts = plan.data->facts().sources.at(source);
    const std::uint64_t rows = facts.rows;
    const std::uint64_t read = facts.rows_read(steps);
    lines.emplace_back("source",
                       fmt::format("{}: {} rows, read {:.2f} times", sources.names[source], rows,
                                   static_cast<double>(read) / static_cast<double>(rows)));
  }
  return lines;
}

}  // namespace

std::string dry_run_report(const RunPlan& plan, double flops_per_second,
                           const std::optional<std::string>& work) {
  const configs::RunConfig& config = plan.config;
  const engine::ModelSpec& model = plan.engine.model;
  const engine::ParameterCount parameters = engine::count_parameters(model);
  const double flops = engine::flops_per_token(model, plan.engine.seq_len);
  const auto schedule = engine::schedule_of(plan.engine.objective);
  const std::int64_t step_tokens = tokens_per_step(config);
  const auto tokens = static_cast<double>(step_tokens) * static_cast<double>(config.run.steps);
  std::string text;
  const auto row = [&text](std::string_view what, const std::string& value) {
    text += fmt::format("{:<17} {}\n", what, value);
  };
  row("model", fmt::format("{}: {} layers, width {}, {}, vocabulary {}", model.architecture,
                           model.layers.size(), model.embedding_dim,
                           engine::block_sizes(model.layers.front()), model.vocab_size));
  row("parameters", fmt::format("{} ({} without embedding and head)", parameters.total,
                                parameters.non_embedding()));
  row("steps", fmt::format("{}", config.run.steps));
  const std::string passes = passes_with_rows(config) == 1 ? "" : "2 passes x ";
  row("tokens per step",
      fmt::format("{} ({}{} lanes x {} sequences x {})", step_tokens, passes, config.batch.lanes,
                  config.batch.micro_batch, config.data.sequence_length));
  row("tokens", fmt::format("{} ({:.2f} epochs of {})", format_count(tokens), epochs_of(plan),
                            config.data.sources.empty() ? config.data.dir : "all sources"));
  for (const auto& [what, value] : describe_sources(plan)) {
    row(what, value);
  }
  row("computation", fmt::format("{}FLOP, {}FLOP per token, forward and backward",
                                 format_count(tokens * flops), format_count(flops)));
  row("time", describe_time(plan, tokens * flops, flops_per_second, work));
  row("objective", config.objective.name);
  if (schedule != nullptr) {
    row("trained layers", describe_layers(*schedule, std::ssize(model.layers),
                                          engine::keeps_state_by_phase(plan.engine)));
  }
  row("data fingerprint", plan.data_fingerprint);
  if (in_processes(config.parallel, plan.separate_processes)) {
    if (const Status enough = check_descriptors(config.parallel); !enough) {
      row("open files", enough.error().message);
    }
  }
  row("ranks", fmt::format("{}, strategy {}", config.parallel.ranks, config.parallel.strategy));
  row("threads", fmt::format("{}", resolve_threads(config.runtime.threads)));
  for (const std::string& note : plan.model_notes) {
    row("model.from", note);
  }
  return text + '\n' + needs_report(plan);
}

}  // namespace train::cli
