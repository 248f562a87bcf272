#include <cstddef>
#include <vector>

#include "kernels/cpu_support.hpp"
#include "kernels/experts/bf16_experts.hpp"
#include "kernels/experts/experts.hpp"
#include "kernels/gemm/gemm_pieces.hpp"

namespace train::kernels::cpu {
namespace {

/// The product of one expert's places.
MatmulParams product_of(const ExpertMatmulParams& p, std::int64_t expert) {
  const std::int64_t first = p.offsets[expert];
  const std::int64_t places = p.offsets[expert + 1] - first;
  const bool gradient = p.product == ExpertProduct::weight;
  const auto* b = static_cast<const float*>(p.b);
  auto* c = static_cast<float*>(p.c);
  MatmulParams product{.a = static_cast<const float*>(p.a) + first * p.lda,
                       .b = gradient ? b + first * p.ldb : b + expert * p.stride,
                       .c = gradient ? c + expert * p.stride : c + first * p.ldc,
                       .lda = p.lda,
                       .ldb = p.ldb,
                       .ldc = p.ldc,
                       .accumulate = p.accumulate};
  if (gradient) {
    product.m = p.n;
    product.n = p.k;
    product.k = places;
    product.transpose_a = true;
  } else {
    product.m = places;
    product.n = p.product == ExpertProduct::output ? p.n : p.k;
    product.k = p.product == ExpertProduct::output ? p.k : p.n;
    product.transpose_b = p.product == ExpertProduct::output;
  }
  return product;
}

/// Threads that one expert's product is divided among: one, if the others have enough to do
/// meanwhile.
int threads_of(const ExpertMatmulParams& p, std::int64_t expert, int threads) {
  const std::int64_t all = p.offsets[p.experts] - p.offsets[0];
  const std::int64_t places = p.offsets[expert + 1] - p.offsets[expert];
  constexpr std::int64_t pieces = 4;  // Per thread, so that the last ones end at about one time.
  return static_cast<int>(std::clamp<std::int64_t>(
      pieces * threads * places / std::max<std::int64_t>(all, 1), 1, threads));
}

/// Pieces of all experts, in their order.
std::vector<ProductPiece> pieces_of(const ExpertMatmulParams& p, int threads,
                                    const GemmPieces& products) {
  std::vector<ProductPiece> pieces;
  pieces.reserve(static_cast<std::size_t>(p.experts + std::int64_t{8} * threads));
  for (std::int64_t expert = 0; expert < p.experts; ++expert) {
    TRAIN_CHECK(p.offsets[expert] >= 0 && p.offsets[expert] <= p.offsets[expert + 1] &&
                    p.offsets[expert + 1] <= p.places,
                "expert_matmul: places of expert {} from {} to {} of {}", expert, p.offsets[expert],
                p.offsets[expert + 1], p.places);
    const MatmulParams product = product_of(p, expert);
    if (product.m == 0) {
      continue;
    }
    const Grid grid = products.divide(product, threads_of(p, expert, threads));
    for (std::int64_t i = 0; i < grid.count(); ++i) {
      pieces.push_back({.product = product, .piece = grid.piece(product, i)});
    }
  }
  return pieces;
}

void fill_without_terms(const ProductPiece& one) {
  MatmulParams part = one.product;
  part.m = one.piece.rows;
  part.n = one.piece.columns;
  part.c = static_cast<float*>(part.c) + one.piece.row * part.ldc + one.piece.column;
  static_cast<void>(is_done_without_terms(part));
}

void multiply_experts(const ExpertMatmulParams& p, int threads, const GemmPieces& products) {
  if (p.n == 0 || p.k == 0) {
    return;
  }
  const std::vector<ProductPiece> pieces = pieces_of(p, threads, products);
  parallel_shares(threads, std::ssize(pieces), [&](std::int64_t i, int) {
    const ProductPiece& one = pieces[static_cast<std::size_t>(i)];
    if (one.product.k == 0) {  // The gradient of an expert without places.
      fill_without_terms(one);
      return;
    }
    products.multiply(one, i + 1 < std::ssize(pieces) ? &one + 1 : nullptr);
  });
}

}  // namespace

void expert_matmul(const ExpertMatmulParams& p, int threads) {
  multiply_experts(p, threads, gemm_pieces());
}

void expert_matmul_bf16(const ExpertMatmulParams& p, int threads) {
  multiply_experts(p, threads, bf16_gemm_pieces());
}

}  // namespace train::kernels::cpu
