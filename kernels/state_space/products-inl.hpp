// Products of a few rows, for the scan of heads; compiled once per instruction set, as
// simd-inl.hpp.
#if defined(TRAIN_KERNELS_PRODUCTS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TRAIN_KERNELS_PRODUCTS_INL
#undef TRAIN_KERNELS_PRODUCTS_INL
#else
#define TRAIN_KERNELS_PRODUCTS_INL
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/simd-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace train::kernels::cpu::HWY_NAMESPACE {

/// The left factor of a product: element (i, k) is at i `row` + k `col`.
struct LeftFactor {
  const float* data;
  std::int64_t row, col;

  [[nodiscard]] const float* at(std::int64_t i, std::int64_t k) const {
    return data + i * row + k * col;
  }
};
/// Rows of whole Floats16, `stride` apart.
struct RightFactor {
  const float* data;
  std::int64_t stride;
};
struct ProductOutput {
  float* data;
  std::int64_t stride;
  bool add = false;  ///< Adds the product to what is there.
};

/// Terms of a sum where the left factor is a triangle: others are zero.
enum class Terms : std::uint8_t { all, up_to_row, from_row };

struct ProductSize {
  std::int64_t rows, terms, cols;  ///< `cols`: whole Floats16.
  Terms which = Terms::all;
};

/// `rows` rows of `vectors` vectors; the terms [begin, end) in order.
template <int rows, int vectors>
HWY_INLINE void product_tile(const LeftFactor& left, const RightFactor& right,
                             const ProductOutput& out, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t lanes = Floats16::lanes;
  const Floats d;
  FloatVec sums[rows][vectors];
  for (int i = 0; i < rows; ++i) {
    for (int v = 0; v < vectors; ++v) {
      sums[i][v] = out.add ? hn::LoadU(d, out.data + i * out.stride + v * lanes) : hn::Zero(d);
    }
  }
  const float* row = right.data + begin * right.stride;
  for (std::int64_t k = begin; k < end; ++k, row += right.stride) {
    FloatVec of_row[vectors];
    for (int v = 0; v < vectors; ++v) {
      of_row[v] = hn::LoadU(d, row + v * lanes);
    }
    for (int i = 0; i < rows; ++i) {
      const FloatVec factor = hn::Set(d, *left.at(i, k));
      for (int v = 0; v < vectors; ++v) {
        sums[i][v] = hn::MulAdd(factor, of_row[v], sums[i][v]);
      }
    }
  }
  for (int i = 0; i < rows; ++i) {
    for (int v = 0; v < vectors; ++v) {
      hn::StoreU(sums[i][v], d, out.data + i * out.stride + v * lanes);
    }
  }
}

/// The columns of `vectors` vectors.
template <int vectors>
HWY_INLINE void product_columns(const LeftFactor& left, const RightFactor& right,
                                const ProductOutput& out, const ProductSize& size) {
  constexpr int most = 4;
  for (std::int64_t i = 0; i < size.rows;) {
    const std::int64_t rows = i + most <= size.rows ? most : 1;
    const std::int64_t begin = size.which == Terms::from_row ? i : 0;
    const std::int64_t end =
        size.which == Terms::up_to_row ? std::min(i + rows, size.terms) : size.terms;
    const LeftFactor from{left.at(i, 0), left.row, left.col};
    const ProductOutput to{out.data + i * out.stride, out.stride, out.add};
    if (rows == most) {
      product_tile<most, vectors>(from, right, to, begin, end);
    } else {
      product_tile<1, vectors>(from, right, to, begin, end);
    }
    i += rows;
  }
}

/// out[i, n] = sum over k of left[i, k] right[k, n]: one chain of fused multiply-adds in order,
/// however the tiles lie.
HWY_INLINE void product(const LeftFactor& left, const RightFactor& right, const ProductOutput& out,
                        const ProductSize& size) {
  constexpr std::int64_t lanes = Floats16::lanes;
  constexpr int most = 4 / Floats16::vectors;
  const auto columns = [&](std::int64_t n, auto vectors) {
    product_columns<vectors>(left, {right.data + n, right.stride},
                             {out.data + n, out.stride, out.add}, size);
  };
  std::int64_t n = 0;
  for (; n + most * lanes <= size.cols; n += most * lanes) {
    columns(n, std::integral_constant<int, most>());
  }
  for (; n < size.cols; n += Floats16::count) {
    columns(n, std::integral_constant<int, Floats16::vectors>());
  }
}

}  // namespace train::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
