#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/process/descriptor.hpp"
#include "base/result.hpp"

namespace train::storage {

/// Anonymous memory shared by several processes: it lives as long as any of them holds its
/// descriptor or mapping, so it survives its writer. All pages are allocated at once and it cannot
/// shrink: no access can fail later.
///
/// Threading: up to the users of the bytes. Ownership: the mapping and the descriptor.
class SharedMemory {
 public:
  /// Zero-filled. Blocks while the system allocates. Errors (failure): a limit of this process, its
  /// control group or the machine is too low (says which, and how much is left); the system call is
  /// missing.
  [[nodiscard]] static Result<SharedMemory> create(const std::string& name,
                                                   std::uint64_t size_bytes);
  /// Attaches memory of another process through an inherited descriptor, whose ownership passes.
  /// Errors (failure): not such memory; no address space.
  [[nodiscard]] static Result<SharedMemory> attach(int descriptor);

  [[nodiscard]] std::span<std::byte> bytes() const {
    return {data_.get(), data_.get_deleter().size_bytes};
  }
  /// Closed on exec, unless the starting process keeps it open.
  [[nodiscard]] int descriptor() const { return descriptor_.get(); }

 private:
  explicit SharedMemory(int descriptor) : descriptor_(descriptor) {}
  [[nodiscard]] Status map(std::uint64_t size_bytes);

  Descriptor descriptor_;
  Mapping data_;
};

/// Bytes that the machine and this process's control groups leave available at the moment of the
/// call.
[[nodiscard]] std::uint64_t available_memory();

}  // namespace train::storage
