#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/objective/objective.hpp"
#include "engine/rank/plan/rank_plan.hpp"
#include "kernels/device/stream.hpp"

namespace train::engine {

/// The log-probabilities of all documents of the data in the reference model, which is the model as
/// the run began: every rank has all of them. They are computed by kReference, lane by
/// lane, or restored. Memory of the host.
///
/// Threading: in the compute stream's order, but restore() and before its first work. Ownership:
/// owns the values; borrows the plan.
class ReferenceLogProbs {
 public:
  /// Reference log-probability of one document of a lane.
  struct Entry {
    std::int64_t document = -1;  ///< LaneSequence::document; -1: none.
    double log_prob = 0.0;
  };

  /// Holds RankOptions::reference_documents documents, all without a known value.
  explicit ReferenceLogProbs(const RankPlan& rank);

  /// NaN: not known.
  [[nodiscard]] double of(std::int64_t document) const {
    return values_[static_cast<std::size_t>(document)];
  }
  [[nodiscard]] std::span<const double> values() const { return values_; }
  /// REQUIRES: a value for each document.
  void restore(std::span<const double> values);

  /// Notes the digest of this rank's rows of the weights; its blocks carry the digest from here on.
  void note_weights(std::uint64_t digest);
  /// Digest over the rows of all ranks; 0: none was noted.
  [[nodiscard]] std::uint64_t weights_digest() const;

  /// Memory for all entries of a lane of this rank.
  [[nodiscard]] std::span<Entry> lane(std::int64_t lane);
  /// Block that `rank` sends for its lanes of one command.
  [[nodiscard]] std::span<std::byte> block(std::int64_t rank);
  /// Enqueues that the values of all lanes of one command, which are here, are known.
  void take(kernels::Stream& stream);

  /// Bytes that this class allocates in an engine of `options`, lanes of all ranks included.
  [[nodiscard]] static std::size_t planned_bytes(const RankOptions& options,
                                                 const Objective& objective);
  [[nodiscard]] std::size_t allocated_bytes() const {
    return values_.size() * sizeof(double) + entries_.size() * sizeof(Entry);
  }

 private:
  const RankPlan* rank_;
  std::size_t capacity_;  // Entries of a lane.
  std::vector<double> values_;
  /// Index of the first entry of a rank's block: one for its weights, then those of its lanes.
  [[nodiscard]] std::size_t block_at(std::int64_t rank) const;

  std::vector<std::size_t> lane_at_;  // Index of a lane's first entry.
  std::vector<Entry> entries_;
};

/// Sequences that a lane of these options has at most. Unless the data says how many, as many as
/// could be: each has a target, and so two tokens.
[[nodiscard]] std::size_t most_sequences(const RankOptions& options);

}  // namespace train::engine
