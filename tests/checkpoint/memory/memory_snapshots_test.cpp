// Snapshots in memory: whole or not there, whichever ranks die when; read by any number of ranks.
#include "checkpoint/memory/memory_snapshots.hpp"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <random>

#include "checkpoint/memory/row_sources.hpp"
#include "tests/checkpoint/load/planned_state.hpp"
#include "tests/support/processes/leave.hpp"

using namespace train;
using namespace train::checkpoint;
using train::engine::testing::all_strategies;
using train::engine::testing::name_of;
using train::test::PlannedState;

namespace {

using Views = std::vector<engine::StateView>;
using Steps = std::vector<std::int64_t>;

std::uint64_t bytes_in(const Views& views) {
  std::uint64_t size_bytes = 0;
  for (const engine::StateView& view : views) {
    size_bytes += view.size_bytes;
  }
  return size_bytes;
}

MemorySnapshots snapshots_of(PlannedState& state, const engine::ShardPlan& plan) {
  MemorySnapshots::Layout layout{
      .ranks = plan.ranks(), .plan_digest = plan.digest(), .first_rank = 0, .shard_bytes = {}};
  for (std::int64_t rank = 0; rank < plan.ranks(); ++rank) {
    layout.shard_bytes.push_back(bytes_in(state.shard_views(plan, rank)));
  }
  auto made = MemorySnapshots::create(layout);
  REQUIRE(made.ok());
  return std::move(made).value();
}

/// Copies what `views` have room for from where it is.
void take(const MemorySnapshots& memory, std::int64_t step, const RowSources& sources,
          const Views& views) {
  const auto pieces = sources.find(views, 0);
  INFO((pieces ? std::string() : pieces.error().message));
  REQUIRE(pieces);
  for (const RowPiece& piece : *pieces) {
    std::memcpy(views[piece.view].data + piece.to,
                memory.bytes_of(piece.rank, step).data() + piece.from, piece.size_bytes);
  }
}

/// One tensor of `count` floats that all are `value`.
struct Filled {
  explicit Filled(std::size_t count) : values(count) {}
  [[nodiscard]] Views with(float value) {
    values.assign(values.size(), value);
    const auto rows = static_cast<std::int64_t>(values.size());
    return {{"model.w",
             {rows},
             0,
             rows,
             reinterpret_cast<std::byte*>(values.data()),
             values.size() * sizeof(float)}};
  }
  std::vector<float> values;
};

float first_value(const MemorySnapshots& memory, std::int64_t rank, std::int64_t step) {
  const auto bytes = memory.bytes_of(rank, step);
  REQUIRE(bytes.size() >= sizeof(float));
  float value = 0.0F;
  std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

MemorySnapshots of_ranks(std::int64_t ranks, std::size_t floats) {
  auto made =
      MemorySnapshots::create({.ranks = ranks,
                               .plan_digest = 7,
                               .first_rank = 0,
                               .shard_bytes = std::vector<std::uint64_t>(
                                   static_cast<std::size_t>(ranks), floats * sizeof(float))});
  REQUIRE(made.ok());
  return std::move(made).value();
}

}  // namespace

TEST_CASE("memory snapshots: what any ranks wrote, any other ranks read",
          "[checkpoint][memory_snapshots][CK-4][CK-10]") {
  for (const auto& from : all_strategies(4)) {
    const auto plan = engine::ShardPlan::make(from);
    REQUIRE(plan.ok());
    PlannedState state(plan->units(), PlannedState::Content::random);
    const MemorySnapshots memory = snapshots_of(state, *plan);
    for (std::int64_t rank = 0; rank < plan->ranks(); ++rank) {
      memory.write(rank, 30, state.shard_views(*plan, rank));
    }
    REQUIRE(memory.whole_steps() == Steps{30});
    RowSources sources;
    for (std::int64_t rank = 0; rank < plan->ranks(); ++rank) {
      sources.add(rank, 0, 0, state.shard_views(*plan, rank));
    }
    for (std::int64_t ranks = 1; ranks <= plan->ranks(); ++ranks) {
      auto to = from;
      to.parallel.ranks = ranks;
      const auto other = engine::ShardPlan::make(to);
      if (!other) {
        continue;  // a group that does not divide them
      }
      INFO(name_of(from) << " to " << ranks);
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        PlannedState read(plan->units(), PlannedState::Content::nan);
        auto views = read.kept_views(*other, rank);
        take(memory, 30, sources, views);
        REQUIRE(test::holds(state, views));
      }
    }
  }
}

