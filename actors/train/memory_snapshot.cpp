#include "actors/train/memory_snapshot.hpp"

#include <memory>

#include "actors/cluster/recovery/node_memory.hpp"
#include "engine/rank/host_state.hpp"

namespace train::actors {

void write_to_memory(const engine::RankEngine& engine, std::int64_t rank, std::int64_t step,
                     const checkpoint::MemorySnapshots& snapshots) {
  engine::HostState rows(engine.device(), engine::node_views(engine, ranks_of(snapshots.layout())));
  rows.load();
  snapshots.write(rank, step, rows.views());
}

void save_memory_snapshot(const RankRuntime& rank, std::int64_t step, kernels::Event& copied) {
  const MemoryKeeping& memory = rank.memory;
  if (memory.snapshots == nullptr || memory.interval == 0 || step == 0 ||
      step % memory.interval != 0) {
    return;
  }
  // The poison flag belongs to the compute stream; it is read there, in order.
  const auto nonfinite = std::make_shared<bool>(false);
  rank.compute->enqueue(
      [nonfinite, engine = rank.engine.get()] { *nonfinite = engine->totals().nonfinite(); });
  kernels::Event::record(*rank.compute).wait_on(*rank.copy);
  rank.copy->mark({.what = "copy to memory", .step = step - 1, .unit = -1, .lane = -1});
  rank.copy->enqueue([nonfinite, step, number = rank.rank, snapshots = memory.snapshots,
                      engine = rank.engine.get()] {
    if (!*nonfinite) {
      write_to_memory(*engine, number, step, *snapshots);
    }
  });
  copied = kernels::Event::record(*rank.copy);
}

}  // namespace train::actors
