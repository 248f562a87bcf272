#include "actors/head/rank_assignment.hpp"

#include <caf/all.hpp>
#include <filesystem>

#include "actors/head/run_directory.hpp"
#include "actors/train/runtime/rank_setup.hpp"
#include "configs/fields/field_table.hpp"

namespace train::actors {

Assignment make_assignment(const PreparedRun& run, const HeadActors& head,
                           const caf::actor& rendezvous) {
  const configs::RunConfig& config = run.config();
  const auto memory = run.memory.start();
  return {
      .generation = run.generation,
      .config_text = configs::to_toml(config),
      .checkpoint = run.checkpoint ? std::filesystem::absolute(run.checkpoint->path).string() : "",
      .memory = memory ? memory->origin : MemoryOrigin(),
      .phase_step = run.plan.engine.phase_step,
      .references_done = run.references_done,
      .run_directory = std::filesystem::absolute(run.directory.root).string(),
      .two_locations = run.store->locations().two(),
      .run_id = run.store->identity().id,
      .checkpoint_tag = run.store->tag(),
      .trace_directory =
          run.profile ? std::filesystem::absolute(profile_directory(run.directory.root)).string()
                      : "",
      .threads =
          threads_per_rank(config.runtime.threads, config.parallel.ranks / config.parallel.nodes),
      .conductor = caf::actor_cast<caf::strong_actor_ptr>(head.conductor),
      .index = caf::actor_cast<caf::strong_actor_ptr>(head.index),
      .rendezvous = caf::actor_cast<caf::strong_actor_ptr>(rendezvous),
      .observer = caf::actor_cast<caf::strong_actor_ptr>(head.observer)};
}

}  // namespace train::actors
