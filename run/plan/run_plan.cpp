#include "run/plan/run_plan.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/process/descriptor_limit.hpp"
#include "checkpoint/memory/memory_snapshots.hpp"
#include "data/lanes/choice_lanes.hpp"
#include "data/lanes/open_lanes.hpp"
#include "data/tokens/dataset_facts.hpp"
#include "engine/model/model_shape.hpp"
#include "engine/objective/registry.hpp"
#include "engine/rank/exec/rank_memory.hpp"
#include "engine/rank/plan/run_device.hpp"
#include "engine/rank/state/state_rows.hpp"
#include "engine/sharding/collective_schedule.hpp"
#include "run/directory/run_directory.hpp"
#include "run/model/model_files.hpp"

namespace train::run {
namespace {

engine::InitScheme init_scheme(const std::string& name) {
  if (name == "karpathy_gpt2") {
    return engine::InitScheme::karpathy_gpt2;
  }
  return name == "standard" ? engine::InitScheme::standard : engine::InitScheme::scaled_gpt;
}

/// Fills in each dimension of `model` that the run file omits.
configs::RunConfig resolved(configs::RunConfig config, const engine::ModelSpec& model) {
  if (is_published(config.model)) {
    return config;
  }
  const engine::ModelShape shape = engine::shape_of(model);
  config.model.layers = shape.layers;
  config.model.heads = shape.heads;
  config.model.head_dim = shape.head_dim;
  config.model.embedding_dim = shape.embedding_dim;
  config.model.mlp_hidden = shape.mlp_hidden;
  config.model.vocab_size = shape.vocab_size;
  return config;
}

/// Resolves parallel.transport if it is "auto" or has its old name.
configs::RunConfig with_transport(configs::RunConfig config) {
  configs::ParallelSection& parallel = config.parallel;
  if (parallel.transport == "auto") {
    const bool devices = config.runtime.device != "cpu" && parallel.ranks > 1;
    parallel.transport = devices ? "nccl" : "tcp";
  } else if (parallel.transport == "gloo") {
    parallel.transport = "tcp";
  }
  return config;
}

}  // namespace

int resolve_threads(std::int64_t requested) {
  if (requested > 0) {
    return static_cast<int>(requested);
  }
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
    return 1;
  }
  return std::max(1, CPU_COUNT(&allowed));
}

int threads_per_rank(std::int64_t requested, std::int64_t neighbours) {
  if (requested > 0) {
    return resolve_threads(requested);
  }
  return std::max(1, resolve_threads(0) / static_cast<int>(neighbours));
}

Result<engine::RankOptions> engine_options(const configs::RunConfig& config,
                                           std::int64_t dataset_vocab) {
  const auto model = TRAIN_TRY(resolve_model(config, dataset_vocab));
  engine::RankOptions options{.model = model,
                              .init = {.seed = config.run.seed,
                                       .scheme = init_scheme(config.model.init_scheme),
                                       .init_std = config.model.init_std,
                                       .source = {}},
                              .batch = config.batch,
                              .objective = config.objective,
                              .optimizer = config.optimizer,
                              .schedule = config.schedule,
                              .parallel = config.parallel,
                              .precision = config.precision,
                              .memory = config.memory,
                              .train = config.train,
                              .lora = config.lora,
                              .seq_len = config.data.sequence_length,
                              .total_steps = config.run.steps,
                              .eval_lanes = config.eval.interval_steps > 0 ? config.eval.lanes : 0,
                              .diagnostics_interval = config.run.log_interval_steps,
                              .knows_bf16 = engine::knows_bf16(config.runtime.device)};
  options.objective =
      engine::with_layers(options.objective, static_cast<std::int64_t>(model.layers.size()));
  options.model = engine::trained_model(options);
  return options;
}

