#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "engine/parameter.hpp"
#include "kernels/dtype.hpp"

namespace train::engine {

/// Typed pointer to elements in memory: activations and their gradients, or weights as kernels
/// read them. Kernels take the pointer with its `dtype`.
template <class Byte>
struct BasicElements {
  static_assert(std::is_same_v<std::remove_const_t<Byte>, std::byte>);
  using Pointer = std::conditional_t<std::is_const_v<Byte>, const void*, void*>;
  using Floats = std::conditional_t<std::is_const_v<Byte>, const float*, float*>;

  Byte* data = nullptr;
  kernels::DType dtype = kernels::DType::f32;

  BasicElements() = default;
  BasicElements(Byte* where, kernels::DType type) : data(where), dtype(type) {}
  BasicElements(Floats floats) : data(reinterpret_cast<Byte*>(floats)) {}  // NOLINT: they are.
  BasicElements(std::nullptr_t) {}                                         // NOLINT

  [[nodiscard]] BasicElements operator+(std::int64_t count) const {
    return {data + count * static_cast<std::int64_t>(kernels::size_of(dtype)), dtype};
  }
  operator Pointer() const { return data; }        // NOLINT
  operator BasicElements<const std::byte>() const  // NOLINT
      requires(!std::is_const_v<Byte>) {
    return {data, dtype};
  }
};

using Elements = BasicElements<std::byte>;
using ConstElements = BasicElements<const std::byte>;

/// Pointer to the rows of a parameter from `first_row` on in flat weights.
template <class Byte>
[[nodiscard]] BasicElements<Byte> rows_in(BasicElements<Byte> flat, const Parameter& parameter,
                                          std::int64_t first_row) {
  BasicElements<Byte> rows = flat + parameter.offset;
  rows.dtype = parameter.exact ? kernels::DType::f32 : rows.dtype;
  return rows + first_row * parameter.cols();
}

/// The values of a parameter that is exact (Parameter), whatever the type of the flat weights.
[[nodiscard]] inline const float* exact_weights(ConstElements flat, std::int64_t offset) {
  return reinterpret_cast<const float*>((flat + offset).data);
}

}  // namespace train::engine
