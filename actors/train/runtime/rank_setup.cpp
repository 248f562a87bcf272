#include "actors/train/runtime/rank_setup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <caf/all.hpp>
#include <chrono>
#include <utility>

#include "actors/system/float_mode_hook.hpp"
#include "actors/system/run_queue.hpp"
#include "base/process/host_name.hpp"
#include "base/text/log.hpp"
#include "checkpoint/format/reference_file.hpp"
#include "engine/rank/exec/rank_engine.hpp"
#include "engine/rank/plan/run_device.hpp"
#include "run/directory/run_directory.hpp"
#include "run/model/model_files.hpp"
#include "run/plan/node_position.hpp"
#include "run/plan/reference_key.hpp"
#include "run/store/checkpoint_store.hpp"

namespace train::actors {

namespace {

namespace fs = std::filesystem;

bool goes_on(const StartState& start) {
  return start.memory ? start.memory->origin.step > 0 : start.checkpoint.has_value();
}

/// Stores the results of a reference sweep, spending about a twentieth of the time on it, and all
/// of them at the end. Used by one rank.
class ReferenceKeeper {
 public:
  ReferenceKeeper(fs::path run, checkpoint::ReferenceKey key, std::int64_t commands,
                  std::optional<std::uint64_t> digest_before)
      : run_(std::move(run)),
        key_(std::move(key)),
        commands_(commands),
        digest_before_(digest_before) {}

  Status operator()(const engine::ReferenceLogProbs& reference, std::int64_t done) {
    const auto begin = Clock::now();
    if (done < commands_ && begin < next_) {
      return {};
    }
    if (digest_before_ && *digest_before_ != reference.weights_digest()) {
      return user_error(
          fmt::format("{}: was computed from other weights than the run's first ones; remove it to "
                      "compute the reference again",
                      checkpoint::partial_reference_path(run_).string()));
    }
    checkpoint::ReferenceFile file{
        .key = key_,
        .weights_digest = reference.weights_digest(),
        .values = {reference.values().begin(), reference.values().end()}};
    if (done == commands_) {
      TRAIN_RETURN_IF_ERROR(checkpoint::write_reference(checkpoint::reference_path(run_), file));
      std::error_code none;  // The file may never have been written.
      fs::remove(checkpoint::partial_reference_path(run_), none);
      return {};
    }
    file.commands = done;
    TRAIN_RETURN_IF_ERROR(
        checkpoint::write_reference(checkpoint::partial_reference_path(run_), file));
    constexpr int kShare = 20;
    next_ = Clock::now() + kShare * (Clock::now() - begin);
    return {};
  }

 private:
  using Clock = std::chrono::steady_clock;

