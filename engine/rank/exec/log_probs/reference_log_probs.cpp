#include "engine/rank/exec/log_probs/reference_log_probs.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/check.hpp"
#include "base/text/byte_sizes.hpp"

namespace train::engine {

std::size_t most_sequences(const RankOptions& options) {
  const std::int64_t possible = options.batch.micro_batch * options.seq_len / 2;
  return static_cast<std::size_t>(
      options.lane_sequences > 0 ? std::min(options.lane_sequences, possible) : possible);
}

ReferenceLogProbs::ReferenceLogProbs(const RankPlan& rank)
    : rank_(&rank), capacity_(most_sequences(rank.options())) {
  if (!needs_reference(rank.objective())) {
    capacity_ = 0;  // A frozen copy keeps nothing by document.
    entries_.resize(rank.objective().reads_frozen() ? block_at(rank.ranks()) : 0);
    return;
  }
  values_.assign(static_cast<std::size_t>(rank.options().reference_documents),
                 std::numeric_limits<double>::quiet_NaN());
  const LaneSchedule& lanes = rank.plan().train_lanes();
  lane_at_.resize(static_cast<std::size_t>(lanes.lanes()));
  entries_.resize(block_at(rank.ranks()));
  for (std::int64_t of_rank = 0; of_rank < rank.ranks(); ++of_rank) {
    std::size_t at = block_at(of_rank) + 1;
    for (const std::int64_t lane : lanes.lanes_of(of_rank)) {
      lane_at_[static_cast<std::size_t>(lane)] = at;
      at += capacity_;
    }
  }
}

void ReferenceLogProbs::restore(std::span<const double> values) {
  TRAIN_CHECK(values.size() == values_.size(), "{} values of {} documents", values.size(),
              values_.size());
  std::copy(values.begin(), values.end(), values_.begin());
}

std::size_t ReferenceLogProbs::block_at(std::int64_t rank) const {
  return static_cast<std::size_t>(rank_->layout().lane_block(rank)) * capacity_ +
         static_cast<std::size_t>(rank);
}

void ReferenceLogProbs::note_weights(std::uint64_t digest) {
  entries_.at(block_at(rank_->rank())).log_prob = std::bit_cast<double>(digest);
}

std::uint64_t ReferenceLogProbs::weights_digest() const {
  std::uint64_t sum = 0;
  for (std::int64_t rank = 0; rank < rank_->ranks(); ++rank) {
    sum += std::bit_cast<std::uint64_t>(entries_.at(block_at(rank)).log_prob);
  }
  return sum;
}

std::span<ReferenceLogProbs::Entry> ReferenceLogProbs::lane(std::int64_t lane) {
  return std::span(entries_).subspan(lane_at_.at(static_cast<std::size_t>(lane)), capacity_);
}

std::span<std::byte> ReferenceLogProbs::block(std::int64_t rank) {
  const std::size_t first = block_at(rank);
  return std::as_writable_bytes(std::span(entries_).subspan(first, block_at(rank + 1) - first));
}

void ReferenceLogProbs::take(kernels::Stream& stream) {
  stream.enqueue([this] {
    for (const Entry& entry : entries_) {
      if (entry.document >= 0) {
        values_.at(static_cast<std::size_t>(entry.document)) = entry.log_prob;
      }
    }
  });
}

std::size_t ReferenceLogProbs::planned_bytes(const RankOptions& options,
                                             const Objective& objective) {
  if (!needs_reference(objective)) {
    return objective.reads_frozen()
               ? static_cast<std::size_t>(options.parallel.ranks) * sizeof(Entry)
               : 0;
  }
  return bytes_of(options.reference_documents, sizeof(double)) +
         (static_cast<std::size_t>(options.batch.lanes) * most_sequences(options) +
          static_cast<std::size_t>(options.parallel.ranks)) *
             sizeof(Entry);
}

}  // namespace train::engine
