#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/state_space/documents.hpp"

// Documents of a call, as a device's thread goes through them.
namespace train::kernels::cuda {

/// The row's place in its document.
__device__ inline std::int64_t position_of(const DocumentRows& rows, std::int64_t row) {
  return rows.positions == nullptr ? row % rows.seq_len : std::int64_t{rows.positions[row]};
}

/// The row behind the document of `row`, which goes on behind it where the place is another than 0.
__device__ inline std::int64_t document_end(const DocumentRows& rows, std::int64_t row) {
  const std::int64_t end = (row / rows.seq_len + 1) * rows.seq_len;
  if (rows.positions == nullptr) {
    return end;
  }
  std::int64_t next = row + 1;
  while (next < end && rows.positions[next] != 0) {
    ++next;
  }
  return next;
}

}  // namespace train::kernels::cuda