  fs::path run_;
  checkpoint::ReferenceKey key_;
  std::int64_t commands_;
  std::optional<std::uint64_t> digest_before_;
  Clock::time_point next_ = {};
};

/// Restores the stored reference of a resumed run.
Status restore_reference(const run::RunPlan& plan, const checkpoint::ReferenceKey& key,
                         RankRuntime& runtime) {
  const auto path = checkpoint::reference_path(run::run_root(plan.config));
  const auto file = TRAIN_TRY(checkpoint::read_reference(path, key));
  if (plan.data->facts().reference.live) {
    return {};
  }
  engine::ReferenceLogProbs& reference = runtime.engine->reference();
  if (file.values.size() != reference.values().size()) {
    return user_error(
        fmt::format("{}: has {} documents, but the data has {}; start again with --fresh",
                    path.string(), file.values.size(), reference.values().size()));
  }
  reference.restore(file.values);
  return {};
}

/// Takes over the results of a killed sweep: at least `done` of its commands.
Status take_over_sweep(const run::RunPlan& plan, const checkpoint::ReferenceKey& key,
                       std::int64_t done, RankRuntime& runtime,
                       std::optional<std::uint64_t>& digest) {
  const auto path = checkpoint::partial_reference_path(run::run_root(plan.config));
  const auto file = checkpoint::read_partial_reference(path, key);
  engine::ReferenceLogProbs& reference = runtime.engine->reference();
  if (!file || file->commands < done || file->values.size() != reference.values().size()) {
    return failure(
        fmt::format("{}: has changed, or this node sees another one than the head's; "
                    "put run.dir where every node reads it",
                    path.string()));
  }
  reference.restore(file->values);
  runtime.references_done = done;
  digest = file->weights_digest;
  return {};
}

/// Sets up the reference: a resumed run reads the stored results, a new run stores its own, on one
/// rank. For a live reference only its key is stored, without values.
Status set_up_reference(const run::RunPlan& plan, const StartState& start, RankRuntime& runtime) {
  const data::ReferenceRows rows = plan.data->facts().reference;
  if (rows.commands == 0) {
    return {};
  }
  const bool keeps = runtime.rank == 0;  // Other ranks neither read nor compare the weights.
  const auto key = TRAIN_TRY(run::reference_key(plan, keeps));
  if (goes_on(start) || start.reads_reference) {
    return restore_reference(plan, key, runtime);
  }
  const fs::path run = run::run_root(plan.config);
  if (rows.live) {
    return keeps ? checkpoint::write_reference(checkpoint::reference_path(run),
                                               {.key = key, .values = {}})
                 : Status();
  }
  std::optional<std::uint64_t> digest;
  if (start.references_done > 0) {
    TRAIN_RETURN_IF_ERROR(take_over_sweep(plan, key, start.references_done, runtime, digest));
  }
  if (keeps) {
    runtime.keep_reference = ReferenceKeeper(run, key, rows.commands, digest);
  }
  return {};
}

}  // namespace

Result<RankContext> make_rank(const run::RunPlan& plan, std::int64_t rank, const StartState& start,
                              int threads, StreamKind streams) {
  engine::RankOptions options = plan.engine;
  options.rank = rank;
  const bool begins = !start.checkpoint && !start.memory;
  if (begins || engine::needs_first_weights(options)) {
    options.init.source = TRAIN_TRY(run::open_weights(plan.config.model, options.model));
  }
  auto engine = TRAIN_TRY(engine::make_rank_engine(plan.config.runtime.device, options));
  if (start.checkpoint && !start.memory) {
    TRAIN_RETURN_IF_ERROR(
        run::restore_rank(*start.checkpoint, *engine, start.stop, start.identity));
  }
  auto runtime = std::make_shared<RankRuntime>(std::move(engine), plan.data, streams, threads);
  TRAIN_RETURN_IF_ERROR(set_up_reference(plan, start, *runtime));
  return runtime;
}

Result<ShardWork> shard_work(checkpoint::ShardCarrier::Options options,
                             const configs::ParallelSection& parallel, std::int64_t rank) {
  options.rank = rank;
  options.ranks = parallel.ranks;
  options.lowest_of_node = run::local_rank(rank, parallel.ranks, parallel.nodes) == 0;
  const auto carrier = std::make_shared<checkpoint::ShardCarrier>(std::move(options));
  const auto aside = carrier->prepare();
  if (!aside && parallel.nodes > 1) {  // The paths are on a disk that each node has.
    return Error{aside.error().kind, fmt::format("on {}: {}", host_name(), aside.error().message)};
  }
  TRAIN_RETURN_IF_ERROR(aside);
  if (!aside->empty()) {
    log_warning(fmt::format("local_checkpoints_set_aside on {}: {}", host_name(), *aside));
  }
  return ShardWork{
      .write = [carrier](std::int64_t step,
                         std::span<const engine::StateView> state) -> Result<std::string> {
        const auto record = TRAIN_TRY(carrier->write(step, state));
        return checkpoint::shard_text(record);
      },
      .seal = [carrier](std::int64_t step,
                        const std::string& manifest) { return carrier->seal(step, manifest); },
      .send = [carrier](std::int64_t step) { return carrier->send(step); },
      .finalize = [carrier](std::int64_t step) { return carrier->finalize(step); },
      .discard = [carrier](std::int64_t step) { return carrier->discard(step); }};
}

Result<std::vector<RankContext>> make_local_ranks(const run::RunPlan& plan,
                                                  const StartState& start) {
  const std::int64_t ranks = plan.engine.parallel.ranks;
  const int threads = run::threads_per_rank(plan.config.runtime.threads, ranks);
  std::vector<RankContext> contexts;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    auto context = TRAIN_TRY(make_rank(plan, rank, start, threads));
    if (start.memory) {
      TRAIN_RETURN_IF_ERROR(run::restore_from_memory(*start.memory, *context->engine,
                                                     /*transport=*/nullptr, /*generation=*/0));
    }
    contexts.push_back(std::move(context));
  }
  if (ranks > 1) {
    for (std::size_t channel = 0; channel < engine::kChannelCount; ++channel) {
      auto transports = engine::make_inproc(static_cast<int>(ranks));
      for (std::size_t rank = 0; rank < contexts.size(); ++rank) {
        contexts[rank]->transports[channel] = std::move(transports[rank]);
      }
    }
  }
  return contexts;
}

void set_up_handlers(caf::actor_system_config& config) {
  use_run_queue(config);
  // One worker keeps up, and the compute threads keep the cores.
  config.set("scheduler.max-threads", std::size_t{1});
  keep_float_mode(config);
}

void cancel_transports(const std::vector<RankContext>& ranks, const std::string& reason) {
  for (const RankContext& rank : ranks) {
    for (const auto& transport : rank->transports) {
      if (transport) {
        transport->cancel(reason);
      }
    }
  }
}

}  // namespace train::actors
