#include "engine/rank/state/gathered_weights.hpp"

#include <fmt/format.h>

#include "base/check.hpp"
#include "base/text/byte_sizes.hpp"
#include "kernels/activation/elementwise.hpp"
#include "kernels/backend.hpp"

namespace train::engine {

void Wire::put(ConstElements from, std::byte* wire, std::int64_t offset, std::int64_t count,
               bool exact) const {
  std::byte* to = wire + bytes_of(offset, size());
  if (is_converted(from.dtype, exact)) {
    kernels_->pack_bf16(*stream_, {.in = reinterpret_cast<const float*>(from.data),
                                   .out = reinterpret_cast<std::uint16_t*>(to),
                                   .count = count});
  } else {
    copy(to, from, count, exact);
  }
}

void Wire::take(const std::byte* wire, std::int64_t offset, Elements to, std::int64_t count,
                bool exact) const {
  const std::byte* from = wire + bytes_of(offset, size());
  if (is_converted(to.dtype, exact)) {
    kernels_->unpack_bf16(*stream_, {.in = reinterpret_cast<const std::uint16_t*>(from),
                                     .out = reinterpret_cast<float*>(to.data),
                                     .count = count});
  } else {
    copy(to, from, count, exact);
  }
}

bool Wire::is_converted(kernels::DType memory, bool exact) const {
  const bool fp32 = memory == kernels::DType::f32;
  TRAIN_CHECK(fp32 || (bf16_ && !exact), "bf16 goes over the wire as it is");
  return bf16_ && fp32 && !exact;
}

void Wire::copy(void* to, const void* from, std::int64_t count, bool exact) const {
  const auto size_bytes =
      static_cast<std::int64_t>(bytes_of(count, exact ? sizeof(float) : size()));
  kernels_->copy(*stream_, {.out = to, .in = from, .size_bytes = size_bytes});
}

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

void GatheredWeights::keep_for_backward(kernels::Stream& stream, const PassPlan& pass,
                                        std::int32_t gather) {
  const Reservation& reservation =
      rank_->schedule(pass).gathers().at(static_cast<std::size_t>(gather));
  if (!reservation.keeps_rows) {
    return;
  }
  const Wire wire(rank_->kernels(), stream, rank_->layout().compute_bf16());
  const ConstElements weights = of(reservation);
  for (const Segment& segment : rank_->layout(reservation.group).kept_here.segments) {
    const Parameter& parameter = rank_->group(reservation.group).parameters[segment.parameter];
    wire.put(rows_in(weights, parameter, segment.first_row), kept(reservation.group),
             segment.packed_offset, segment.count, parameter.exact);
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
