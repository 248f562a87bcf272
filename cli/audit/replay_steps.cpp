#include "cli/audit/replay_steps.hpp"

#include <caf/all.hpp>
#include <optional>

#include "actors/head/conductor_actor.hpp"
#include "actors/head/reporter_actor.hpp"
#include "actors/messages/connect_messages.hpp"
#include "actors/supervision.hpp"
#include "actors/train/rank_setup.hpp"
#include "actors/train/step_event.hpp"
#include "actors/training_system.hpp"
#include "base/exit_codes.hpp"
#include "engine/rank/weights_digest.hpp"

namespace train::cli {
using namespace actors;

std::vector<std::string> tensor_names(const std::vector<RankContext>& ranks) {
  return engine::tensor_names(ranks.front()->engine->state().views());
}

std::vector<std::uint64_t> tensor_digests(const std::vector<RankContext>& ranks) {
  const auto names = tensor_names(ranks);
  std::vector<std::uint64_t> all(names.size());
  for (const RankContext& rank : ranks) {
    const auto own = rank->engine->state().tensor_digests(names);
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i] += own[i];
    }
  }
  return all;
}

Status replay_steps(const std::vector<RankContext>& ranks, std::int64_t first_step,
                    std::int64_t last_step,
                    const std::function<bool(const checkpoint::StepRecord&)>& heard) {
  caf::actor_system_config config;
  set_up_handlers(config);
  caf::actor_system system(config);
  bool over = false;
  std::optional<std::string> failed;
  {
    caf::scoped_actor self(system);
    const auto waiter = caf::actor_cast<caf::actor>(self);
    WaitBoard waits;
    const ConductorActor conductor = spawn_conductor(
        system, waits, {.first_step = first_step, .total_steps = last_step, .saves = false});
    const ReporterActor listener = spawn_listener(system, waiter);
    const IndexActor index = spawn_index(system, {}, {});  // hears of nothing
    std::vector<caf::actor> actors = {caf::actor_cast<caf::actor>(conductor),
                                      caf::actor_cast<caf::actor>(listener),
                                      caf::actor_cast<caf::actor>(index)};
    std::vector<RankActor> handles;
    for (const RankContext& rank : ranks) {
      RankActors started =
          start_rank(system, {.context = rank, .shards = {}, .reporting = {.digest_interval = 1}},
                     {.conductor = conductor, .index = index});
      handles.push_back(started.rank);
      actors.insert(actors.end(), started.all.begin(), started.all.end());
    }
    caf::anon_send(conductor, ConnectConductor{handles, listener, waiter, {}});
    self->monitor(conductor);
    while (!over && !failed) {
      self->receive([&](const StepFinished& event) { over = !heard(step_record(event)); },
                    [&](const RunFinished& finished) {
                      over = true;
                      if (finished.exit_code != kExitFinished) {
                        failed = finished.text;
                      }
                    },
                    [&](const caf::down_msg& down) { failed = failure_text(down.reason); });
    }
    cancel_transports(ranks, "the replay is over");
    stop_actors(actors);
  }
  system.await_all_actors_done();
  return failed ? Status(failure(*failed)) : Status();
}

}  // namespace train::cli
