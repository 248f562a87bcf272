// All actors of a run on the guarded device: what handlers enqueue, snapshots, evaluations, ends.
#include <algorithm>
#include <catch2/catch.hpp>

#include "actors/train/memory/staging.hpp"
#include "base/exit_codes.hpp"
#include "engine/host_state.hpp"
#include "kernels/backend.hpp"
#include "tests/engine/rank/small_model.hpp"
#include "tests/guarded_device/guarded_device.hpp"
#include "tests/support/devices/guarded_memory.hpp"
#include "tests/support/runs/actor_fixture.hpp"
#include "tests/support/runs/require_same.hpp"

namespace train::test {
namespace {

struct InlineStreams {
  InlineStreams() { guarded_streams_run_inline(true); }
  ~InlineStreams() { guarded_streams_run_inline(false); }
  InlineStreams(const InlineStreams&) = delete;
  InlineStreams& operator=(const InlineStreams&) = delete;
};

TEST_CASE("guarded device: a run through the actors is the plain loop on the CPU, bit for bit",
          "[guarded][actors][P1][EX-3]") {
  watch_device_memory();
  const InlineStreams inline_streams;
  const auto [ranks, strategy] = GENERATE(table<std::int64_t, std::string>(
      {{1, "none"}, {2, "none"}, {2, "full"}, {3, "optimizer"}, {4, "hybrid"}}));
  INFO(ranks << " ranks, " << strategy);
  const RunSetup setup{.digest_interval = 1,
                       .parallel = split_over(ranks, strategy),
                       .kernels = kernels::cuda_backend()};
  const PlainRun plain(setup);
  TrainingRun run(setup);
  run.start();
  run.run();
  CHECK(run.finished().exit_code == kExitFinished);
  REQUIRE(run.steps.size() == 4);
  CHECK(run.digest() == plain.digests.back());
  CHECK(run.checkpoints.written.at(4) == plain.digests.back());
  CHECK(run.checkpoints.written.at(2) == plain.digests.at(2));
  require_same(run, plain);
}

TEST_CASE("guarded device: a copy of the state lies in pinned memory", "[guarded][actors]") {
  watch_device_memory();
  const engine::WorldStep world(*kernels::cuda_backend(),
                                engine::testing::small_options(engine::Architecture::enoki));
  const engine::RankEngine& rank = world.rank(0);
  engine::HostState expected(rank.device(), rank.state().shard_views());
  expected.load();
  actors::Staging staging;
  REQUIRE(staging.prepare(rank.state().shard_views(), rank.device()).ok());
  const std::size_t prepared_bytes = staging.size_bytes();
  CHECK(prepared_bytes > 0);
  const std::byte* first = nullptr;
  for (int copy = 0; copy < 2; ++copy) {  // The second one finds the memory of the first.
    REQUIRE(staging.copy(rank.state().shard_views(), rank.device()).ok());
    CHECK(staging.size_bytes() == prepared_bytes);
    REQUIRE(staging.views().size() == expected.views().size());
    for (std::size_t i = 0; i < staging.views().size(); ++i) {
      const engine::StateView& view = staging.views()[i];
      CHECK(is_pinned_memory(view.data));
      CHECK(std::equal(view.data, view.data + view.size_bytes, expected.views()[i].data));
    }
    CHECK((first == nullptr || first == staging.views().front().data));
    first = staging.views().front().data;
    staging.release_pages();
    CHECK(staging.views().empty());
    staging.release_pageable();  // Nobody saves for a minute: pinning it anew would stop a step.
    CHECK(staging.size_bytes() > 0);
  }
  staging.release();
  CHECK(staging.size_bytes() == 0);
}

TEST_CASE("guarded device: a state that is loaded again and again lies in the same pinned memory",
          "[guarded][actors]") {
  watch_device_memory();
  const engine::WorldStep world(*kernels::cuda_backend(),
                                engine::testing::small_options(engine::Architecture::enoki));
  const engine::RankEngine& rank = world.rank(0);
  engine::HostState expected(rank.device(), rank.state().shard_views());
  expected.load();
  engine::HostState kept(rank.device(), rank.state().shard_views(), rank.device().staging);
  const std::byte* const first = kept.views().front().data;
  for (int load = 0; load < 2; ++load) {
    kept.load();
    CHECK(kept.views().front().data == first);
    for (std::size_t i = 0; i < kept.views().size(); ++i) {
      const engine::StateView& view = kept.views()[i];
      CHECK(is_pinned_memory(view.data));
      CHECK(std::equal(view.data, view.data + view.size_bytes, expected.views()[i].data));
    }
  }
}

TEST_CASE("guarded device: a wrong token ends the run with its place", "[guarded][actors]") {
  watch_device_memory();
  const InlineStreams inline_streams;
  const RunSetup setup{.bad_token_at = 700, .kernels = kernels::cuda_backend()};
  TrainingRun run(setup);
  run.start();
  run.run();
  CHECK(run.finished().exit_code != kExitFinished);
}

}  // namespace
}  // namespace train::test
