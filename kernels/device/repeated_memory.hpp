#pragma once

#include <cstddef>
#include <memory>

namespace train::kernels {

/// Device memory that maps one physical piece again and again, so that it looks longer than it is:
/// for operands that are read but whose values do not matter, and for which the device has no room.
///
/// Ownership: owns its memory. REQUIRES: it is not in use when destroyed, and a DeviceGate::Call
/// lives during construction and destruction, as both may wait for the whole device.
class RepeatedMemory {
 public:
  /// Makes memory of at least `size_bytes` > 0. If longer than `piece_bytes` (rounded up to whole
  /// pages) it repeats after that; if the driver cannot map memory repeatedly, all of it is
  /// allocated. nullptr if the device has no room or there is none. Contents undefined. Throws
  /// nothing.
  [[nodiscard]] static std::unique_ptr<RepeatedMemory> make(std::size_t size_bytes,
                                                            std::size_t piece_bytes);
  virtual ~RepeatedMemory() = default;
  RepeatedMemory(const RepeatedMemory&) = delete;
  RepeatedMemory& operator=(const RepeatedMemory&) = delete;

  /// 256-byte aligned.
  [[nodiscard]] void* data() const { return data_; }
  /// Length of the physical piece, after which the memory repeats.
  [[nodiscard]] std::size_t piece_bytes() const { return piece_bytes_; }

 protected:
  RepeatedMemory(void* data, std::size_t piece_bytes) : data_(data), piece_bytes_(piece_bytes) {}

 private:
  void* data_;
  std::size_t piece_bytes_;
};

}  // namespace train::kernels
