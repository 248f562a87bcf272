#include "kernels/attention/shared_keys.hpp"

#include <algorithm>

#include "kernels/cpu_support.hpp"

namespace train::kernels::cpu {
namespace {

constexpr std::int64_t kRowsAtOnce = 16;  // Rows of a thread, so that starting it is worth it.

/// Calls body(row) for all rows, some of them a thread.
template <class Body>
void each_shared_row(int threads, std::int64_t rows, const Body& body) {
  parallel_for(threads, divide_up(rows, kRowsAtOnce), [&](std::int64_t part, int) {
    const std::int64_t end = std::min(rows, (part + 1) * kRowsAtOnce);
    for (std::int64_t row = part * kRowsAtOnce; row < end; ++row) {
      body(row);
    }
  });
}

const float* at(const void* x, const RowLayout& layout, std::int64_t row, std::int64_t head) {
  return static_cast<const float*>(x) + row * layout.outer_stride + head * layout.inner_stride;
}

}  // namespace

void join_heads(const JoinHeadsParams& p, int threads) {
  const std::int64_t width = p.left_dim + p.right_dim;
  each_shared_row(threads, p.rows, [&](std::int64_t row) {
    float* to = static_cast<float*>(p.out) + row * p.heads * width;
    for (std::int64_t head = 0; head < p.heads; ++head, to += width) {
      std::copy_n(at(p.left, p.left_layout, row, head), p.left_dim, to);
      std::copy_n(at(p.right, p.right_layout, row, head), p.right_dim, to + p.left_dim);
    }
  });
}

void split_heads(const SplitHeadsParams& p, int threads) {
  const std::int64_t width = p.left_dim + p.right_dim;
  each_shared_row(threads, p.rows, [&](std::int64_t row) {
    const float* from = static_cast<const float*>(p.x) + row * p.heads * width;
    float* const right = static_cast<float*>(p.right) + row * p.right_dim;
    std::copy_n(from + p.left_dim, p.right_dim, right);
    for (std::int64_t head = 0; head < p.heads; ++head, from += width) {
      std::copy_n(from, p.left_dim,
                  static_cast<float*>(p.left) + row * p.left_layout.outer_stride +
                      head * p.left_layout.inner_stride);
      for (std::int64_t i = 0; head > 0 && i < p.right_dim; ++i) {
        right[i] += from[p.left_dim + i];
      }
    }
  });
}

}  // namespace train::kernels::cpu
