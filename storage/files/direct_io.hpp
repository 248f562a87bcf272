#pragma once

#include <fcntl.h>

#include <cstddef>
#include <cstdlib>
#include <memory>

// Reading and writing past the page cache (O_DIRECT), where a file system allows it.
namespace train::storage {

/// What a disk wants of addresses, sizes and offsets then; none known wants more, and one that did
/// would refuse (EINVAL), after which the caller goes on without.
inline constexpr std::size_t direct_alignment = 4096;

struct FreeDirectBytes {
  void operator()(std::byte* bytes) const { std::free(bytes); }
};
using DirectBytes = std::unique_ptr<std::byte, FreeDirectBytes>;

/// Aligned memory; null if there is none. REQUIRES: a multiple of direct_alignment.
[[nodiscard]] inline DirectBytes new_direct_bytes(std::size_t size) {
  return DirectBytes(static_cast<std::byte*>(std::aligned_alloc(direct_alignment, size)));
}

/// Has what is read or written from here on go past the page cache, or through it. Whether the
/// system does so; errno if not.
[[nodiscard]] inline bool set_direct(int descriptor, bool direct) {
  const int flags = ::fcntl(descriptor, F_GETFL);
  return flags >= 0 &&
         ::fcntl(descriptor, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

}  // namespace train::storage
