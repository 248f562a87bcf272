#include "engine/rank/gathered_weights.hpp"

#include <fmt/format.h>

#include "base/byte_sizes.hpp"
#include "engine/rank/wire.hpp"

namespace train::engine {

GatheredWeights::GatheredWeights(const RankPlan& rank) : rank_(&rank) {
  const RankLayout& layout = rank.layout();
  const std::size_t size_bytes =
      bytes_of(layout.gather_elements(), kernels::size_of(layout.compute_dtype()));
  for (std::int64_t i = 0; i < layout.gather_buffers(); ++i) {
    buffers_.emplace_back(size_bytes, fmt::format("gathered {}", i), rank.device().memory);
  }
  for (std::size_t index = 0; index < rank.group_count(); ++index) {
    kept_.emplace_back(bytes_of(rank.layout(index).kept_here.element_count, layout.compute_size()),
                       "kept weights of " + rank.group(index).name, rank.device().memory);
  }
}

Elements GatheredWeights::of(const Reservation& reservation) const {
  return {buffers_[static_cast<std::size_t>(reservation.buffer)].data(),
          rank_->layout().compute_dtype()};
}

void GatheredWeights::keep_for_backward(kernels::Stream& stream, CommandKind kind,
                                        std::int32_t gather) {
  const Reservation& reservation =
      rank_->schedule(kind).gathers().at(static_cast<std::size_t>(gather));
  if (!reservation.keeps_rows) {
    return;
  }
  const Wire wire(rank_->kernels(), stream, rank_->layout().compute_bf16());
  const ConstElements weights = of(reservation);
  for (const Segment& segment : rank_->layout(reservation.group).kept_here.segments) {
    wire.put(weights + segment.flat_offset, kept(reservation.group), segment.packed_offset,
             segment.count);
  }
}

void GatheredWeights::add_allocated(MemoryPlan& memory) const {
  for (const auto* buffers : {&buffers_, &kept_}) {
    for (const kernels::Buffer& buffer : *buffers) {
      memory.gathered_bytes += buffer.size_bytes();
    }
  }
}

}  // namespace train::engine
