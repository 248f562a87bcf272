#pragma once

#include <cstdint>
#include <vector>

#include "engine/rank/plan/rank_layout.hpp"
#include "engine/sharding/buffer_schedule.hpp"

namespace train::engine {

/// Who takes part in the collectives of a plan and how many bytes each rank sends and gets: what
/// RankLayout::staged() says of one rank, of all ranks, from one layout. Pure.
class ExchangeSizes {
 public:
  /// REQUIRES: plan_of(options) is not an error.
  explicit ExchangeSizes(const RankOptions& options);
  ExchangeSizes(const ExchangeSizes&) = delete;
  ExchangeSizes& operator=(const ExchangeSizes&) = delete;

  struct Bytes {
    double sent = 0.0;  ///< To all others.
    double received = 0.0;
  };

  [[nodiscard]] const ShardPlan& plan() const { return plan_; }
  /// Of a training step.
  [[nodiscard]] const BufferSchedule& schedule() const { return schedule_; }
  /// Ranks of the op that `rank` exchanges with, itself included, ascending.
  [[nodiscard]] std::vector<std::int64_t> peers(const CollectiveOp& op, std::int64_t rank) const;
  [[nodiscard]] Bytes bytes(const CollectiveOp& op, std::int64_t rank) const;
  /// Sums over lanes that all ranks send at the end of `sync`, and that `rank` does.
  [[nodiscard]] std::int64_t all_sums(std::int64_t sync) const;
  [[nodiscard]] std::int64_t sums(std::int64_t rank, std::int64_t sync) const;
  /// Rows of the group that `rank` reduces and updates, as bytes of fp32.
  [[nodiscard]] double reduced_bytes(std::size_t group, std::int64_t rank) const;
  [[nodiscard]] double updated_bytes(std::size_t group, std::int64_t rank) const;
  /// The whole group, as bytes of fp32.
  [[nodiscard]] double group_bytes(std::size_t group) const;

 private:
  [[nodiscard]] bool smaller_group(const CollectiveOp& op) const;
  [[nodiscard]] double packed_bytes(const CollectiveOp& op, std::int64_t rank) const;

  ShardPlan plan_;
  BufferSchedule schedule_;
  RankLayout layout_;
  std::vector<std::vector<std::int64_t>> reduced_, weights_, states_, kept_;  // by group, rank
  std::vector<std::vector<std::int64_t>> sums_;                               // by sync, rank
  std::vector<std::int64_t> all_sums_;                                        // by sync
};

}  // namespace train::engine
