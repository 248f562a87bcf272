#include "kernels/rope/rope.hpp"

#include "kernels/packed.cuh"
#include "kernels/rows.cuh"

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

/// Vector i of all rows: 16 bytes, or the rest of a row that is not `aligned`.
template <class T, bool aligned, class Index>
struct RopeEach {
  static constexpr int width = Packed<T>::count;
  RopeParams p;
  TableRows table;
  std::int64_t vectors;  // Vectors per row.

  __device__ void operator()(std::int64_t item) const {
    const auto i = static_cast<Index>(item);
    const Index row = i / static_cast<Index>(vectors);
    const Index token = row / static_cast<Index>(p.heads);
    const auto column = static_cast<int>(i - row * static_cast<Index>(vectors)) * width;
    const int inside = min(static_cast<int>(p.head_dim) - column, width);
    const std::int64_t position = table.of(token);
    T* at = static_cast<T*>(p.x) + token * p.layout.outer_stride +
            (row - token * static_cast<Index>(p.heads)) * p.layout.inner_stride + column;
    Packed<T> x;
    x.template load<aligned>(at, inside);
    PackedAngles<T> angles;
    angles.template load<aligned>(
        p.cos, p.sin, max(position, std::int64_t{0}) * (p.head_dim / 2) + column / 2, inside / 2);
#pragma unroll
    for (int j = 0; j < width; j += 2) {
      float x0 = x.value(j);
      float x1 = x.value(j + 1);
      const float sin = position < 0 ? NAN : angles.sin.entry[j / 2];
      rotate(x0, x1, angles.cos.entry[j / 2], p.inverse ? -sin : sin);
      x.set_pair(j, x0, x1);
    }
    x.template store<aligned>(at, inside);
  }
};

/// Rotates pairs of all heads of a token, n pairs of a head from `column` on.
template <class T>
struct RopeHalvesRows {
  RopeParams p;
  TableRows table;

  template <int n>
  __device__ void run(std::int64_t token, std::int64_t column) const {
    const auto pairs = static_cast<std::uint32_t>(p.head_dim / 2);
    const std::uint32_t head = static_cast<std::uint32_t>(column) / pairs;
    const std::uint32_t pair = static_cast<std::uint32_t>(column) - head * pairs;
    const std::int64_t at = token * p.layout.outer_stride + head * p.layout.inner_stride + pair;
    const std::int64_t position = table.of(static_cast<std::uint32_t>(token));
    const std::int64_t entry = max(position, std::int64_t{0}) * pairs + pair;
    Several<T, n> x0(p.x, at);
    Several<T, n> x1(p.x, at + pairs);
    const Several<float, n> cos(p.cos, entry);
    const Several<float, n> sin(p.sin, entry);
#pragma unroll
    for (int j = 0; j < n; ++j) {
      const float by = position < 0 ? NAN : sin.value[j];
      rotate(x0.value[j], x1.value[j], cos.value[j], p.inverse ? -by : by);
    }
    x0.store(p.x, at);
    x1.store(p.x, at + pairs);
  }
};

template <class T>
void run_rope(CudaStream& stream, const RopeParams& p, const TableRows& table) {
  const std::int64_t vectors = divide_up(p.head_dim, Packed<T>::count);
  const std::int64_t count = p.tokens * p.heads * vectors;
  for_index_type(count, [&]<class Index>() {
    if (p.head_dim % Packed<T>::count == 0 && aligned_rows<T>(p.layout) &&
        aligned_to_vectors(p.x, p.cos, p.sin)) {
      launch_each(stream, count, RopeEach<T, true, Index>{p, table, vectors});
    } else {
      launch_each(stream, count, RopeEach<T, false, Index>{p, table, vectors});
    }
  });
}

}  // namespace

void rope_table(CudaStream& stream, const RopeTableParams& p) {
  launch_each(stream, p.seq_len * (p.head_dim / 2), RopeTableEach{p});
}

void rope_apply(CudaStream& stream, const RopeParams& p) {
  const TableRows table{p.positions, p.seq_len, stream.fault(), "rope_apply"};
  for_element_type(p.dtype, [&]<class T>() {
    if (p.pairing == RopePairing::interleaved) {
      run_rope<T>(stream, p, table);
      return;
    }
    constexpr int n = kVectorBytes / sizeof(T);
    const std::int64_t pairs = p.head_dim / 2;
    const bool aligned =
        pairs % n == 0 && aligned_rows<T>(p.layout) && aligned_to_vectors(p.x, p.cos, p.sin);
    launch_rows<n>(stream, p.tokens, p.heads * pairs, aligned, RopeHalvesRows<T>{p, table});
  });
}

}  // namespace train::kernels::cuda
