#include "engine/rank/exec/lane_head.hpp"

#include "kernels/activation/elementwise.hpp"
#include "kernels/backend.hpp"
#include "kernels/head/log_probs.hpp"

namespace train::engine {

LaneHead::LaneHead(const RankPlan& rank, Model& model, const Results& results)
    : rank_(&rank),
      model_(&model),
      lanes_(&results.lanes),
      scores_(&results.scores),
      sampled_(&results.sampled),
      frozen_(rank) {
  if (rank.objective().any_weighting() != nullptr) {
    weighting_.emplace(rank, results.reference);
  }
  if (rank.options().sources > 0) {
    source_sums_.emplace(rank);
  }
}

std::span<std::int32_t> LaneHead::sources(std::int32_t slot) const {
  return source_sums_ ? source_sums_->sources(slot) : std::span<std::int32_t>();
}

std::span<LaneSequence> LaneHead::sequences(std::int32_t slot) const {
  return weighting_ ? weighting_->sequences(slot) : std::span<LaneSequence>();
}

const std::byte* LaneHead::reference_input(const LaneWork& work) const {
  const bool diverges = rank_->pass(work.pass).head.row_loss == kernels::RowLoss::divergence;
  return diverges ? frozen_.of(work).data : nullptr;
}

void LaneHead::forward(kernels::Stream& stream, const LaneWork& work, const UnitMemory& memory,
                       const Lane& lane, const LaneSlot& columns) {
  const bool weighs = rank_->pass(work.pass).head.weighting != nullptr;
  switch (work.pass.loss) {
    case LossUse::summed:
      return weighs ? weigh(stream, work, memory, lane, columns)
                    : sum_loss(stream, work, memory, lane, columns);
    case LossUse::scores:
      return score(stream, work, memory, lane, columns);
    case LossUse::tokens:
      return sample(stream, work, memory, lane);
    case LossUse::references:
      find_log_probs(stream, work, memory, lane);
      return weighting_->keep_as_reference(stream, work, {columns.targets, columns.weights});
    case LossUse::compared:
      return keep_input(stream, work, memory, lane);
    case LossUse::block_sums:
      return;
  }
}

void LaneHead::sum_loss(kernels::Stream& stream, const LaneWork& work, const UnitMemory& memory,
                        const Lane& lane, const LaneSlot& columns) const {
  head().forward(stream, memory, lane);
  lanes_->summed(stream, work);
  if (source_sums_) {
    source_sums_->add(stream, model_->row_terms(), columns, lanes_->source_sums(work));
  }
}

void LaneHead::score(kernels::Stream& stream, const LaneWork& work, const UnitMemory& memory,
                     const Lane& lane, const LaneSlot& columns) const {
  model_->row_log_probs(stream, memory, lane, scores_->results());
  scores_->lane_scored(stream, work, columns.targets, columns.positions);
}

void LaneHead::sample(kernels::Stream& stream, const LaneWork& work, const UnitMemory& memory,
                      const Lane& lane) const {
  head().forward(stream, memory, lane);  // Without targets: the final norm alone.
  const std::int64_t last = SampledTokens::last_row(work, rank_->options().seq_len);
  model_->row_logits(stream, memory, last, 1, sampled_->logits());
  sampled_->logits_computed(stream, work);
}

void LaneHead::keep_input(kernels::Stream& stream, const LaneWork& work, const UnitMemory& memory,
                          Lane lane) const {
  lane.targets = nullptr;  // Nothing but the final norm.
  head().forward(stream, memory, lane);
  rank_->kernels().copy(stream, {.out = frozen_.of(work).data,
                                 .in = model_->head_input().data,
                                 .size_bytes = static_cast<std::int64_t>(frozen_.lane_bytes())});
}

void LaneHead::find_log_probs(kernels::Stream& stream, const LaneWork& work,
                              const UnitMemory& memory, const Lane& lane) const {
  model_->row_log_probs(stream, memory, lane, weighting_->results());
  if (weighting_->reads_frozen()) {
    model_->log_probs_of(stream, memory, lane, frozen_.of(work).data, weighting_->frozen_results());
  }
}

void LaneHead::weigh(kernels::Stream& stream, const LaneWork& work, const UnitMemory& memory,
                     Lane lane, const LaneSlot& columns) {
  find_log_probs(stream, work, memory, lane);
  const LaneSums::Outcome outcome = lanes_->outcome(work);
  weighting_->weigh(stream, work.slot, {columns.targets, columns.weights, columns.sources},
                    {outcome.sums, outcome.metrics, lanes_->source_sums(work)});
  if (lane.with_gradient) {
    // The head's sums over weighted rows mean nothing: the lane reports the objective's sums.
    lane.row_weights = weighting_->row_weights();
    lane.sums = lanes_->unread();
    head().forward(stream, memory, lane);
  }
}

void LaneHead::compare_output(kernels::Stream& stream, std::size_t unit, const LaneWork& work,
                              const Lane& lane, const ComparedOutputs& compared) const {
  const std::size_t index = *compared.index_of(unit);
  const Elements kept = frozen_.of(work, index);
  if (work.pass.loss == LossUse::compared) {
    rank_->kernels().copy(stream, {.out = kept.data,
                                   .in = model_->output(unit).data,
                                   .size_bytes = static_cast<std::int64_t>(frozen_.lane_bytes())});
    return;
  }
  model_->output_distance(
      stream, lane,
      {.unit = unit, .reference = kept.data, .outputs = compared.count(), .first = index == 0});
  if (compared.highest(unit)) {
    lanes_->summed(stream, work);
  }
}

void LaneHead::add_output_gradient(kernels::Stream& stream, std::size_t unit, const LaneWork& work,
                                   const Lane& lane, const ComparedOutputs& compared) const {
  model_->add_output_gradient(stream, lane, frozen_.of(work, *compared.index_of(unit)),
                              /*adds=*/!compared.highest(unit));
}

void LaneHead::add_allocated(MemoryPlan& memory) const {
  memory.buffers_bytes += (weighting_ ? weighting_->allocated_bytes() : 0) +
                          (source_sums_ ? source_sums_->allocated_bytes() : 0);
  memory.reference_bytes += frozen_.allocated_bytes();
}

}  // namespace train::engine
