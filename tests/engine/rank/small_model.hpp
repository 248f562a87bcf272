#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/check.hpp"
#include "engine/model/model_shape.hpp"
#include "kernels/backend.hpp"
#include "tests/support/runs/world_step.hpp"

namespace train::engine::testing {

/// A model that trains in milliseconds: 2 blocks, 2 heads of 8, 41 tokens.
inline ModelShape small_shape(Architecture architecture) {
  ModelShape shape;
  shape.architecture = architecture;
  shape.layers = 2;
  shape.heads = 2;
  shape.head_dim = 8;
  shape.embedding_dim = 16;
  shape.mlp_hidden = 40;
  shape.vocab_size = 41;
  shape.z_loss_coeff = 1e-4F;
  shape.output_gate = architecture == Architecture::dstar_qwen3;
  return shape;
}

inline WorldStep::Options small_options(Architecture architecture) {
  WorldStep::Options options;
  options.model = small_shape(architecture);
  options.init.seed = 7;
  options.batch.lanes = 3;
  options.batch.micro_batch = 2;
  options.seq_len = 24;
  options.total_steps = 1000;
  options.optimizer.lr = 1e-2;
  options.schedule.name = "constant";
  options.parallel.wrapping = {"per_block"};  // By size it would be one group.
  return options;
}

/// Text that repeats every 7 tokens, another phase for each sequence.
inline WorldStep::ReadLane repeating_text(const WorldStep::Options& options) {
  return
      [options](std::int64_t step, std::int64_t lane, std::int32_t* tokens, std::int32_t* targets) {
        for (std::int64_t s = 0; s < options.batch.micro_batch; ++s) {
          for (std::int64_t t = 0; t < options.seq_len; ++t) {
            const std::int64_t position = step + 3 * lane + 5 * s + t;
            tokens[s * options.seq_len + t] = static_cast<std::int32_t>(position % 7 * 5);
            targets[s * options.seq_len + t] = static_cast<std::int32_t>((position + 1) % 7 * 5);
          }
        }
      };
}

/// The rows that `rank` keeps of the tensor called `name` ("model.lm_head.weight").
inline std::span<float> state_of(const RankEngine& rank, const std::string& name) {
  for (const StateView& view : rank.state().views()) {
    if (view.name == name) {
      return {reinterpret_cast<float*>(view.data), view.size_bytes / sizeof(float)};
    }
  }
  TRAIN_CHECK(false, "no {}", name);
  return {};
}

/// The reduced gradient of the rows that a rank owns of one parameter, [rows, cols].
struct GradientShard {
  std::string name;
  std::size_t unit = 0;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 1;
  float* data = nullptr;
};

/// Of all parameters, in the order of the model's groups; valid until the next step.
inline std::vector<GradientShard> gradients_of(const RankEngine& rank) {
  std::vector<GradientShard> shards;
  for (std::size_t group = 0; group < rank.plan().groups().size(); ++group) {
    const std::size_t first = shards.size();
    for (const std::size_t unit : rank.plan().groups()[group].units) {
      for (const Parameter& parameter : rank.plan().units()[unit].parameters) {
        shards.push_back({.name = parameter.name, .unit = unit, .cols = parameter.cols()});
      }
    }
    for (const Segment& segment : rank.rank_plan().layout(group).reduce.segments) {
      GradientShard& shard = shards[first + segment.parameter];
      shard.first_row = segment.first_row;
      shard.rows = segment.rows;
      shard.data = rank.gradients().reduced(group) + segment.packed_offset;
    }
  }
  return shards;
}

/// The weights that `rank` keeps of all parameters, one after the other.
inline std::vector<std::span<float>> weights_of(const RankEngine& rank) {
  std::vector<std::span<float>> weights;
  for (const GradientShard& shard : gradients_of(rank)) {
    weights.push_back(state_of(rank, "model." + shard.name));
  }
  return weights;
}

/// The reduced gradient of the rows that `rank` owns of a parameter.
inline std::span<const float> values_of(const GradientShard& shard) {
  return {shard.data, static_cast<std::size_t>(shard.rows * shard.cols)};
}

}  // namespace train::engine::testing
