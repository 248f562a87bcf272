#include "kernels/attention/rope.hpp"

#include "kernels/packed.cuh"

namespace train::kernels::cuda {
namespace {

struct RopeTableEach {
  RopeTableParams p;
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t pairs = p.head_dim / 2;
    const double exponent = -2.0 * static_cast<double>(i % pairs) / static_cast<double>(p.head_dim);
    double angle = static_cast<double>(i / pairs) * pow(p.theta, exponent);
    if (p.frequencies.given) {
      angle = static_cast<double>(static_cast<float>(i / pairs) * p.frequencies.values[i % pairs]);
    }
    const auto factor = static_cast<double>(p.factor);
    p.cos[i] = static_cast<float>(factor * cos(angle));
    p.sin[i] = static_cast<float>(factor * sin(angle));
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

/// Pair i of all rows.
template <class T>
struct RopeHalvesEach {
  RopeParams p;
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t pairs = p.head_dim / 2;
    const std::int64_t row = i / pairs;
    const std::int64_t pair = i - row * pairs;
    const std::int64_t token = row / p.heads;
    T* at = static_cast<T*>(p.x) + token * p.layout.outer_stride +
            (row - token * p.heads) * p.layout.inner_stride + pair;
    float x0 = value_of(at[0]);
    float x1 = value_of(at[pairs]);
    const std::int64_t entry = token % p.seq_len * pairs + pair;
    rotate(x0, x1, p.cos[entry], p.inverse ? -p.sin[entry] : p.sin[entry]);
    store<T>(at, 0, x0);
    store<T>(at, pairs, x1);
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
  for_element_type(p.dtype, [&]<class T>() {
    if (p.pairing == RopePairing::half) {
      launch_each(stream, p.tokens * p.heads * (p.head_dim / 2), RopeHalvesEach<T>{p});
    } else {
      run_rope<T>(stream, p);
    }
  });
}

}  // namespace train::kernels::cuda
