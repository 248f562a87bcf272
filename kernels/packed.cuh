#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "kernels/element.cuh"
#include "kernels/instructions.cuh"
#include "kernels/norm/norm.hpp"

namespace train::kernels::cuda {

/// 16 bytes of neighbouring elements in their memory format: 8 of bf16 take four registers, as
/// floats they would take eight. Indices must be compile-time constants, or it leaves the
/// registers.
template <class T>
struct alignas(kVectorBytes) Packed {
  static constexpr int count = kVectorBytes / sizeof(T);
  static constexpr bool wide = std::is_same_v<T, float>;
  std::uint32_t words[4];

  [[nodiscard]] __device__ float value(int i) const {
    if constexpr (wide) {
      return __uint_as_float(words[i]);
    }
    const std::uint32_t word = words[i / 2];
    return __uint_as_float(i % 2 == 0 ? word << 16U : word & 0xffff0000U);
  }
  /// Elements i (even) and i + 1.
  __device__ void set_pair(int i, float first, float second) {
    if constexpr (wide) {
      words[i] = __float_as_uint(first);
      words[i + 1] = __float_as_uint(second);
    } else {
      words[i / 2] = pack_pair(first, second);
    }
  }

  /// Makes the compiler recompute values at each use instead of keeping floats for them.
  __device__ void keep_packed() {
#pragma unroll
    for (std::uint32_t& word : words) {
      word = static_cast<std::uint32_t>(recomputed(static_cast<int>(word)));
    }
  }

  /// Loads the first `inside` elements, zero for the rest; one by one if not `aligned` to 16 bytes
  /// (only then may `inside` be partial).
  template <bool aligned>
  __device__ void load(const void* from, int inside) {
    words[0] = words[1] = words[2] = words[3] = 0;
    if constexpr (aligned) {
      if (inside > 0) {
        *this = *static_cast<const Packed*>(from);
      }
    } else {
#pragma unroll
      for (int i = 0; i < count; ++i) {
        if (i < inside) {
          words[word_of(i)] |= static_cast<std::uint32_t>(static_cast<const Bits*>(from)[i])
                               << shift_of(i);
        }
      }
    }
  }
  template <bool aligned>
  __device__ void store(void* to, int inside) const {
    if constexpr (aligned) {
      if (inside > 0) {
        *static_cast<Packed*>(to) = *this;
      }
    } else {
#pragma unroll
      for (int i = 0; i < count; ++i) {
        if (i < inside) {
          static_cast<Bits*>(to)[i] = static_cast<Bits>(words[word_of(i)] >> shift_of(i));
        }
      }
    }
  }

 private:
  using Bits = std::conditional_t<wide, std::uint32_t, std::uint16_t>;
  static __device__ constexpr int word_of(int i) { return wide ? i : i / 2; }
  static __device__ constexpr unsigned shift_of(int i) { return wide || i % 2 == 0 ? 0U : 16U; }
};

/// True if a row layout keeps the alignment to 16 bytes in every row.
template <class T>
bool aligned_rows(const RowLayout& layout) {
  return layout.outer_stride % Packed<T>::count == 0 && layout.inner_stride % Packed<T>::count == 0;
}

/// Cosines and sines of a Packed's pairs.
template <class T>
struct PackedAngles {
  static constexpr int count = Packed<T>::count / 2;
  struct alignas(count * sizeof(float)) Table {
    float entry[count];
  };
  Table cos, sin;

  /// Loads entries [first, first + inside), zero for the rest; see Packed::load.
  template <bool aligned>
  __device__ void load(const float* cos_table, const float* sin_table, std::int64_t first,
                       int inside) {
    load_table<aligned>(cos, cos_table + first, inside);
    load_table<aligned>(sin, sin_table + first, inside);
  }

 private:
  template <bool aligned>
  static __device__ void load_table(Table& table, const float* from, int inside) {
#pragma unroll
    for (int i = 0; i < count; ++i) {
      table.entry[i] = 0.0F;
    }
    if constexpr (aligned) {
      if (inside > 0) {
        table = *reinterpret_cast<const Table*>(from);
      }
    } else {
#pragma unroll
      for (int i = 0; i < count; ++i) {
        if (i < inside) {
          table.entry[i] = from[i];
        }
      }
    }
  }
};

/// Rotates the pair (x0, x1) by the angle with this cosine and sine.
__device__ inline void rotate(float& x0, float& x1, float cos, float sin) {
  const float first = x0 * cos - x1 * sin;
  x1 = x0 * sin + x1 * cos;
  x0 = first;
}

}  // namespace train::kernels::cuda
