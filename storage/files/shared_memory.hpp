#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/descriptor.hpp"
#include "base/result.hpp"

namespace train::storage {

/// Memory without a name that several processes share: it lives as long as any of them has its
/// descriptor or maps it, so what a process wrote there outlives it. All of it is taken from the
/// system at once, and nobody can make it smaller: no access of it can fail later.
///
/// Threading: as the bytes' users agree. Ownership: the mapping and the descriptor.
class SharedMemory {
 public:
  /// Zeros. Blocks while the system makes them. Errors (failure): a limit of this process or its
  /// control group, or the machine, leaves less (says which, and how much); no such system call.
  [[nodiscard]] static Result<SharedMemory> create(const std::string& name,
                                                   std::uint64_t size_bytes);
  /// What another process made, by a descriptor that this one inherited and gives away.
  /// Errors (failure): not such memory; no room in the address space.
  [[nodiscard]] static Result<SharedMemory> attach(int descriptor);

  [[nodiscard]] std::span<std::byte> bytes() const {
    return {data_.get(), data_.get_deleter().size_bytes};
  }
  /// Closed when a new program begins, unless its starter leaves it open.
  [[nodiscard]] int descriptor() const { return descriptor_.get(); }

 private:
  explicit SharedMemory(int descriptor) : descriptor_(descriptor) {}
  [[nodiscard]] Status map(std::uint64_t size_bytes);

  Descriptor descriptor_;
  Mapping data_;
};

/// What the machine and the control groups of this process leave it, in bytes; a value that is
/// right at the moment of the call.
[[nodiscard]] std::uint64_t available_memory();

}  // namespace train::storage
