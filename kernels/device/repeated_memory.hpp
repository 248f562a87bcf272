#pragma once

#include <cstddef>
#include <memory>

namespace train::kernels {

/// Memory of the current device that looks longer than it is: one piece, again and again. For
/// operands that are read and mean nothing, of which a whole one would not have room.
///
/// Ownership: owns its memory. REQUIRES: nothing uses it any more when it goes; a DeviceGate::Call
/// lives when it is made and when it goes, for both may wait for the whole device.
class RepeatedMemory {
 public:
  /// Of at least `size_bytes` > 0. What is longer than `piece_bytes` repeats after so many, or the
  /// few more that fill a page; where the driver cannot do that it is as long as it looks. Nothing
  /// where the device has no room, or there is none. Contents undefined. Throws nothing.
  [[nodiscard]] static std::unique_ptr<RepeatedMemory> make(std::size_t size_bytes,
                                                            std::size_t piece_bytes);
  virtual ~RepeatedMemory() = default;
  RepeatedMemory(const RepeatedMemory&) = delete;
  RepeatedMemory& operator=(const RepeatedMemory&) = delete;

  /// 256-byte aligned.
  [[nodiscard]] void* data() const { return data_; }
  /// What is there only once: after so many bytes the first one comes again.
  [[nodiscard]] std::size_t piece_bytes() const { return piece_bytes_; }

 protected:
  RepeatedMemory(void* data, std::size_t piece_bytes) : data_(data), piece_bytes_(piece_bytes) {}

 private:
  void* data_;
  std::size_t piece_bytes_;
};

}  // namespace train::kernels