TEST_CASE("memory snapshots: a step counts when all ranks have sealed it",
          "[checkpoint][memory_snapshots][CK-10]") {
  const MemorySnapshots memory = of_ranks(3, 1000);
  Filled state(1000);
  CHECK(memory.whole_steps().empty());
  for (const std::int64_t step : {10, 20}) {
    for (const std::int64_t rank : {2, 0, 1}) {
      const Steps before = memory.whole_steps();
      CHECK(before == (step == 10 ? Steps{} : Steps{10}));
      memory.write(rank, step, state.with(static_cast<float>(step + rank)));
    }
  }
  CHECK(memory.whole_steps() == Steps{20, 10});
  memory.write(1, 30, state.with(31.0F));  // over its 10
  CHECK(memory.whole_steps() == Steps{20});
  CHECK(memory.bytes_of(1, 10).empty());
  CHECK(first_value(memory, 1, 30) == 31.0F);
  CHECK(first_value(memory, 2, 20) == 22.0F);
  memory.keep_only(20);
  CHECK(memory.bytes_of(1, 30).empty());
  CHECK(memory.bytes_of(0, 10).empty());
  memory.write(1, 20, state.with(5.0F));  // it is there
  CHECK(first_value(memory, 1, 20) == 21.0F);
  memory.keep_only(std::nullopt);
  CHECK(memory.whole_steps().empty());
}

TEST_CASE("memory snapshots: a rank that is killed while it copies leaves the snapshot before",
          "[checkpoint][memory_snapshots][CK-10][fork]") {
  constexpr std::size_t kFloats = 1'000'000;
  const MemorySnapshots memory = of_ranks(1, kFloats);
  Filled state(kFloats);
  memory.write(0, 10, state.with(10.0F));
  memory.write(0, 20, state.with(20.0F));
  // Half of the next state cannot be read: the copy ends there, with its process.
  const std::size_t size = kFloats * sizeof(float);
  void* const guarded =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(guarded != MAP_FAILED);
  auto* const middle = static_cast<std::byte*>(guarded) + (size / 2 / 4096 * 4096);
  REQUIRE(::mprotect(middle, 4096, PROT_NONE) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    for (const int signal : {SIGSEGV, SIGABRT}) {
      ::signal(signal, SIG_DFL);
    }
    const auto mine = MemorySnapshots::attach(::dup(memory.descriptor()));
    if (mine) {
      Views views = state.with(30.0F);
      views.front().data = static_cast<std::byte*>(guarded);
      mine->write(0, 30, views);
    }
    test::leave(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  ::munmap(guarded, size);
  CHECK_FALSE((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  CHECK(memory.whole_steps() == Steps{20});
  CHECK(first_value(memory, 0, 20) == 20.0F);
  memory.write(0, 30, state.with(30.0F));
  CHECK(memory.whole_steps() == Steps{30, 20});
}

TEST_CASE("memory snapshots: a changed byte is found, and the step before is taken",
          "[checkpoint][memory_snapshots][CK-10]") {
  const MemorySnapshots memory = of_ranks(2, 100'000);
  Filled state(100'000);
  for (const std::int64_t step : {10, 20}) {
    memory.write(0, step, state.with(1.0F));
    memory.write(1, step, state.with(1.0F));
  }
  const std::size_t at = GENERATE(0U, 262'143U, 262'144U, 399'999U);
  memory.bytes_of(1, 20)[at] ^= std::byte{1};
  CHECK(memory.whole_steps() == Steps{10});
}

TEST_CASE("memory snapshots: ranks that are as far apart as they can be always have one in common",
          "[checkpoint][memory_snapshots][CK-10]") {
  std::mt19937 random(Catch::rngSeed());
  constexpr std::int64_t kRanks = 3;
  const MemorySnapshots memory = of_ranks(kRanks, 10);
  Filled state(10);
  const std::int64_t interval = GENERATE(2, 3, 10);
  // Updates done; a rank's next needs the gradients of all, which come after their own updates.
  std::vector<std::int64_t> done(kRanks, 0);
  for (int i = 0; i < 3000; ++i) {
    const auto rank = static_cast<std::size_t>(random() % kRanks);
    if (done[rank] > *std::min_element(done.begin(), done.end())) {
      continue;
    }
    // What it kept of the step before was sealed before this update; now it may be killed.
    if (done[rank] > 0 && done[rank] % interval == 0) {
      memory.write(static_cast<std::int64_t>(rank), done[rank], state.with(1.0F));
    }
    ++done[rank];
    if (done[rank] % interval == 0 && random() % 2 == 0) {  // it may be early with the next one
      memory.write(static_cast<std::int64_t>(rank), done[rank], state.with(1.0F));
    }
    const std::int64_t slowest = *std::min_element(done.begin(), done.end());
    if (slowest > interval) {
      const Steps whole = memory.whole_steps();
      REQUIRE_FALSE(whole.empty());
      REQUIRE(whole.front() >= (slowest - 1) / interval * interval);
    }
  }
}
