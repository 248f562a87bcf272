#include "actors/run/rank_setup.hpp"

#include <algorithm>
#include <caf/all.hpp>
#include <utility>

#include "actors/run/checkpoint_home.hpp"
#include "checkpoint/writer.hpp"

namespace train::actors {

Result<RankContext> make_rank(const RunPlan& plan, std::int64_t rank,
                              const std::optional<std::filesystem::path>& checkpoint, int threads) {
  engine::RankEngine::Options options = plan.engine;
  options.rank = rank;
  auto engine = engine::make_rank_engine(plan.config.runtime.device, options);
  if (!engine) {
    return engine.error();
  }
  if (checkpoint) {
    TRAIN_RETURN_IF_ERROR(restore_rank(*checkpoint, **engine));
  }
  auto dataset = open_dataset(plan.config, options.shape.vocab_size);
  if (!dataset) {
    return dataset.error();
  }
  return std::make_shared<RankRuntime>(std::move(engine).value(), std::move(dataset).value(),
                                       plan.config.run.seed, StreamKind::threads, threads);
}

WriteShard shard_writer(const std::filesystem::path& checkpoints, const std::string& tag,
                        std::int64_t rank, std::int64_t ranks) {
  return [=](std::int64_t step, std::span<const engine::StateView> state) -> Result<std::string> {
    const auto record = checkpoint::write_shard(checkpoint::incoming_path(checkpoints, tag, step),
                                                state, {.index = rank, .count = ranks});
    if (!record) {
      return record.error();
    }
    return checkpoint::shard_text(*record);
  };
}

Result<std::vector<RankContext>> make_local_ranks(
    const RunPlan& plan, const std::optional<std::filesystem::path>& checkpoint) {
  const std::int64_t ranks = plan.engine.parallel.ranks;
  const int threads = threads_per_rank(plan.config.runtime.threads, ranks);
  std::vector<RankContext> contexts;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    auto context = make_rank(plan, rank, checkpoint, threads);
    if (!context) {
      return context.error();
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
