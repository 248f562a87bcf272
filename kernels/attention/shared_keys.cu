#include "kernels/attention/shared_keys.hpp"

#include "kernels/element.cuh"
#include "kernels/launch.cuh"

namespace train::kernels::cuda {
namespace {

template <class T>
struct JoinEach {
  JoinHeadsParams p;

  __device__ void operator()(std::int64_t i) const {
    const std::int64_t width = p.left_dim + p.right_dim;
    const std::int64_t column = i % width, head = i / width % p.heads, row = i / width / p.heads;
    const bool left = column < p.left_dim;
    const RowLayout& layout = left ? p.left_layout : p.right_layout;
    const T* const from = static_cast<const T*>(left ? p.left : p.right) +
                          row * layout.outer_stride + head * layout.inner_stride;
    static_cast<T*>(p.out)[i] = from[left ? column : column - p.left_dim];
  }
};

template <class T>
struct SplitLeftEach {
  SplitHeadsParams p;

  __device__ void operator()(std::int64_t i) const {
    const std::int64_t column = i % p.left_dim, head = i / p.left_dim % p.heads;
    const std::int64_t row = i / p.left_dim / p.heads;
    static_cast<T*>(
        p.left)[row * p.left_layout.outer_stride + head * p.left_layout.inner_stride + column] =
        static_cast<const T*>(p.x)[(row * p.heads + head) * (p.left_dim + p.right_dim) + column];
  }
};

template <class T>
struct SplitRightEach {
  SplitHeadsParams p;

  __device__ void operator()(std::int64_t i) const {
    const std::int64_t width = p.left_dim + p.right_dim;
    const std::int64_t row = i / p.right_dim, column = p.left_dim + i % p.right_dim;
    const T* const from = static_cast<const T*>(p.x) + row * p.heads * width + column;
    float sum = value_of(from[0]);
    for (std::int64_t head = 1; head < p.heads; ++head) {
      sum += value_of(from[head * width]);
    }
    store<T>(static_cast<T*>(p.right), i, sum);
  }
};

}  // namespace

void join_heads(CudaStream& stream, const JoinHeadsParams& p) {
  for_element_type(p.dtype, [&]<class T>() {
    launch_each(stream, p.rows * p.heads * (p.left_dim + p.right_dim), JoinEach<T>{p});
  });
}

void split_heads(CudaStream& stream, const SplitHeadsParams& p) {
  for_element_type(p.dtype, [&]<class T>() {
    launch_each(stream, p.rows * p.heads * p.left_dim, SplitLeftEach<T>{p});
    launch_each(stream, p.rows * p.right_dim, SplitRightEach<T>{p});
  });
}

}  // namespace train::kernels::cuda
