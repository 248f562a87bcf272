#include "engine/rank/pass_gradients.hpp"

#include "base/byte_sizes.hpp"
#include "base/check.hpp"

namespace train::engine {

PassGradients::PassGradients(const RankPlan& rank, const StepTotals& totals)
    : rank_(&rank),
      totals_(&totals),
      agreeing_(floats(rank.layout().largest_segment()), "agreeing gradients",
                rank.device().memory) {
  TRAIN_CHECK(rank.objective().program() != nullptr, "steps have one pass");
  for (std::size_t group = 0; group < rank.group_count(); ++group) {
    kept_.emplace_back(floats(rank.layout(group).reduce.element_count),
                       "first gradient of " + rank.group(group).name, rank.device().memory);
  }
}

void PassGradients::finish(kernels::Stream& stream, std::size_t group, const LaneWork& work,
                           float* gradient) {
  const kernels::KernelTable& kernels = rank_->kernels();
  const bool first = StepProgram::pass_of(work.kind) == StepProgram::Pass::first;
  if (first) {
    totals_->add_norms(stream, group, gradient);
  } else {
    totals_->add_pass_norms(stream, group, gradient);
  }
  const std::vector<Segment>& segments = rank_->layout(group).reduce.segments;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const Segment& segment = segments[i];
    const Rows rows{.first = kept_[group].as<float>() + segment.packed_offset,
                    .second = gradient + segment.packed_offset,
                    .count = segment.count,
                    .agreeing = totals_->agreement(group, i)};
    const bool trained = rank_->trains(rank_->unit_of(group, segment.parameter), work.step);
    if (trained && first) {
      kernels.copy(stream, {.out = rows.first,
                            .in = rows.second,
                            .size_bytes = static_cast<std::int64_t>(floats(rows.count))});
    } else if (trained) {
      join(stream, rows);
    } else if (!first) {
      kernels.fill(stream, {.out = rows.second, .value = 0.0F, .count = rows.count});
    }
  }
  if (!first) {
    totals_->add_norms(stream, group, gradient);
  }
}

void PassGradients::join(kernels::Stream& stream, const Rows& rows) const {
  const kernels::KernelTable& kernels = rank_->kernels();
  const GradientJoin how = rank_->objective().program()->join();
  auto* agreeing = agreeing_.as<float>();
  const auto keep_agreeing = [&] {
    kernels.copy(stream, {.out = agreeing,
                          .in = rows.second,
                          .size_bytes = static_cast<std::int64_t>(floats(rows.count))});
    kernels.mask_sign(stream, {.g = agreeing, .other = rows.first, .count = rows.count});
  };
  keep_agreeing();
  // Whatever is not 0 becomes infinite, the smallest number too, and is counted as such.
  for (int i = 0; i < 3; ++i) {
    kernels.scale_add(stream, {.y = agreeing, .alpha = 0x1p100F, .count = rows.count});
  }
  kernels.count_nonfinite(stream, {.x = agreeing, .count = rows.count, .nonfinite = rows.agreeing});
  totals_->agreement_counted(stream, rows.agreeing);
  const float* second = rows.second;
  if (how != GradientJoin::sum) {
    keep_agreeing();
    second = agreeing;
  }
  if (how == GradientJoin::symmetric) {
    kernels.mask_sign(stream, {.g = rows.first, .other = agreeing, .count = rows.count});
  }
  kernels.tree_add(stream,
                   {.left = rows.first, .right = second, .out = rows.second, .count = rows.count});
}

std::size_t PassGradients::kept_bytes() const {
  std::size_t bytes = 0;
  for (const kernels::Buffer& buffer : kept_) {
    bytes += buffer.size_bytes();
  }
  return bytes;
}

}  // namespace train::engine
