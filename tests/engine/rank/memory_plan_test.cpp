
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "engine/rank/exec/rank_engine.hpp"
#include "engine/rank/exec/rank_memory.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "kernels/backend.hpp"
#include "tests/support/inputs/reshape.hpp"

namespace train::engine::memory_plan_test {
namespace {

using Options = RankOptions;

struct Case {
  const char* strategy;
  std::int64_t group;
};
constexpr Case kCases[] = {
    {"none", 0}, {"optimizer", 0}, {"gradient", 0}, {"full", 0}, {"hybrid", 2}};

/// Blocks of rows that 4 ranks do not share evenly.
Options tiny_options() {
  Options options;
  testing::reshape(options, [](ModelShape& shape) {
    shape.layers = 2;
    shape.heads = 2;
    shape.head_dim = 8;
    shape.embedding_dim = 16;
    shape.mlp_hidden = 42;
    shape.vocab_size = 41;
  });
  options.batch.lanes = 8;
  options.batch.micro_batch = 2;
  options.seq_len = 24;
  options.total_steps = 10;
  options.eval_lanes = 3;
  options.parallel.wrapping = {"per_block"};
  return options;
}

Options case_options(const Case& of, std::int64_t ranks) {
  Options options = tiny_options();
  options.parallel.ranks = ranks;
  options.parallel.strategy = ranks % 2 == 0 || of.group == 0 ? of.strategy : "none";
  options.parallel.group = of.group;
  return options;
}

void check_prediction(Options options) {
  REQUIRE(plan_of(options).ok());
  for (std::int64_t rank = 0; rank < options.parallel.ranks; ++rank) {
    options.rank = rank;
    const RankEngine engine(kernels::cpu_backend(), options);
    const MemoryPlan allocated = engine.allocated();
    const MemoryPlan planned = plan_memory(options);
    INFO(options.parallel.strategy << " sync " << options.parallel.sync << ", rank " << rank
                                   << " of " << options.parallel.ranks);
    CHECK(planned.parameters_bytes == allocated.parameters_bytes);
    CHECK(planned.gradients_bytes == allocated.gradients_bytes);
    CHECK(planned.optimizer_bytes == allocated.optimizer_bytes);
    CHECK(planned.lane_sums_bytes == allocated.lane_sums_bytes);
    CHECK(planned.gathered_bytes == allocated.gathered_bytes);
    CHECK(planned.transfer_bytes == allocated.transfer_bytes);
    CHECK(planned.activations_bytes == allocated.activations_bytes);
    CHECK(planned.buffers_bytes == allocated.buffers_bytes);
    CHECK(planned == allocated);
  }
}

/// One rank's memory under a strategy as a part of what it takes to keep everything.
double share(std::size_t bytes, std::size_t whole) {
  return static_cast<double>(bytes) / static_cast<double>(whole);
}

}  // namespace

TEST_CASE("memory plan: what is planned is what is allocated, byte for byte",
          "[engine][memory_plan]") {
  for (const Case& of : kCases) {
    for (const std::int64_t ranks : {1, 2, 3, 4}) {
      for (const char* sync : {"every_lane", "last_lane", "3"}) {
        Options options = case_options(of, ranks);
        options.parallel.sync = sync;
        check_prediction(options);
      }
    }
  }
}

TEST_CASE("memory plan: columns that an objective has are planned with it",
          "[engine][memory_plan][objective]") {
  for (const std::int64_t ranks : {1, 3}) {
    Options options = case_options(kCases[0], ranks);
    const std::size_t plain = plan_memory(options).buffers_bytes;
    options.objective.name = "sft";
    check_prediction(options);
    const std::int64_t tokens = options.batch.micro_batch * options.seq_len * options.lane_slots;
    CHECK(plan_memory(options).buffers_bytes == plain + 8 * static_cast<std::size_t>(tokens));
  }
}

TEST_CASE("memory plan: positions and log-probabilities of scored lanes are planned, too",
          "[engine][memory_plan][choices]") {
  for (const std::int64_t ranks : {1, 3}) {
    for (const char* objective : {"pretrain", "sft"}) {
      Options options = case_options(kCases[0], ranks);
      options.objective.name = objective;
      options.scored_lanes = 5;
      check_prediction(options);
    }
  }
}

TEST_CASE("memory plan: logits of sampled texts are planned, too",
          "[engine][memory_plan][samples]") {
  for (const std::int64_t ranks : {1, 3}) {
    Options options = case_options(kCases[0], ranks);
    const std::size_t plain = plan_memory(options).buffers_bytes;
    options.sampled_texts = 5;
    check_prediction(options);
    CHECK(plan_memory(options).buffers_bytes ==
          plain + sizeof(float) * static_cast<std::size_t>(options.model.vocab_size));
  }
}

TEST_CASE("memory plan: so it is with other element types, wrappings and resharding",
          "[engine][memory_plan]") {
  for (const Case& of : kCases) {
    Options options = case_options(of, 4);
    options.precision.compute = "bf16";
    check_prediction(options);
    options.precision.reduce = "bf16";
    for (const char* offload : {"optimizer", "parameters"}) {
      options.memory.offload = offload;
      check_prediction(options);
      options.rank = 0;
      CHECK(plan_memory(options).offloaded_bytes > 0);
    }
    options.memory.activation_checkpointing = "all";
    for (const char* part : {"block", "attention", "mlp"}) {
      options.memory.checkpointed_part = part;
      check_prediction(options);
    }
    options = case_options(of, 4);
    options.parallel.reshard = "never";
    options.parallel.wrapping = {"block *"};
    check_prediction(options);
    options.parallel.reshard = std::string("2");  // GCC 12 warns of a literal of one character.
    options.parallel.gather_credits = 1;
    check_prediction(options);
    options.model.tie_embeddings = true;
    options.precision.determinism = "run";
    check_prediction(options);
  }
}

TEST_CASE("memory plan: so it is where some parameters, or all, have one owner",
          "[engine][memory_plan][optimizer]") {
  for (const bool all : {false, true}) {
    Options options = tiny_options();
    for (const UnitParameters& unit : describe_units(options.model)) {
      for (const Parameter& parameter : unit.parameters) {
        if (all || parameter.name.find("mlp") != std::string::npos) {
          options.whole_parameters.push_back(parameter.name);
        }
      }
    }
    for (const Case& of : kCases) {
      for (const std::int64_t ranks : {1, 4, 8}) {
        options.parallel.ranks = ranks;
        options.parallel.strategy = of.strategy;
        options.parallel.group = ranks == 1 ? 1 : of.group;
        options.precision.compute = all ? "bf16" : "fp32";
        check_prediction(options);
      }
    }
  }
}

TEST_CASE("memory plan: each strategy splits what its table says", "[engine][memory_plan]") {
  // Rows that 4 ranks share evenly, so that padding and odd rows do not blur the table.
  constexpr double kRanks = 4;
  Options options = tiny_options();
  testing::reshape(options, [](ModelShape& shape) {
    shape.mlp_hidden = 64;
    shape.vocab_size = 256;
  });
  options.parallel.ranks = 1;
  const MemoryPlan whole = plan_memory(options);
  struct Row {
    const char* strategy;
    double parameters, gradients, optimizer;
  };
  for (const Row& row :
       {Row{"none", 1, 1, 1}, Row{"optimizer", 1, 1, 1 / kRanks},
        Row{"gradient", 1, 1 / kRanks, 1 / kRanks}, Row{"full", 1 / kRanks, 1 / kRanks, 1 / kRanks},
        Row{"hybrid", 0.5, 0.5, 0.5}}) {
    INFO(row.strategy);
    options.parallel.ranks = static_cast<std::int64_t>(kRanks);
    options.parallel.strategy = row.strategy;
    options.parallel.group = 2;
    const MemoryPlan split = plan_memory(options);
    CHECK(share(split.parameters_bytes, whole.parameters_bytes) ==
          Approx(row.parameters).epsilon(0.05));
    CHECK(share(split.gradients_bytes, whole.gradients_bytes) ==
          Approx(row.gradients).epsilon(0.05));
    CHECK(share(split.optimizer_bytes, whole.optimizer_bytes) ==
          Approx(row.optimizer).epsilon(0.05));
    CHECK(split.activations_bytes == whole.activations_bytes);
  }
}

TEST_CASE("memory plan: sizes of other ranks' parts are those of the parts",
          "[engine][memory_plan][EX-2]") {
  for (const Case& of : kCases) {
    for (const char* optimizer : {"adamw", "muon"}) {
      for (const std::int64_t ranks : {1, 2, 3, 4, 8}) {
        CAPTURE(of.strategy, optimizer, ranks);
        Options options = case_options(of, ranks);
        options.optimizer.name = optimizer;
        options.train.freeze = {"transformer.h.0.*weight"};
        options.parallel.reshard = std::string(of.strategy) == "full" && ranks == 8 ? "4" : "";
        if (options.parallel.reshard.empty()) {
          options.parallel.reshard = Options{}.parallel.reshard;
        }
        const ShardPlan plan = plan_of(options).value();
        const RankLayout first(plan, options);
        RankLayout other = first;
        for (options.rank = 0; options.rank < ranks; ++options.rank) {
          const RankLayout layout(plan, options);
          other.move_to(options.rank);
          CHECK(other.memory() == layout.memory());
          CHECK(other.rank() == options.rank);
          std::int64_t norms = 0;
          for (std::size_t group = 0; group < plan.groups().size(); ++group) {
            const Part reduced = plan.trained(group, plan.reduce_part(group, options.rank));
            CHECK(first.reduce_elements(group, options.rank) == reduced.element_count);
            for (const Segment& segment : reduced.segments) {
              const Parameter& parameter = plan.groups()[group].parameters[segment.parameter];
              norms += std::ssize(norm_nodes(segment, parameter));
            }
            for (const bool smaller : {false, true}) {
              const auto& sources = smaller ? layout.group(group).kept : layout.group(group).shards;
              for (std::size_t i = 0; i < sources.ranks.size(); ++i) {
                CHECK(sources.elements[i] ==
                      first.gathered_part(group, sources.ranks[i], smaller).element_count);
              }
            }
          }
          CHECK(first.norm_count(options.rank) == norms);
        }
      }
    }
  }
}

TEST_CASE("memory plan: what one rank sends is what the other expects",
          "[engine][memory_plan][EX-2]") {
  for (const Case& of : kCases) {
    for (const std::int64_t ranks : {2, 3, 4, 5, 8}) {
      for (const char* sync : {"every_lane", "last_lane"}) {
        Options options = case_options(of, ranks);
        options.parallel.sync = sync;
        const ShardPlan plan = plan_of(options).value();
        std::vector<RankLayout> layouts;
        for (options.rank = 0; options.rank < ranks; ++options.rank) {
          layouts.emplace_back(plan, options);
        }
        for (const CollectiveOp& op : expand(plan, kTrainStep)) {
          // A gather and a spread send straight from where the bytes lie.
          if (op.kind != CollectiveKind::reduce && op.kind != CollectiveKind::all_gather) {
            continue;
          }
          for (std::size_t from = 0; from < layouts.size(); ++from) {
            for (std::size_t to = 0; to < layouts.size(); ++to) {
              INFO(of.strategy << ": " << op.text(plan) << " from " << from << " to " << to);
              CHECK((from == to || layouts[from].staged(op, false).send[to].size_bytes ==
                                       layouts[to].staged(op, false).receive[from].size_bytes));
            }
          }
        }
      }
    }
  }
}

}  // namespace train::engine::memory_plan_test
