#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/model/elements.hpp"
#include "kernels/backend.hpp"
#include "kernels/device/stream.hpp"

namespace train::engine {

/// Enqueues copies between memory and bytes on the wire, each of which is fp32 or bf16; what is
/// bf16 in memory is so on the wire. Offsets and counts are elements. Borrows kernels and stream.
class Wire {
 public:
  Wire(const kernels::KernelTable& kernels, kernels::Stream& stream, bool bf16)
      : kernels_(&kernels), stream_(&stream), bf16_(bf16) {}

  /// Bytes of an element on the wire.
  [[nodiscard]] std::size_t size() const { return bf16_ ? sizeof(std::uint16_t) : sizeof(float); }
  void put(ConstElements from, std::byte* wire, std::int64_t offset, std::int64_t count) const;
  void take(const std::byte* wire, std::int64_t offset, Elements to, std::int64_t count) const;

 private:
  [[nodiscard]] bool is_converted(kernels::DType memory) const;
  void copy(void* to, const void* from, std::int64_t count) const;

  const kernels::KernelTable* kernels_;
  kernels::Stream* stream_;
  bool bf16_;
};

}  // namespace train::engine
