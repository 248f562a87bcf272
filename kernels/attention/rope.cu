#include "kernels/attention/rope.hpp"

#include "kernels/packed.cuh"

namespace train::kernels::cuda {
namespace {

struct RopeTableEach {
  RopeTableParams p;
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t pairs = p.head_dim / 2;
    const double exponent = -2.0 * static_cast<double>(i % pairs) / static_cast<double>(p.head_dim);
    const double angle = static_cast<double>(i / pairs) * pow(p.theta, exponent);
    p.cos[i] = static_cast<float>(cos(angle));
    p.sin[i] = static_cast<float>(sin(angle));
  }
};

/// Vector i of all rows: 16 bytes, or as many as are left of a row that is not `aligned` to them.
template <class T, bool aligned>
struct RopeEach {
  static constexpr int width = Packed<T>::count;
  RopeParams p;
  std::int64_t vectors;  // Of a row.

  __device__ void operator()(std::int64_t i) const {
    const std::int64_t row = i / vectors;
    const std::int64_t token = row / p.heads;
    const std::int64_t column = (i - row * vectors) * width;
    const auto inside = static_cast<int>(min(p.head_dim - column, std::int64_t{width}));
    T* at = static_cast<T*>(p.x) + token * p.layout.outer_stride +
            (row - token * p.heads) * p.layout.inner_stride + column;
    Packed<T> x;
    x.template load<aligned>(at, inside);
    PackedAngles<T> angles;
    angles.template load<aligned>(p.cos, p.sin, token % p.seq_len * (p.head_dim / 2) + column / 2,
                                  inside / 2);
#pragma unroll
    for (int j = 0; j < width; j += 2) {
      float x0 = x.value(j);
      float x1 = x.value(j + 1);
      const float sin = angles.sin.entry[j / 2];
      rotate(x0, x1, angles.cos.entry[j / 2], p.inverse ? -sin : sin);
      x.set_pair(j, x0, x1);
    }
    x.template store<aligned>(at, inside);
  }
};

template <class T>
void run_rope(CudaStream& stream, const RopeParams& p) {
  const std::int64_t vectors = divide_up(p.head_dim, Packed<T>::count);
  const std::int64_t count = p.tokens * p.heads * vectors;
  if (p.head_dim % Packed<T>::count == 0 && aligned_rows<T>(p.layout) &&
      aligned_to_vectors(p.x, p.cos, p.sin)) {
    launch_each(stream, count, RopeEach<T, true>{p, vectors});
  } else {
    launch_each(stream, count, RopeEach<T, false>{p, vectors});
  }
}

}  // namespace

void rope_table(CudaStream& stream, const RopeTableParams& p) {
  launch_each(stream, p.seq_len * (p.head_dim / 2), RopeTableEach{p});
}

void rope_apply(CudaStream& stream, const RopeParams& p) {
  for_element_type(p.dtype, [&]<class T>() { run_rope<T>(stream, p); });
}

}  // namespace train::kernels::cuda