namespace {

/// Plans all but the data. `vocab`: the data's vocabulary; 0: not known.
Result<RunPlan> plan_model(const configs::RunConfig& given, std::int64_t vocab, bool evaluates) {
  const configs::RunConfig config = with_transport(given);
  const auto root = run_root(given);
  auto options = TRAIN_TRY(engine_options(use_run_copy(config, root), vocab));
  const auto choices =
      TRAIN_TRY(data::open_choices(config, model_directory(root), options.model.vocab_size));
  options.scored_lanes = choices ? choices->lanes() : 0;
  options.eval_lanes = evaluates ? options.eval_lanes : 0;
  options.sampled_texts = evaluates ? samples_of(config.run) : 0;
  options.sampling = {.temperature = config.run.sample_temperature, .seed = config.run.sample_seed};
  const auto plan = TRAIN_TRY(engine::plan_of(options));
  TRAIN_RETURN_IF_ERROR(engine::check_freeze(options));
  configs::RunConfig whole = resolved(config, options.model);
  RunPlan run{.config = std::move(whole),
              .engine = std::move(options),
              .data = {},
              .plan_digest = plan.digest(),
              .data_fingerprint = {}};
  if (choices) {
    run.data = std::make_shared<const data::ChoiceLanes>(nullptr, choices);
  }
  return run;
}

}  // namespace

Result<RunPlan> plan_run(const configs::RunConfig& config) {
  const auto facts = TRAIN_TRY(data::read_dataset_facts(config.data.dir));
  auto plan = TRAIN_TRY(plan_model(config, facts.vocab_size.value_or(0), /*evaluates=*/true));
  // Checked before anything is started; a resumed run does not need it.
  std::error_code ignored;
  if (std::filesystem::exists(config.model.from, ignored)) {
    auto model =
        TRAIN_TRY(open_model(config.model.from, config.data.sequence_length, config.model.rope));
    plan.model_notes = std::move(model.notes);
  }
  auto data = TRAIN_TRY(data::open_lanes(config, plan.engine.model.vocab_size));
  if (plan.data != nullptr) {
    const std::shared_ptr<const data::ChoiceSet> choices(plan.data, plan.data->facts().choices);
    data = std::make_shared<const data::ChoiceLanes>(data, choices);
  }
  plan.data_fingerprint = TRAIN_TRY(data->fingerprint());
  plan.engine.step_weight = data::LaneSource::step_weight(data);
  plan.engine.sources = std::ssize(data->facts().sources);
  plan.engine.lane_sequences = data->facts().reference.lane_sequences;
  plan.engine.reference_documents = data->facts().reference.documents;
  plan.data = std::move(data);
  return plan;
}

Status open_samples(RunPlan& plan) {
  if (plan.engine.sampled_texts > 0) {
    auto samples = TRAIN_TRY(
        SampleSet::open(plan.config, run_root(plan.config), plan.engine.model.vocab_size));
    plan.samples = std::make_shared<const SampleSet>(std::move(samples));
  }
  return {};
}

Result<RunPlan> plan_choices(const configs::RunConfig& config) {
  auto plan = plan_model(config, 0, /*evaluates=*/false);
  TRAIN_CHECK(!plan || plan->data != nullptr, "no questions to answer");
  return plan;
}

Result<RunPlan> plan_without_data(configs::RunConfig config, std::int64_t vocab) {
  config.eval.choices.clear();  // Answered with the data's tokenizer.
  return plan_model(config, vocab, /*evaluates=*/true);
}

Result<RunPlan> plan_with(const RunPlan& now, std::int64_t nodes, std::int64_t ranks) {
  configs::RunConfig config = now.config;
  config.parallel.nodes = nodes;
  config.parallel.ranks = ranks;
  auto plan = TRAIN_TRY(plan_run(config));
  plan.separate_processes = now.separate_processes;
  plan.samples = now.samples;
  if (now.engine.phase_step >= 0) {
    TRAIN_RETURN_IF_ERROR(enter_phase(plan, now.engine.phase_step));
  }
  return plan;
}

Result<RunPlan> largest_plan(const RunPlan& now, std::int64_t nodes, std::int64_t each) {
  Result<RunPlan> plan = failure("no node is left");
  for (; !plan && nodes > 0 && each > 0; --each) {
    plan = plan_with(now, nodes, each * nodes);
  }
  return plan;
}

