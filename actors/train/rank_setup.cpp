#include "actors/train/rank_setup.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <caf/all.hpp>
#include <cstdlib>
#include <utility>

#include "actors/cluster/network/node_position.hpp"
#include "actors/head/checkpoint_store.hpp"
#include "actors/head/model_files.hpp"
#include "checkpoint/reference_file.hpp"
#include "engine/rank/run_device.hpp"

namespace train::actors {

namespace {

Result<checkpoint::ReferenceKey> reference_key(const RunPlan& plan) {
  const ReferenceRows rows = plan.data->reference_rows();
  auto model = weights_fingerprint(plan.config);
  TRAIN_RETURN_IF_ERROR(model);
  return checkpoint::ReferenceKey{.data = plan.data_fingerprint,
                                  .compute = plan.config.precision.compute,
                                  .model = std::move(model).value(),
                                  .kernel_set = engine::kernel_set_name(
                                      plan.config.runtime.device, plan.config.precision.compute),
                                  .training_rows = rows.live ? 0 : rows.training_rows,
                                  .validation_rows = rows.live ? 0 : rows.validation_rows};
}

bool goes_on(const StartState& start) {
  return start.memory ? start.memory->origin.step > 0 : start.checkpoint.has_value();
}

/// A run that goes on reads what its beginning computed; one that begins keeps it, by one rank. Of
/// a live reference that is what it was made of, and no values.
Status set_up_reference(const RunPlan& plan, const StartState& start, RankRuntime& runtime) {
  if (plan.data->reference_rows().commands == 0) {
    return {};
  }
  const auto path =
      checkpoint::reference_path(std::filesystem::path(plan.config.run.dir) / plan.config.run.name);
  const auto key = reference_key(plan);
  TRAIN_RETURN_IF_ERROR(key);
  const bool live = plan.data->reference_rows().live;
  if (goes_on(start) || start.reads_reference) {
    const auto file = checkpoint::read_reference(path, *key);
    TRAIN_RETURN_IF_ERROR(file);
    if (live) {
      return {};
    }
    if (file->values.size() != runtime.engine->reference().values().size()) {
      return user_error(fmt::format(
          "{}: is of {} documents, and the data has {}; start the run anew with "
          "--fresh",
          path.string(), file->values.size(), runtime.engine->reference().values().size()));
    }
    runtime.engine->reference().restore(file->values);
  } else if (live) {
    return runtime.rank == 0 ? checkpoint::write_reference(path, {.key = *key, .values = {}})
                             : Status();
  } else if (runtime.rank == 0) {
    runtime.keep_reference = [path, key = *key](const engine::ReferenceLogProbs& reference) {
      return checkpoint::write_reference(
          path, {.key = key,
                 .weights_digest = reference.weights_digest(),
                 .values = {reference.values().begin(), reference.values().end()}});
    };
  }
  return {};
}

}  // namespace

Result<RankContext> make_rank(const RunPlan& plan, std::int64_t rank, const StartState& start,
                              int threads, StreamKind streams) {
  engine::RankOptions options = plan.engine;
  options.rank = rank;
  const bool begins = !start.checkpoint && !start.memory;
  if (begins || engine::needs_first_weights(options)) {
    auto weights = open_weights(plan.config.model, options.model);
    TRAIN_RETURN_IF_ERROR(weights);
    options.init.source = std::move(weights).value();
  }
  auto engine = engine::make_rank_engine(plan.config.runtime.device, options);
  TRAIN_RETURN_IF_ERROR(engine);
  if (start.checkpoint && !start.memory) {
    TRAIN_RETURN_IF_ERROR(restore_rank(*start.checkpoint, **engine));
  }
  auto runtime =
      std::make_shared<RankRuntime>(std::move(engine).value(), plan.data, streams, threads);
  TRAIN_RETURN_IF_ERROR(set_up_reference(plan, start, *runtime));
  return runtime;
}

checkpoint::Locations find_places(const std::filesystem::path& run, const std::string& local_dir) {
  const char* slurm = std::getenv("SLURM_TMPDIR");
  return checkpoint::places_of(
      run, checkpoint::local_directory(local_dir, slurm == nullptr ? "" : slurm));
}

Result<ShardWork> shard_work(const checkpoint::Locations& places, const std::string& tag,
                             const configs::ParallelSection& parallel, std::int64_t rank,
                             const storage::RsyncOptions& rsync) {
  const auto carrier = std::make_shared<checkpoint::ShardCarrier>(checkpoint::ShardCarrier::Options{
      .places = places,
      .tag = tag,
      .rank = rank,
      .ranks = parallel.ranks,
      .lowest_of_node = lowest_of_node(rank, parallel.ranks, parallel.nodes),
      .rsync = rsync});
  TRAIN_RETURN_IF_ERROR(carrier->prepare());
  return ShardWork{
      .write = [carrier](std::int64_t step,
                         std::span<const engine::StateView> state) -> Result<std::string> {
        const auto record = carrier->write(step, state);
        TRAIN_RETURN_IF_ERROR(record);
        return checkpoint::shard_text(*record);
      },
      .seal = [carrier](std::int64_t step,
                        const std::string& manifest) { return carrier->seal(step, manifest); },
      .send = [carrier](std::int64_t step) { return carrier->send(step); },
      .finalize = [carrier](std::int64_t step) { return carrier->finalize(step); },
      .discard = [carrier](std::int64_t step) { return carrier->discard(step); }};
}

Result<std::vector<RankContext>> make_local_ranks(const RunPlan& plan, const StartState& start) {
  const std::int64_t ranks = plan.engine.parallel.ranks;
  const int threads = threads_per_rank(plan.config.runtime.threads, ranks);
  std::vector<RankContext> contexts;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    auto context = make_rank(plan, rank, start, threads);
    TRAIN_RETURN_IF_ERROR(context);
    if (start.memory) {
      TRAIN_RETURN_IF_ERROR(restore_from_memory(*start.memory, *(*context)->engine,
                                                /*transport=*/nullptr, /*generation=*/0));
    }
    contexts.push_back(std::move(context).value());
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
  // One worker keeps up, and the compute threads keep the cores; "sharing" sleeps where "stealing"
  // would poll.
  config.set("scheduler.policy", caf::atom("sharing"));
  config.set("scheduler.max-threads", std::size_t{1});
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

int threads_per_rank(std::int64_t requested, std::int64_t neighbours) {
  if (requested > 0) {
    return resolve_threads(requested);
  }
  return std::max(1, resolve_threads(0) / static_cast<int>(neighbours));
}

}  // namespace train::actors
