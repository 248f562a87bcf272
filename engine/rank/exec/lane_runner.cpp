#include "engine/rank/exec/lane_runner.hpp"

#include <functional>

#include "base/check.hpp"
#include "base/text/byte_sizes.hpp"
#include "kernels/activation/elementwise.hpp"
#include "kernels/backend.hpp"

namespace train::engine {
namespace {

kernels::Mark mark_of(const char* what, std::size_t unit, const LaneWork& work) {
  return {.what = what,
          .step = work.step,
          .unit = static_cast<std::int32_t>(unit),
          .lane = static_cast<std::int32_t>(work.lane)};
}

std::size_t slot_bytes(const RankPlan& rank) {
  return bytes_of(rank.lane_tokens() * rank.options().lane_slots, sizeof(std::int32_t));
}

}  // namespace

LaneRunner::LaneRunner(const RankPlan& rank, const Parts& parts)
    : rank_(&rank),
      parts_(parts),
      tokens_(rank.kernels(), slot_bytes(rank), "lane tokens"),
      targets_(rank.kernels(), slot_bytes(rank), "lane targets"),
      head_(rank, parts.model,
            {.lanes = parts.totals.lanes(),
             .scores = parts.scores,
             .sampled = parts.sampled,
             .reference = parts.reference}) {
  if (rank.has_positions()) {
    positions_.emplace(rank.kernels(), slot_bytes(rank), "lane positions");
  }
  if (rank.objective().columns().weights) {
    weights_.emplace(rank.kernels(), slot_bytes(rank), "lane weights");
  }
}

LaneSlot LaneRunner::slot(std::int32_t slot) const {
  const auto count = static_cast<std::size_t>(rank_->lane_tokens());
  const std::size_t first = static_cast<std::size_t>(slot) * count;
  LaneSlot columns{.tokens = {slot_tokens(slot), count},
                   .targets = {slot_targets(slot), count},
                   .positions = {},
                   .weights = {},
                   .sequences = head_.sequences(slot),
                   .sources = head_.sources(slot)};
  if (positions_) {
    columns.positions = {positions_->host<std::int32_t>() + first, count};
  }
  if (weights_) {
    columns.weights = {weights_->host<float>() + first, count};
  }
  return columns;
}

std::int32_t* LaneRunner::slot_tokens(std::int32_t slot) const {
  return tokens_.host<std::int32_t>() + slot * rank_->lane_tokens();
}

std::int32_t* LaneRunner::slot_targets(std::int32_t slot) const {
  return targets_.host<std::int32_t>() + slot * rank_->lane_tokens();
}

void LaneRunner::copy_lane(kernels::Stream& stream, std::int32_t number) const {
  const LaneSlot columns = slot(number);
  tokens_.to_device(stream, columns.tokens.data(), columns.tokens.size());
  targets_.to_device(stream, columns.targets.data(), columns.targets.size());
  if (positions_) {
    positions_->to_device(stream, columns.positions.data(), columns.positions.size());
  }
  if (weights_) {
    weights_->to_device(stream, columns.weights.data(), columns.weights.size());
  }
}

Lane LaneRunner::make_lane(const LaneWork& work, bool makes_loss) const {
  const RankOptions& options = rank_->options();
  const bool evaluation = !work.pass.has_backward();
  const Pass& pass = rank_->pass(work.pass);
  const bool scored = work.pass.loss == LossUse::scores;
  const bool sampled = work.pass.loss == LossUse::tokens;
  const bool sums_up = !scored && !sampled;
  const bool in_documents = scored || (!sampled && rank_->objective().columns().positions);
  // An evaluation's sums are divided by what it counted itself.
  const auto scale = [&](double factor) {
    const bool scaled = makes_loss && !evaluation;
    return scaled ? static_cast<float>(rank_->loss_factor(work.pass, work.step) *
                                       rank_->step_mean(work.step, factor, work.pass.number))
                  : 0.0F;
  };
  const std::int64_t first = work.slot * rank_->lane_tokens();
  return {.step = work.step,
          .index = work.lane,
          .sequences = sampled ? 1 : options.batch.micro_batch,
          .seq_len = sampled ? SampledTokens::rows_of(work, options.seq_len) : options.seq_len,
          .tokens = tokens_.device<std::int32_t>() + first,
          .positions = in_documents ? positions_->device<std::int32_t>() + first : nullptr,
          .targets = sampled ? nullptr : targets_.device<std::int32_t>() + first,
          .row_weights = weights_ && sums_up ? weights_->device<float>() + first : nullptr,
          .sums = sums_up ? parts_.totals.lanes().sums(work) : nullptr,
          .block_sums = sums_up ? parts_.totals.lanes().block_sums(work) : nullptr,
          .step_sums = evaluation ? nullptr : parts_.totals.lanes().step_sums(),
          .sums_alone = work.pass.loss == LossUse::block_sums,
          .label_smoothing = pass.head.label_smoothing,
          .row_loss = makes_loss ? pass.head.row_loss : kernels::RowLoss::cross_entropy,
          .top_k = pass.head.top_k,
          .reference_input = makes_loss ? head_.reference_input(work) : nullptr,
          .loss_scale = scale(1.0),
          .z_scale = head_.weighs() ? 0.0F : scale(static_cast<double>(options.model.z_loss_coeff)),
          .lane_scale =
              evaluation ? 0.0F : 1.0F / static_cast<float>(rank_->plan().train_lanes().lanes()),
          .with_gradient = !evaluation,
          .adapters = !work.pass.frozen};
}

ConstElements LaneRunner::group_weights(std::size_t group, const LaneWork& work,
                                        UnitBuffers place) const {
  if (parts_.reference_weights.serve(work.pass, group) && rank_->layout(group).resident) {
    return parts_.reference_weights.whole(group);
  }
  if (rank_->layout(group).made) {
    return parts_.state.made_weights();
  }
  if (rank_->plan().resident(group)) {
    return parts_.state.group(group).whole();
  }
  const auto& gathers = rank_->schedule(work.pass).gathers();
  TRAIN_CHECK(place.gather >= 0, "{} has no weights reserved", rank_->group(group).name);
  const Reservation& reservation = gathers.at(static_cast<std::size_t>(place.gather));
  TRAIN_CHECK(reservation.group == group, "reservation {} is not one of {}", place.gather,
              rank_->group(group).name);
  return parts_.gathered.of(reservation);
}

UnitMemory LaneRunner::memory_of(std::size_t unit, const LaneWork& work, UnitBuffers place,
                                 bool with_gradient) const {
  const std::size_t group = rank_->plan().group_of(unit);
  const std::int64_t base = rank_->plan().base_of(unit);
  const ConstElements weights = group_weights(group, work, place);
  float* gradient =
      with_gradient ? parts_.gradients.of_lane(group, work, place.gradient_buffer) : nullptr;
  const std::int64_t gradient_base = rank_->plan().gradient_base_of(unit);
  UnitMemory memory{.weights = weights + base,
                    .gradient = gradient == nullptr ? nullptr : gradient + gradient_base};
  if (rank_->options().model.tie_embeddings) {
    // The embedding is the first unit of its group, and the head is in the same one.
    memory.tied_weights = weights;
    memory.tied_gradient = gradient;
  }
  return memory;
}

void LaneRunner::clear_nonfinite_counts(kernels::Stream& stream, std::size_t unit, bool backward,
                                        const LaneWork& work, UnitBuffers place) const {
  // Padding is counted with the rest, and a shared gradient buffer has another group's values
  // there.
  const std::size_t group = rank_->plan().group_of(unit);
  const std::size_t last_unit = rank_->group(group).last_unit();
  const bool in_forward = rank_->plan().units()[last_unit].traits.gradient_in_forward;
  const bool first = unit == last_unit && backward != in_forward;
  const bool trained = rank_->group(group).trained();
  if (work.pass.searches() && first && trained) {
    rank_->kernels().fill(stream,
                          {.out = parts_.gradients.of_lane(group, work, place.gradient_buffer),
                           .value = 0.0F,
                           .count = rank_->group(group).gradient_count});
  }
}

void LaneRunner::count_nonfinite_gradient(kernels::Stream& stream, std::size_t unit,
                                          const LaneWork& work, UnitBuffers place) const {
  std::int64_t* count = parts_.totals.nonfinite_counts().count(work, unit, /*backward=*/true);
  const std::size_t group = rank_->plan().group_of(unit);
  const float* gradient = parts_.gradients.of_lane(group, work, place.gradient_buffer);
  const std::int64_t elements = rank_->plan().units()[unit].gradient_count();
  rank_->kernels().count_nonfinite(
      stream, {.x = elements == 0 ? gradient : gradient + rank_->plan().gradient_base_of(unit),
               .count = elements,
               .nonfinite = count});
  parts_.totals.nonfinite_counts().counted(stream, count);
}

void LaneRunner::begin_lane(kernels::Stream& stream, const LaneWork& work, bool reads_rows) const {
  if (reads_rows) {
    copy_lane(stream, work.slot);
  }
  parts_.totals.lanes().clear_block_sums(stream, work);
}

void LaneRunner::forward(kernels::Stream& stream, std::size_t unit, const LaneWork& work,
                         UnitBuffers place) {
  stream.mark(mark_of("forward", unit, work));
  LayerUnit& layer = parts_.model.unit(unit);
  const ComparedOutputs compared(*rank_, work);
  const bool left_out = compared.end_below(unit) || idle(work);
  const Lane lane = make_lane(work, layer.traits().makes_loss || compared.index_of(unit));
  if (unit == 0) {
    begin_lane(stream, work, !left_out);
  }
  const bool with_gradient = lane.with_gradient && layer.traits().gradient_in_forward;
  if (with_gradient) {
    clear_nonfinite_counts(stream, unit, /*backward=*/false, work, place);
  }
  if (const std::size_t group = rank_->plan().group_of(unit);
      !left_out && !parts_.reference_weights.serve(work.pass, group)) {
    parts_.state.make_weights(stream, group);
  }
  const UnitMemory memory = memory_of(unit, work, place, with_gradient);
  if (layer.traits().makes_loss) {
    parts_.totals.lanes().blocks_summed(stream, work);
  }
  if (!left_out && layer.traits().makes_loss) {
    head_.forward(stream, work, memory, lane, slot(work.slot));
  } else if (!left_out) {
    layer.forward(stream, memory, lane);
  }
  if (compared.index_of(unit)) {
    head_.compare_output(stream, unit, work, lane, compared);
  }
  if (work.pass.searches()) {
    std::int64_t* count = parts_.totals.nonfinite_counts().count(work, unit, /*backward=*/false);
    layer.count_nonfinite_output(stream, left_out ? Lane{} : lane, count);
    parts_.totals.nonfinite_counts().counted(stream, count);
  }
}

bool LaneRunner::idle(const LaneWork& work) const {
  return rank_->pass(work.pass).source == GradientSource::distances;
}

void LaneRunner::backward(kernels::Stream& stream, std::size_t unit, const LaneWork& work,
                          UnitBuffers place) {
  stream.mark(mark_of("backward", unit, work));
  clear_nonfinite_counts(stream, unit, /*backward=*/true, work, place);
  const std::size_t group = rank_->plan().group_of(unit);
  if (!rank_->plan().below_trained(unit)) {
    find_gradient(stream, unit, work, place);
  }
  if (work.pass.searches()) {
    count_nonfinite_gradient(stream, unit, work, place);
  } else if (unit == rank_->group(group).first_unit() && rank_->group(group).trained()) {
    parts_.gradients.lane_complete(stream, group, work,
                                   parts_.gradients.of_lane(group, work, place.gradient_buffer));
  }
}

void LaneRunner::find_gradient(kernels::Stream& stream, std::size_t unit, const LaneWork& work,
                               UnitBuffers place) {
  const ComparedOutputs compared(*rank_, work);
  const UnitMemory memory = memory_of(unit, work, place, true);
  if (compared.end_below(unit) || idle(work)) {
    rank_->kernels().fill(stream, {.out = memory.gradient,
                                   .value = 0.0F,
                                   .count = rank_->plan().units()[unit].gradient_count()});
    return;
  }
  parts_.state.make_weights(stream, rank_->plan().group_of(unit));
  const Lane lane = make_lane(work, /*makes_loss=*/false);
  if (compared.index_of(unit)) {
    head_.add_output_gradient(stream, unit, work, lane, compared);
  }
  parts_.model.unit(unit).backward(stream, memory, lane);
}

void LaneRunner::add_allocated(MemoryPlan& memory) const {
  memory.buffers_bytes += tokens_.size_bytes() + targets_.size_bytes();
  for (const auto& column : {std::cref(positions_), std::cref(weights_)}) {
    memory.buffers_bytes += column.get() ? column.get()->size_bytes() : 0;
  }
  head_.add_allocated(memory);
}

}  // namespace train::engine
