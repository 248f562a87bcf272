#include "engine/rank/wire.hpp"

#include "base/byte_sizes.hpp"
#include "base/check.hpp"

namespace train::engine {

void Wire::put(ConstElements from, std::byte* wire, std::int64_t offset, std::int64_t count) const {
  std::byte* to = wire + bytes_of(offset, size());
  if (is_converted(from.dtype)) {
    kernels_->pack_bf16(*stream_, {.in = reinterpret_cast<const float*>(from.data),
                                   .out = reinterpret_cast<std::uint16_t*>(to),
                                   .count = count});
  } else {
    copy(to, from, count);
  }
}

void Wire::take(const std::byte* wire, std::int64_t offset, Elements to, std::int64_t count) const {
  const std::byte* from = wire + bytes_of(offset, size());
  if (is_converted(to.dtype)) {
    kernels_->unpack_bf16(*stream_, {.in = reinterpret_cast<const std::uint16_t*>(from),
                                     .out = reinterpret_cast<float*>(to.data),
                                     .count = count});
  } else {
    copy(to, from, count);
  }
}

bool Wire::is_converted(kernels::DType memory) const {
  TRAIN_CHECK(bf16_ || memory == kernels::DType::f32, "bf16 goes over the wire as it is");
  return bf16_ && memory == kernels::DType::f32;
}

void Wire::copy(void* to, const void* from, std::int64_t count) const {
  const auto size_bytes = static_cast<std::int64_t>(bytes_of(count, size()));
  kernels_->copy(*stream_, {.out = to, .in = from, .size_bytes = size_bytes});
}

}  // namespace train::engine