Status enter_phase(RunPlan& plan, std::int64_t step) {
  if (!engine::keeps_state_by_phase(plan.engine)) {
    return {};
  }
  plan.engine.phase_step = step;
  plan.engine.model = engine::trained_model(plan.engine);
  const auto sharded = TRAIN_TRY(engine::plan_of(plan.engine));
  plan.plan_digest = sharded.digest();
  return {};
}

std::int64_t passes_with_rows(const configs::RunConfig& config) {
  const auto passes = engine::make_objective(config.objective)->passes(0);
  return std::count_if(passes.begin(), passes.end(), [](const engine::Pass& pass) {
    return pass.source == engine::GradientSource::rows;
  });
}

std::int64_t tokens_per_step(const configs::RunConfig& config) {
  return passes_with_rows(config) * config.batch.lanes * config.batch.micro_batch *
         config.data.sequence_length;
}

std::uint64_t checkpoint_bytes(const RunPlan& plan) {
  engine::RankOptions alone = engine::largest_phase(plan.engine);
  alone.parallel = {};
  alone.rank = 0;
  return engine::shard_bytes(engine::plan_of(alone).value(), *engine::optimizer_of(alone), 0);
}

Status check_descriptors(const configs::ParallelSection& parallel) {
  constexpr std::int64_t kOthers = 128;  // Files, libraries, the index, copies.
  // A rank connects to every other rank on every channel; the head has three for each local rank.
  const auto channels = static_cast<std::int64_t>(engine::kChannelCount);
  const std::int64_t wanted = channels * parallel.ranks + kOthers;
  const std::int64_t allowed = raise_descriptor_limit();
  return wanted <= allowed
             ? Status()
             : user_error(fmt::format(
                   "parallel.ranks: {} ranks need {} open files in each process, and this machine "
                   "allows {} (ulimit -Hn): raise that limit or use fewer ranks",
                   parallel.ranks, wanted, allowed));
}

double epochs_of(const RunPlan& plan) {
  const configs::RunConfig& config = plan.config;
  const auto tokens =
      static_cast<double>(tokens_per_step(config)) * static_cast<double>(config.run.steps);
  return tokens / (static_cast<double>(plan.data->facts().training_rows) *
                   static_cast<double>(config.data.sequence_length));
}

std::string data_difference(const checkpoint::ManifestFields& saved,
                            const std::filesystem::path& checkpoint, const RunPlan& plan) {
  if (saved.data_fingerprint.empty() || saved.data_fingerprint == plan.data_fingerprint) {
    return {};
  }
  const bool mixed = !plan.config.data.sources.empty();
  return fmt::format("{} was trained on other data ({}) than {} ({})", checkpoint.string(),
                     saved.data_fingerprint,
                     mixed ? std::string("data.sources name")
                           : fmt::format("data.dir {} holds", plan.config.data.dir),
                     plan.data_fingerprint);
}

Result<std::string> data_difference(const std::filesystem::path& checkpoint, const RunPlan& plan) {
  const auto manifest = TRAIN_TRY(checkpoint::read_manifest(checkpoint));
  return data_difference(manifest.fields, checkpoint, plan);
}

bool in_processes(const configs::ParallelSection& parallel, bool separate_processes) {
  return (parallel.ranks > 1 || separate_processes) && parallel.transport != "inproc";
}

bool can_respawn(const configs::RunConfig& config, bool separate_processes) {
  return config.recovery.rank_loss == "respawn" &&
         in_processes(config.parallel, separate_processes);
}

bool keeps_in_memory(const RunPlan& plan) {
  return plan.config.recovery.snapshot_interval_steps > 0 && can_respawn(plan);
}

bool has_buddies(const RunPlan& plan) {
  return keeps_in_memory(plan) && plan.config.parallel.nodes > 1 &&
         plan.config.recovery.buddy_snapshots;
}

std::int64_t memory_slots(const RunPlan& plan) {
  const std::int64_t positions = has_buddies(plan) ? 2 : 1;
  return keeps_in_memory(plan) ? positions * checkpoint::MemorySnapshots::kSlots : 0;
}

}  // namespace train::run
