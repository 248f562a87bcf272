#include "kernels/gemm/product_choice.hpp"

namespace train::kernels {
namespace {

constexpr std::size_t kVectorBytes = 16;

}  // namespace

bool begin_aligned(const MatmulParams& params) {
  const auto whole = [](const void* data) {
    return reinterpret_cast<std::uintptr_t>(data) % kVectorBytes == 0;
  };
  return whole(params.a) && whole(params.b) && whole(params.c);
}

ProductAlignment alignment_of(const MatmulParams& params) {
  const bool begin = begin_aligned(params);
  const auto of = [begin](std::int64_t stride, DType dtype) {
    const bool rows = static_cast<std::size_t>(stride) * size_of(dtype) % kVectorBytes == 0;
    return static_cast<std::uint32_t>(begin && rows ? kVectorBytes : size_of(dtype));
  };
  return {.a_bytes = of(params.lda, params.dtype),
          .b_bytes = of(params.ldb, params.dtype),
          .c_bytes = of(params.ldc, params.output_dtype)};
}

std::size_t choose_product(std::size_t count, const ProductTrial& trial) {
  constexpr double gain = 0.98;
  if (count < 2) {
    return 0;
  }
  std::size_t best = 0;
  double best_s = trial.seconds(0) * gain;
  for (std::size_t way = 1; way < count; ++way) {
    if (!trial.same_bits(way)) {
      continue;
    }
    if (const double way_s = trial.seconds(way); way_s < best_s) {
      best = way;
      best_s = way_s;
    }
  }
  return best;
}

}  // namespace train::kernels
