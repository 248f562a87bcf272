#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "checkpoint/format/manifest.hpp"
#include "checkpoint/save/writer.hpp"
#include "engine/state_view.hpp"
#include "tests/support/checkpoints/whole_checkpoint.hpp"
#include "tests/support/disks/temp_directory.hpp"

namespace train::test {

/// The state of a small model: tensors of several ranks, and the views a checkpoint takes of them.
class SmallState {
 public:
  explicit SmallState(float base = 1.0F, std::int64_t rows = 7) {
    add("model.embedding", {rows, 3}, base);
    add("model.norm", {5}, base + 100);
    add("optimizer.exp_avg.model.embedding", {rows, 3}, base + 200);
    add("optimizer.step", {}, base + 300);
  }

  /// All of it.
  [[nodiscard]] std::vector<engine::StateView> views() { return views_of(0, 1); }

  /// Rank `rank`'s rows, cut unevenly; a scalar belongs to rank 0.
  [[nodiscard]] std::vector<engine::StateView> views_of(std::int64_t rank, std::int64_t ranks) {
    std::vector<engine::StateView> views;
    for (Tensor& tensor : tensors_) {
      const std::int64_t all = tensor.shape.empty() ? 1 : tensor.shape.front();
      const std::int64_t first = all * rank / ranks;
      const std::int64_t rows = all * (rank + 1) / ranks - first;
      const std::size_t row = tensor.values.size() / static_cast<std::size_t>(all);
      views.push_back({tensor.name, tensor.shape, first, rows,
                       reinterpret_cast<std::byte*>(tensor.values.data() +
                                                    static_cast<std::size_t>(first) * row),
                       static_cast<std::size_t>(rows) * row * sizeof(float)});
    }
    return views;
  }

  [[nodiscard]] std::vector<float> all_values() const {
    std::vector<float> values;
    for (const Tensor& tensor : tensors_) {
      values.insert(values.end(), tensor.values.begin(), tensor.values.end());
    }
    return values;
  }

 private:
  struct Tensor {
    std::string name;
    std::vector<std::int64_t> shape;
    std::vector<float> values;
  };
  void add(std::string name, std::vector<std::int64_t> shape, float base) {
    std::size_t count = 1;
    for (const std::int64_t dimension : shape) {
      count *= static_cast<std::size_t>(dimension);
    }
    Tensor tensor{std::move(name), std::move(shape), std::vector<float>(count)};
    for (std::size_t i = 0; i < count; ++i) {
      tensor.values[i] = base + static_cast<float>(i) * 0.25F;
    }
    tensors_.push_back(std::move(tensor));
  }

  std::vector<Tensor> tensors_;
};

inline checkpoint::ManifestFields fields_at(std::int64_t step) {
  return {.step = step,
          .tokens = step * 1024,
          .lanes = 4,
          .micro_batch = 2,
          .kernel_set = "cpu test",
          .config_text = "[run]\nname = \"x\" # \"manifest_digest\": \"xxh3-128:\n",
          .weights_digest = "",
          .index_head = ""};
}

/// Writes a checkpoint of `step` as `ranks` shards.
inline checkpoint::WriteOutcome write_at(const std::filesystem::path& checkpoints,
                                         std::int64_t step, SmallState state,
                                         std::int64_t ranks = 1) {
  CheckpointOfOneProcess incoming(checkpoints, step);
  std::vector<checkpoint::ShardRecord> shards;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    auto shard = incoming.write_shard(state.views_of(rank, ranks), {rank, ranks});
    REQUIRE(shard);
    shards.push_back(*shard);
  }
  auto outcome = incoming.publish(fields_at(step), shards);
  REQUIRE(outcome);
  return *outcome;
}

}  // namespace train::test
