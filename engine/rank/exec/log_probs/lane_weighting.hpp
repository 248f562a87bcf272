#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/command.hpp"
#include "engine/host_state.hpp"
#include "engine/objective/row_weighting.hpp"
#include "engine/rank/exec/log_probs/reference_log_probs.hpp"
#include "engine/rank/plan/rank_plan.hpp"
#include "kernels/device/stream.hpp"

namespace train::engine {

/// Computes a lane's row weights from its log-probabilities by the objective's RowWeighting,
/// between the two passes over the head. The host does the work, in stream order: only a device's
/// stream waits for a lane.
///
/// Threading: weigh() only enqueues, always on the same stream; slots as LaneRunner's. Ownership:
/// owns the lists of sequences and what the passes hand over; borrows the rest.
class LaneWeighting {
 public:
  /// Host columns of a lane besides the log-probabilities; they live until the stream is past them.
  struct HostRows {
    std::span<const std::int32_t> targets;
    std::span<const float> weights;
    std::span<const std::int32_t> sources = {};  ///< LaneSlot::sources.
  };
  /// Memory of the host for a lane's results, overwritten in the stream's order.
  struct Results {
    kernels::LossSums* sums = nullptr;
    std::span<MetricSum> metrics;
    /// Loss by source: what the objective makes of the source's sequences alone. May be empty.
    std::span<MetricSum> by_source = {};
  };

  /// REQUIRES: any_weighting() of the objective.
  LaneWeighting(const RankPlan& rank, ReferenceLogProbs& reference);

  /// A slot's list for the host to write; a sequence of 0 rows ends it, if there is room.
  [[nodiscard]] std::span<LaneSequence> sequences(std::int32_t slot) const;
  /// Results of the first pass, in device memory.
  [[nodiscard]] kernels::LogProbResults results() const;
  /// True if the frozen copy (Compared) gives the references, which then are not kept by document.
  /// Its first pass over the rows writes frozen_results(), before weigh().
  [[nodiscard]] bool reads_frozen() const { return frozen_log_probs_.has_value(); }
  [[nodiscard]] kernels::LogProbResults frozen_results() const;
  /// Enqueues the weights of a lane whose first pass is enqueued.
  void weigh(kernels::Stream& stream, std::int32_t slot, const HostRows& rows,
             const Results& results);
  /// Enqueues that the log-probabilities of such a lane are those of the reference.
  void keep_as_reference(kernels::Stream& stream, const LaneWork& work, const HostRows& rows);
  /// The weights, for the second pass; the device's.
  [[nodiscard]] const float* row_weights() const { return row_weights_.device<float>(); }

  /// Bytes that this class allocates in an engine of `options`.
  [[nodiscard]] static std::size_t planned_bytes(const RankOptions& options,
                                                 const Objective& objective);
  [[nodiscard]] std::size_t allocated_bytes() const;

 private:
  void copy_out(kernels::Stream& stream, std::size_t count) const;
  [[nodiscard]] LaneLogProbs lane_of(std::int32_t slot, const HostRows& rows) const;
  void find_references(const LaneLogProbs& lane);
  void weigh_sources(const LaneLogProbs& lane, std::span<const std::int32_t> sources,
                     std::span<MetricSum> by_source) const;

  const RowWeighting* weighting_;
  ReferenceLogProbs* reference_;
  std::size_t capacity_;  // Sequences of a slot.
  mutable std::vector<LaneSequence> sequences_;
  std::vector<double> references_;  // References of the weighed lane.
  HostDeviceBuffer log_probs_, row_weights_;
  std::optional<HostDeviceBuffer> log_square_sums_;
  std::optional<HostDeviceBuffer> frozen_log_probs_;
};

}  // namespace train::engine
