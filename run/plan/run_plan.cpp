#include "run/plan/run_plan.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/process/descriptor_limit.hpp"
#include "base/text/units.hpp"
#include "checkpoint/memory/memory_snapshots.hpp"
#include "data/lanes/choice_lanes.hpp"
#include "data/tokens/dataset_facts.hpp"
#include "engine/model/model_shape.hpp"
#include "engine/objective/registry.hpp"
#include "engine/rank/exec/rank_engine.hpp"
#include "engine/rank/exec/rank_memory.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "engine/rank/plan/run_device.hpp"
#include "engine/sharding/collective_schedule.hpp"
#include "run/model/model_files.hpp"

namespace train::run {
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

Result<RunPlan> plan_run(const configs::RunConfig& given) {
  const configs::RunConfig config = with_transport(given);
  const auto facts = TRAIN_TRY(data::read_dataset_facts(config.data.dir));
  const auto root = std::filesystem::path(given.run.dir) / given.run.name;
  auto options =
      TRAIN_TRY(engine_options(use_run_copy(config, root), facts.vocab_size.value_or(0)));
  const auto choices =
      TRAIN_TRY(data::open_choices(config, model_directory(root), options.model.vocab_size));
  options.scored_lanes = choices ? choices->lanes() : 0;
  const auto plan = TRAIN_TRY(engine::plan_of(options));
  TRAIN_RETURN_IF_ERROR(engine::check_freeze(options));
  // Checked before anything is started; a resumed run does not need it.
  std::error_code ignored;
  std::vector<std::string> notes;
  if (std::filesystem::exists(config.model.from, ignored)) {
    auto model = TRAIN_TRY(open_model(config.model.from, config.data.sequence_length));
    notes = std::move(model.notes);
  }
  auto data = TRAIN_TRY(data::open_lanes(config, options.model.vocab_size));
  if (choices) {
    data = std::make_shared<const data::ChoiceLanes>(data, choices);
  }
  auto fingerprint = TRAIN_TRY(data->fingerprint());
  options.step_weight = data::LaneSource::step_weight(data);
  options.lane_sequences = data->reference_rows().lane_sequences;
  options.reference_documents = data->reference_rows().documents;
  return RunPlan{.config = resolved(config, options.model),
                 .engine = std::move(options),
                 .data = std::move(data),
                 .plan_digest = plan.digest(),
                 .data_fingerprint = std::move(fingerprint),
                 .model_notes = std::move(notes)};
}

Result<RunPlan> plan_choices(const configs::RunConfig& given) {
  const configs::RunConfig config = with_transport(given);
  const auto root = std::filesystem::path(given.run.dir) / given.run.name;
  auto options = TRAIN_TRY(engine_options(use_run_copy(config, root), 0));
  const auto choices =
      TRAIN_TRY(data::open_choices(config, model_directory(root), options.model.vocab_size));
  TRAIN_CHECK(choices != nullptr, "no questions to answer");
  options.eval_lanes = 0;
  options.scored_lanes = choices->lanes();
  const auto plan = TRAIN_TRY(engine::plan_of(options));
  return RunPlan{.config = resolved(config, options.model),
                 .engine = std::move(options),
                 .data = std::make_shared<const data::ChoiceLanes>(nullptr, choices),
                 .plan_digest = plan.digest(),
                 .data_fingerprint = {}};
}

Result<RunPlan> plan_with(const RunPlan& now, std::int64_t nodes, std::int64_t ranks) {
  configs::RunConfig config = now.config;
  config.parallel.nodes = nodes;
  config.parallel.ranks = ranks;
  auto plan = TRAIN_TRY(plan_run(config));
  plan.separate_processes = now.separate_processes;
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

namespace {

std::int64_t passes_with_rows(const configs::RunConfig& config) {
  const auto passes = engine::make_objective(config.objective)->passes(0);
  return std::count_if(passes.begin(), passes.end(), [](const engine::Pass& pass) {
    return pass.source == engine::GradientSource::rows;
  });
}

}  // namespace

std::int64_t tokens_per_step(const configs::RunConfig& config) {
  return passes_with_rows(config) * config.batch.lanes * config.batch.micro_batch *
         config.data.sequence_length;
}

std::uint64_t checkpoint_bytes(const RunPlan& plan) {
  engine::RankOptions alone = engine::largest_phase(plan.engine);
  alone.parallel = {};
  alone.rank = 0;
  const engine::MemoryPlan memory = engine::plan_memory(alone);
  return memory.parameters_bytes + memory.optimizer_bytes;
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
  return tokens / (static_cast<double>(plan.data->training_rows()) *
                   static_cast<double>(config.data.sequence_length));
}

std::string describe_plan(const RunPlan& plan) {
  const configs::RunConfig& config = plan.config;
  const engine::ModelSpec& model = plan.engine.model;
  const engine::ParameterCount parameters = engine::count_parameters(model);
  const double flops = engine::flops_per_token(model, plan.engine.seq_len);
  const engine::MemoryPlan memory = engine::plan_memory(engine::largest_phase(plan.engine));
  const auto schedule = engine::schedule_of(plan.engine.objective);
  const std::int64_t step_tokens = tokens_per_step(config);
  const auto tokens = static_cast<double>(step_tokens) * static_cast<double>(config.run.steps);
  std::string text;
  const auto row = [&text](std::string_view what, const std::string& value) {
    text += fmt::format("{:<22} {}\n", what, value);
  };
  row("model", fmt::format("{}: {} layers, width {}, {}, vocabulary {}", model.architecture,
                           model.layers.size(), model.embedding_dim,
                           engine::block_sizes(model.layers.front()), model.vocab_size));
  row("parameters", fmt::format("{} ({} without embedding and head)", parameters.total,
                                parameters.non_embedding()));
  row("FLOPs per token", fmt::format("{} (forward and backward)", format_count(flops)));
  row("steps", fmt::format("{}", config.run.steps));
  const std::string passes = passes_with_rows(config) == 1 ? "" : "2 passes x ";
  row("tokens per step",
      fmt::format("{} ({}{} lanes x {} sequences x {})", step_tokens, passes, config.batch.lanes,
                  config.batch.micro_batch, config.data.sequence_length));
  row("tokens", fmt::format("{} ({:.2f} epochs of {})", format_count(tokens), epochs_of(plan),
                            config.data.dir));
  row("objective", config.objective.name);
  if (schedule != nullptr) {
    row("trained layers", describe_layers(*schedule, std::ssize(model.layers),
                                          engine::keeps_state_by_phase(plan.engine)));
  }
  row("data fingerprint", plan.data_fingerprint);
  row("FLOPs of the run", format_count(tokens * flops));
  for (const engine::MemoryKind& kind : engine::kMemoryKinds) {
    if (const std::size_t bytes = memory.*kind.bytes; bytes > 0) {
      row(fmt::format("memory: {}", kind.name), format_bytes(bytes));
    }
  }
  const std::size_t state = memory.parameters_bytes + memory.optimizer_bytes;
  row("memory: staging",
      fmt::format("{} (up to 2 snapshots, while saving)", format_bytes(2 * state)));
  row("memory: total", format_bytes(memory.total_bytes() + 2 * state));
  if (in_processes(config.parallel, plan.separate_processes)) {
    if (const Status enough = check_descriptors(config.parallel); !enough) {
      row("open files", enough.error().message);
    }
  }
  if (config.runtime.device != "cpu") {
    row("memory: of the device", format_bytes(memory.device_bytes()));
    row("memory: of the host", format_bytes(memory.offloaded_bytes + 2 * state));
  }
  row("checkpoint", fmt::format("{} each", format_bytes(checkpoint_bytes(plan))));
  row("ranks", fmt::format("{}, strategy {} (memory is that of one rank)", config.parallel.ranks,
                           config.parallel.strategy));
  row("threads", fmt::format("{}", resolve_threads(config.runtime.threads)));
  for (const std::string& note : plan.model_notes) {
    row("model.from", note);
  }
  return text;
}

std::string data_difference(const checkpoint::ManifestFields& saved,
                            const std::filesystem::path& checkpoint, const RunPlan& plan) {
  if (saved.data_fingerprint.empty() || saved.data_fingerprint == plan.data_fingerprint) {
    return {};
  }
  return fmt::format("{} was trained on other data ({}) than data.dir {} holds ({})",
                     checkpoint.string(), saved.data_fingerprint, plan.config.data.dir,
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
