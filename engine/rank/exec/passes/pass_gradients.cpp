#include "engine/rank/exec/passes/pass_gradients.hpp"

#include "base/check.hpp"
#include "base/text/byte_sizes.hpp"
#include "kernels/activation/elementwise.hpp"
#include "kernels/backend.hpp"

namespace train::engine {

PassGradients::PassGradients(const RankPlan& rank, const RankState& state, const StepTotals& totals)
    : rank_(&rank),
      state_(&state),
      totals_(&totals),
      agreeing_(floats(rank.layout().largest_segment()), "agreeing gradients",
                rank.device().memory) {
  TRAIN_CHECK(rank.objective().several_passes(), "steps have one pass");
  for (std::size_t group = 0; group < rank.group_count(); ++group) {
    kept_.emplace_back(floats(rank.layout(group).reduce.element_count),
                       "first gradient of " + rank.group(group).name, rank.device().memory);
  }
  if (!rank.objective().reads_first_weights()) {
    return;
  }
  const kernels::Device& device = rank.device();
  const auto stream =
      device.is_host() ? kernels::make_inline_stream(1) : device.make_stream("first weights", 1);
  for (std::size_t group = 0; group < rank.group_count(); ++group) {
    start_.emplace_back(floats(rank.layout(group).reduce.element_count),
                        "first weights of " + rank.group(group).name, device.memory);
    for (const Segment& segment : rank.layout(group).reduce.segments) {
      copy(*stream, start_[group].as<float>() + segment.packed_offset,
           state.group(group).master(segment.parameter, segment.first_row), segment.count);
    }
  }
  stream->synchronize();
}

void PassGradients::copy(kernels::Stream& stream, float* to, const float* from,
                         std::int64_t count) const {
  rank_->kernels().copy(
      stream, {.out = to, .in = from, .size_bytes = static_cast<std::int64_t>(floats(count))});
}

void PassGradients::pull(kernels::Stream& stream, std::size_t group, const LaneWork& work,
                         float* gradient) const {
  const kernels::KernelTable& kernels = rank_->kernels();
  const auto twice = static_cast<float>(2.0 * rank_->pass(work.pass).pull);
  auto* distance = agreeing_.as<float>();
  for (const Segment& segment : rank_->layout(group).reduce.segments) {
    if (!rank_->trains(rank_->unit_of(group, segment.parameter), work.step)) {
      continue;
    }
    find_distance(stream, group, segment, distance);
    float* to = gradient + segment.packed_offset;
    kernels.residual_add(
        stream, {.x = to, .branch = distance, .out = to, .scale = twice, .count = segment.count});
  }
}

void PassGradients::find_distance(kernels::Stream& stream, std::size_t group,
                                  const Segment& segment, float* out) const {
  rank_->kernels().residual_add(
      stream, {.x = state_->group(group).master(segment.parameter, segment.first_row),
               .branch = start_[group].as<float>() + segment.packed_offset,
               .out = out,
               .scale = -1.0F,
               .count = segment.count});
}

void PassGradients::measure_distances(kernels::Stream& stream, std::size_t group,
                                      float* scratch) const {
  for (const Segment& segment : rank_->layout(group).reduce.segments) {
    find_distance(stream, group, segment, scratch + segment.packed_offset);
  }
  totals_->add_pass_norms(stream, group, scratch);
}

void PassGradients::reward_distances(kernels::Stream& stream, std::size_t group, std::int64_t step,
                                     float* gradient) const {
  const kernels::KernelTable& kernels = rank_->kernels();
  auto* distance = agreeing_.as<float>();
  for (const Segment& segment : rank_->layout(group).reduce.segments) {
    float* out = gradient + segment.packed_offset;
    if (!rank_->trains(rank_->unit_of(group, segment.parameter), step)) {
      kernels.fill(stream, {.out = out, .value = 0.0F, .count = segment.count});
      continue;
    }
    find_distance(stream, group, segment, distance);
    // The factor is the device's, so that no host waits for norms.
    kernels.scale(stream, {.x = distance,
                           .y = out,
                           .factor = totals_->passes().distance_factor(group, segment.parameter),
                           .count = segment.count});
  }
}

void PassGradients::finish(kernels::Stream& stream, std::size_t group, const LaneWork& work,
                           float* gradient) {
  const bool last = work.pass.updates();
  const Pass& pass = rank_->pass(work.pass);
  if (pass.source == GradientSource::distances) {
    reward_distances(stream, group, work.step, gradient);
  }
  if (pass.pull > 0.0) {
    pull(stream, group, work, gradient);
  }
  last ? totals_->add_pass_norms(stream, group, gradient)
       : totals_->add_norms(stream, group, gradient);
  const std::vector<Segment>& segments = rank_->layout(group).reduce.segments;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const Segment& segment = segments[i];
    float* kept = kept_[group].as<float>() + segment.packed_offset;
    float* next = gradient + segment.packed_offset;
    const bool trained = rank_->trains(rank_->unit_of(group, segment.parameter), work.step);
    if (trained && work.pass.number == 0) {
      copy(stream, kept, next, segment.count);
    } else if (trained) {
      join(stream, {.kept = kept,
                    .next = next,
                    .out = last ? next : kept,
                    .count = segment.count,
                    .agreeing = totals_->passes().agreement(group, i)});
    } else if (last) {
      rank_->kernels().fill(stream, {.out = next, .value = 0.0F, .count = segment.count});
    }
  }
  if (last) {
    totals_->add_norms(stream, group, gradient);
  } else if (totals_->passes().measures_distances(work.pass)) {
    measure_distances(stream, group, gradient);
  }
}

void PassGradients::join(kernels::Stream& stream, const Rows& rows) const {
  const kernels::KernelTable& kernels = rank_->kernels();
  const GradientJoin how = rank_->objective().join();
  auto* agreeing = agreeing_.as<float>();
  copy(stream, agreeing, rows.next, rows.count);
  kernels.mask_sign(stream, {.g = agreeing, .other = rows.kept, .count = rows.count});
  const float* next = how == GradientJoin::sum ? rows.next : agreeing;
  kernels.count_nonzero(stream, {.x = agreeing, .count = rows.count, .nonzero = rows.agreeing});
  totals_->passes().agreement_counted(stream, rows.agreeing);
  if (how == GradientJoin::symmetric) {
    kernels.mask_sign(stream, {.g = rows.kept, .other = agreeing, .count = rows.count});
  }
  kernels.tree_add(stream,
                   {.left = rows.kept, .right = next, .out = rows.out, .count = rows.count});
}

namespace {

std::size_t bytes_of_all(const std::vector<kernels::Buffer>& buffers) {
  std::size_t bytes = 0;
  for (const kernels::Buffer& buffer : buffers) {
    bytes += buffer.size_bytes();
  }
  return bytes;
}

}  // namespace

std::size_t PassGradients::kept_bytes() const { return bytes_of_all(kept_); }

std::size_t PassGradients::start_bytes() const { return bytes_of_all(start_); }

}  // namespace train::engine
