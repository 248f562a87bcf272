#pragma once

#include <cstdint>
#include <limits>

#include "engine/model/elements.hpp"
#include "kernels/activation/clamp.hpp"
#include "kernels/backend.hpp"

namespace train::engine {

/// Rows of `cols` elements, and the elements from one to the next on either side.
struct RowsToCopy {
  std::int64_t rows = 0, cols = 0;
  std::int64_t from_stride = 0, to_stride = 0;
};

/// Enqueues a copy of rows: a clamp to infinity changes no element.
inline void copy_rows(const kernels::KernelTable& kernels, kernels::Stream& stream,
                      ConstElements from, Elements to, const RowsToCopy& rows) {
  kernels.clamp_forward(stream, {.x = from,
                                 .y = to,
                                 .bound = std::numeric_limits<float>::infinity(),
                                 .rows = rows.rows,
                                 .cols = rows.cols,
                                 .x_stride = rows.from_stride,
                                 .y_stride = rows.to_stride,
                                 .dtype = to.dtype});
}

}  // namespace train::engine
