#pragma once

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/save/writer.hpp"
#include "engine/parameter.hpp"
#include "engine/sharding/shard_plan.hpp"
#include "engine/state_view.hpp"
#include "tests/checkpoint/checkpoint_fixture.hpp"
#include "tests/engine/sharding/shard_options.hpp"

namespace train::test {

/// Every tensor of a training state, whole, and the rows of them that ranks of a plan see. Weights
/// are random, so that rows at the wrong place are noticed.
class PlannedState {
 public:
  enum class Content : std::uint8_t { random, nan };

  PlannedState(const std::vector<engine::UnitParameters>& units, Content content) {
    std::mt19937 random(7);
    for (const engine::UnitParameters& unit : units) {
      for (const engine::Parameter& parameter : unit.parameters) {
        for (const char* prefix : {"model.", "optimizer.exp_avg.", "optimizer.exp_avg_sq."}) {
          auto& values = tensors_[prefix + parameter.name];
          values.resize(static_cast<std::size_t>(parameter.rows() * parameter.cols()),
                        std::numeric_limits<float>::quiet_NaN());
          for (float& value : values) {
            value = content == Content::nan ? value : static_cast<float>(random() % 100'000) + 0.5F;
          }
        }
      }
    }
  }

  /// What a rank writes: the rows whose gradient it finishes.
  std::vector<engine::StateView> shard_views(const engine::ShardPlan& plan, std::int64_t rank) {
    std::vector<engine::StateView> views;
    for (std::size_t group = 0; group < plan.groups().size(); ++group) {
      append(plan.groups()[group], plan.reduce_part(group, rank), views);
    }
    return views;
  }

  /// What a rank keeps: rows of masters and moments, and all weights where they are resident.
  std::vector<engine::StateView> kept_views(const engine::ShardPlan& plan, std::int64_t rank) {
    std::vector<engine::StateView> views;
    for (std::size_t group = 0; group < plan.groups().size(); ++group) {
      append(plan.groups()[group], plan.state_part(group, rank), views);
      for (const engine::Parameter& parameter : plan.groups()[group].parameters) {
        if (plan.resident(group)) {
          views.push_back(view("model.", parameter, 0, parameter.rows()));
        }
      }
    }
    return views;
  }

  /// The bytes that a view points at, in another state of the same tensors.
  [[nodiscard]] const std::byte* same_place(const engine::StateView& view) const {
    const std::vector<float>& values = tensors_.at(view.name);
    const std::size_t row = values.size() / static_cast<std::size_t>(view.global_shape[0]);
    return reinterpret_cast<const std::byte*>(values.data() +
                                              row * static_cast<std::size_t>(view.first_row));
  }

 private:
  engine::StateView view(const std::string& prefix, const engine::Parameter& parameter,
                         std::int64_t first, std::int64_t rows) {
    float* data = tensors_.at(prefix + parameter.name).data() + first * parameter.cols();
    return {prefix + parameter.name,
            parameter.shape,
            first,
            rows,
            reinterpret_cast<std::byte*>(data),
            static_cast<std::size_t>(rows * parameter.cols()) * sizeof(float)};
  }

  void append(const engine::ShardGroup& group, const engine::Part& part,
              std::vector<engine::StateView>& views) {
    for (const engine::Segment& segment : part.segments) {
      for (const char* prefix : {"model.", "optimizer.exp_avg.", "optimizer.exp_avg_sq."}) {
        views.push_back(
            view(prefix, group.parameters[segment.parameter], segment.first_row, segment.rows));
      }
    }
  }

  std::map<std::string, std::vector<float>> tensors_;
};

/// A transformer's tensors in their usual proportions: 24 MB with the moments.
inline std::vector<engine::UnitParameters> usual_units() {
  using engine::testing::unit_of;
  constexpr std::int64_t width = 192;
  std::vector<engine::UnitParameters> units;
  units.push_back(unit_of("embedding", {{.name = "wte", .shape = {1031, width}}}));
  for (int i = 0; i < 4; ++i) {
    const std::string prefix = "block." + std::to_string(i);
    units.push_back(unit_of("block " + std::to_string(i),
                            {{.name = prefix + ".norm", .shape = {width}},
                             {.name = prefix + ".qkv", .shape = {3 * width, width}},
                             {.name = prefix + ".out", .shape = {width, width}},
                             {.name = prefix + ".up", .shape = {4 * width, width}},
                             {.name = prefix + ".down", .shape = {width, 4 * width}}}));
  }
  units.push_back(unit_of("head", {{.name = "ln_f", .shape = {width}}}));
  return units;
}

using engine::testing::plan_with;

/// A checkpoint as the ranks of `plan` write it.
inline checkpoint::WriteOutcome write_planned(const std::filesystem::path& checkpoints,
                                              std::int64_t step, PlannedState& state,
                                              const engine::ShardPlan& plan) {
  CheckpointOfOneProcess incoming(checkpoints, step);
  std::vector<checkpoint::ShardRecord> shards;
  for (std::int64_t rank = 0; rank < plan.ranks(); ++rank) {
    auto shard = incoming.write_shard(state.shard_views(plan, rank), {rank, plan.ranks()});
    REQUIRE(shard);
    shards.push_back(std::move(*shard));
  }
  auto outcome = incoming.publish(fields_at(step), shards);
  REQUIRE(outcome);
  return std::move(*outcome);
}

/// Whether the views hold what `original` has at the same places.
inline bool holds(const PlannedState& original, const std::vector<engine::StateView>& views) {
  for (const engine::StateView& view : views) {
    if (std::memcmp(view.data, original.same_place(view), view.size_bytes) != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace train::test
