#include "actors/head/head_setup.hpp"

#include <caf/all.hpp>
#include <chrono>
#include <filesystem>
#include <utility>

#include "configs/fields/field_table.hpp"
#include "run/directory/run_directory.hpp"

namespace train::actors {

Assignment make_assignment(const run::PreparedRun& run, const HeadActors& head,
                           const caf::actor& rendezvous) {
  const configs::RunConfig& config = run.config();
  const auto memory = run.memory.start();
  return {.generation = run.generation,
          .config_text = configs::to_toml(config),
          .checkpoint = run.start.checkpoint
                            ? std::filesystem::absolute(run.start.checkpoint->path).string()
                            : "",
          .memory = memory ? memory->origin : MemoryOrigin(),
          .phase_step = run.plan.engine.phase_step,
          .references_done = run.start.references_done,
          .run_directory = std::filesystem::absolute(run.directory.root).string(),
          .two_locations = run.store->locations().two(),
          .run_id = run.store->identity().id,
          .checkpoint_tag = run.store->tag(),
          .trace_directory =
              run.reporting.profile
                  ? std::filesystem::absolute(run::profile_directory(run.directory.root)).string()
                  : "",
          .threads = run::threads_per_rank(config.runtime.threads,
                                           config.parallel.ranks / config.parallel.nodes),
          .conductor = caf::actor_cast<caf::strong_actor_ptr>(head.conductor),
          .index = caf::actor_cast<caf::strong_actor_ptr>(head.index),
          .rendezvous = caf::actor_cast<caf::strong_actor_ptr>(rendezvous),
          .observer = caf::actor_cast<caf::strong_actor_ptr>(head.observer)};
}

HeadParts head_parts(const run::PreparedRun& run, std::shared_ptr<run::RunReport> report,
                     std::shared_ptr<kernels::Stream> disk) {
  run::IndexWork index = run.store->index_work();
  index.first_step = run.first_step();
  return {.report = std::move(report),
          .disk = std::move(disk),
          .index = std::move(index),
          .program = run::program_of(run),
          .drain = {.time = std::chrono::seconds(run.config().checkpoint.drain_s),
                    .local_location = run.store->locations().local.string()},
          .waits = std::make_shared<WaitTable>(),
          .observing = {
              .ranks = run.config().parallel.ranks,
              .generation = run.generation,
              .stall_ns = run.config().watchdog.stall_s * 1'000'000'000,
              .abort_after_ns = run.config().watchdog.abort_after_s * 1'000'000'000,
              .status = run.status,
              .events = run.status ? std::shared_ptr<run::EventLog>(run.files, &run.files->events)
                                   : nullptr}};
}

}  // namespace train::actors
