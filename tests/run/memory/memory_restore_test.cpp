// Ranks that resume from the memory of all nodes, with all of them or without one.
#include "run/memory/memory_restore.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <thread>

#include "actors/train/runtime/rank_runtime.hpp"
#include "run/memory/memory_layout.hpp"
#include "run/memory/node_memory.hpp"
#include "tests/engine/rank/small_model.hpp"

namespace train::run {
namespace {

constexpr std::int64_t kStep = 10;
using Options = engine::RankOptions;
using Engines = std::vector<std::unique_ptr<engine::RankEngine>>;

Options options_of(const std::string& strategy, std::int64_t ranks, std::int64_t nodes) {
  Options options = engine::testing::small_options(engine::Architecture::enoki);
  options.batch.lanes = 6;
  options.parallel.strategy = strategy;
  options.parallel.group = strategy == "hybrid" ? 2 : 0;
  options.parallel.ranks = ranks;
  options.parallel.nodes = nodes;
  return options;
}

Engines engines_of(Options options) {
  Engines engines;
  for (options.rank = 0; options.rank < options.parallel.ranks; ++options.rank) {
    engines.push_back(std::make_unique<engine::RankEngine>(kernels::cpu_backend(), options));
  }
  return engines;
}

/// Calls `use` with each number that the rank keeps and what it is to be: its tensor, row, column.
void each_number(const engine::RankEngine& rank, const std::function<void(float&, float)>& use) {
  for (const engine::StateView& view : rank.state().views()) {
    auto* at = reinterpret_cast<float*>(view.data);
    const auto name = static_cast<float>(std::hash<std::string>()(view.name) % 97);
    const std::size_t cols =
        view.rows > 0 ? view.size_bytes / sizeof(float) / static_cast<std::size_t>(view.rows) : 0;
    for (std::int64_t row = 0; row < view.rows; ++row) {
      for (std::size_t col = 0; col < cols; ++col) {
        use(*at++, name + static_cast<float>(view.first_row + row) * 64.0F +
                       static_cast<float>(col) / 64.0F);
      }
    }
  }
}

/// What the nodes of `options` have written, by node.
std::vector<SharedSnapshots> written(const Options& options) {
  std::vector<SharedSnapshots> memory;
  const Engines engines = engines_of(options);
  NodePosition position{.nodes = options.parallel.nodes};
  for (; position.node < position.nodes; ++position.node) {
    auto made = checkpoint::MemorySnapshots::create(memory_layout(options, position));
    REQUIRE(made.ok());
    const auto [first, end] = position.ranks(options.parallel.ranks);
    for (std::int64_t rank = first; rank < end; ++rank) {
      const engine::RankEngine& engine = *engines[static_cast<std::size_t>(rank)];
      each_number(engine, [](float& number, float wanted) { number = wanted; });
      write_to_memory(*memory_rows(engine, *made), rank, kStep, *made);
    }
    memory.push_back(std::make_shared<const checkpoint::MemorySnapshots>(std::move(made).value()));
  }
  return memory;
}

/// All ranks at once, as they need each other.
std::vector<Status> restore(Engines& engines, const std::vector<MemoryStart>& by_node) {
  const Options& options = engines.front()->options();
  auto transports = engine::make_inproc(static_cast<int>(engines.size()));
  std::vector<Status> results(engines.size());
  std::vector<std::thread> threads;
  NodePosition position{.nodes = options.parallel.nodes};
  for (; position.node < position.nodes; ++position.node) {
    const auto [first, end] = position.ranks(options.parallel.ranks);
    for (auto rank = static_cast<std::size_t>(first); rank < static_cast<std::size_t>(end);
         ++rank) {
      threads.emplace_back([&, rank, node = static_cast<std::size_t>(position.node)] {
        results[rank] =
            restore_from_memory(by_node[node], *engines[rank], transports[rank].get(), 3);
      });
    }
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return results;
}

void check_restored(const Options& options, const std::vector<MemoryStart>& by_node) {
  Engines engines = engines_of(options);
  for (const Status& result : restore(engines, by_node)) {
    INFO((result ? "" : result.error().message));
    REQUIRE(result);
  }
  for (const auto& engine : engines) {
    std::size_t wrong = 0;
    each_number(*engine, [&](float& number, float wanted) { wrong += number == wanted ? 0 : 1; });
    CHECK(wrong == 0);
  }
}

/// Field by field: GCC 12 sees uninitialised vectors in nested lists.
MemoryStart start_of(std::int64_t ranks, std::vector<std::int32_t> holders,
                     std::vector<SharedSnapshots> here) {
  MemoryStart start;
  start.origin.step = kStep;
  start.origin.ranks = ranks;
  start.origin.holders = std::move(holders);
  start.here = std::move(here);
  return start;
}

}  // namespace

TEST_CASE("memory restore: every rank gets all that it keeps, wherever it is",
          "[run][memory_restore][CK-4][P4][world]") {
  const char* const strategy = GENERATE("none", "optimizer", "gradient", "full", "hybrid");
  const Options options = options_of(strategy, 6, 3);
  CAPTURE(strategy);
  std::vector<MemoryStart> by_node;
  for (const SharedSnapshots& own : written(options)) {
    by_node.push_back(start_of(6, {0, 1, 2}, {own}));
  }
  check_restored(options, by_node);
}

TEST_CASE("memory restore: without a node its rows come out of its buddy's memory",
          "[run][memory_restore][CK-4][P4][world]") {
  const char* const strategy = GENERATE("none", "optimizer", "gradient", "full", "hybrid");
  const auto nodes = GENERATE(std::int64_t{2}, std::int64_t{3});
  const std::int64_t each = 2;
  for (std::int64_t lost = 1; lost < nodes; ++lost) {
    CAPTURE(strategy, nodes, lost);
    const auto memory = written(options_of(strategy, each * nodes, nodes));
    std::vector<std::int32_t> holders;
    std::vector<MemoryStart> by_node;
    for (std::int64_t node = 0; node < nodes; ++node) {
      const std::int64_t holder = node == lost ? (node + 1) % nodes : node;
      holders.push_back(static_cast<std::int32_t>(holder > lost ? holder - 1 : holder));
      if (node != lost) {
        by_node.push_back(start_of(each * nodes, {}, {memory[static_cast<std::size_t>(node)]}));
      }
    }
    for (MemoryStart& start : by_node) {
      start.origin.holders = holders;
    }
    by_node[static_cast<std::size_t>(holders[static_cast<std::size_t>(lost)])].here.push_back(
        memory[static_cast<std::size_t>(lost)]);
    check_restored(options_of(strategy, each * (nodes - 1), nodes - 1), by_node);
  }
}

TEST_CASE("memory restore: what is not there is an error on the rank that has to have it",
          "[run][memory_restore][failure][world]") {
  const Options options = options_of("full", 1, 1);
  const auto memory = written(options_of("full", 2, 2));
  Engines engines = engines_of(options);
  MemoryStart start = start_of(2, {0, 0}, {memory[0]});
  const auto refused = [&] {
    const Status result = restore_from_memory(start, *engines.front(), nullptr, 1);
    return result ? std::string() : result.error().message;
  };
  CHECK(refused() == "the snapshot in memory of step 10 has no rows of rank 1 here");
  start.here.push_back(memory[1]);
  CHECK(refused().empty());
  memory[1]->bytes_of(1, kStep).back() ^= std::byte{1};
  CHECK(refused() == "the snapshot in memory of step 10 has damaged rows of rank 1 here");
  start.here.push_back(written(options_of("full", 2, 2))[1]);
  CHECK(refused().empty());  // another copy of the same rows
  start.here.pop_back();
  memory[1]->bytes_of(1, kStep).back() ^= std::byte{1};
  start.origin.step = 20;
  CHECK(refused() == "the snapshot in memory of step 20 has no rows of rank 0 here");
  start.origin.holders = {0, 1};
  CHECK(refused() == "the snapshot in memory of step 20 is on node 1, which does not exist");
  start.origin.holders = {};
  CHECK(refused() == "the snapshot in memory of step 20 is nowhere");
}

}  // namespace train::run
