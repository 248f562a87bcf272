#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "base/check.hpp"
#include "engine/optimizer/adamw_params.hpp"
#include "engine/optimizer/registry.hpp"

namespace train::engine {
namespace {

/// Where the two Muons differ.
struct Variant {
  std::int64_t most_rows = 0;  ///< Matrices with so many rows or more are AdamW's.
  bool average = false;        ///< The momentum is an average of gradients, else their sum.
  bool clamped_norm = false;   ///< The norm that a matrix is divided by is clamped, else added to.
  bool corrected_eps = false;  ///< AdamW's eps is added to the bias-corrected root.
};

constexpr Variant kMuon{
    .most_rows = 50000, .average = true, .clamped_norm = true, .corrected_eps = true};
constexpr Variant kDMuon{
    .most_rows = 10000, .average = false, .clamped_norm = false, .corrected_eps = false};

/// Of the norm of a matrix before its orthogonalisation.
constexpr double kLeastNorm = 1e-7;
/// Quintic Newton-Schulz iteration X <- a X + (b G + c G^2) X, G = X X^T, whose slope at 0 is
/// steep.
constexpr double kA = 3.4445;
constexpr double kB = -4.7750;
constexpr double kC = 2.0315;

/// One matrix's share of the scratch: two matrices of its shape, two squares of its smaller side,
/// the sums of its rows and the sum of those.
struct Scratch {
  Scratch(std::byte* data, const Parameter& matrix)
      : size(padded(matrix.count())),
        side(std::min(matrix.rows, matrix.cols)),
        square(padded(side * side)),
        x(reinterpret_cast<float*>(data)),
        product(x + size),
        gram(product + size),
        gram_product(gram + square),
        row_sums(reinterpret_cast<double*>(gram_product + square)),
        squared_norm(row_sums + matrix.rows) {}

  static std::size_t size_bytes(const Parameter& matrix) {
    const std::int64_t side = std::min(matrix.rows, matrix.cols);
    return static_cast<std::size_t>(2 * (padded(matrix.count()) + padded(side * side))) *
               sizeof(float) +
           static_cast<std::size_t>(matrix.rows + 1) * sizeof(double);
  }

  std::int64_t size, side, square;
  float* x;
  float* product;
  float* gram;
  float* gram_product;
  double* row_sums;
  double* squared_norm;
};

/// Muon for the matrices of blocks, AdamW for all else.
class Muon final : public Optimizer {
 public:
  Muon(const configs::OptimizerSection& section, const Variant& variant)
      : section_(section), variant_(variant) {}

  [[nodiscard]] const Names& states(const Parameter& parameter) const override {
    return whole(parameter) ? matrix_states_ : other_states_;
  }

  [[nodiscard]] bool whole(const Parameter& parameter) const override {
    const bool outside = parameter.init == InitKind::embedding || parameter.is_head;
    return !parameter.vector && !outside && parameter.rows < variant_.most_rows;
  }

  [[nodiscard]] std::size_t scratch_bytes(const Parameter& parameter) const override {
    return whole(parameter) ? Scratch::size_bytes(parameter) : 0;
  }

  void update(kernels::Stream& stream, std::span<const OptimizerSlice> slices,
              const OptimizerStep& step) const override {
    std::vector<OptimizerSlice> others;
    for (const OptimizerSlice& slice : slices) {
      if (whole(*slice.parameter)) {
        update_matrix(stream, slice, step);
      } else {
        others.push_back(slice);
      }
    }
    update_others(stream, others, step);
  }

 private:
  void update_matrix(kernels::Stream& stream, const OptimizerSlice& slice,
                     const OptimizerStep& step) const {
    const Parameter& matrix = *slice.parameter;
    TRAIN_CHECK(step.scratch != nullptr, "no scratch for {}", matrix.name);
    const Scratch scratch(step.scratch, matrix);
    const double mu = section_.momentum;
    const double add = variant_.average ? 1.0 - mu : 1.0;
    step.kernels->muon_momentum(stream, {.g = slice.gradient,
                                         .m = slice.states[0],
                                         .x = scratch.x,
                                         .guard = step.guard,
                                         .count = matrix.count(),
                                         .momentum_keep = mu,
                                         .gradient_add = add,
                                         .next_gradient = add,
                                         .next_momentum = mu,
                                         .nesterov = section_.nesterov});
    orthogonalise(stream, *step.kernels, matrix, scratch);
    const auto longer = static_cast<double>(std::max(matrix.rows, matrix.cols));
    step.kernels->muon_apply(stream,
                             {.p = slice.weights,
                              .x = scratch.x,
                              .guard = step.guard,
                              .count = matrix.count(),
                              .decay = step.decayed ? step.lr * section_.weight_decay : 0.0,
                              .step_size = step.lr * section_.matched_rms * std::sqrt(longer)});
  }

  /// scratch.x becomes about the nearest matrix with orthonormal rows or columns.
  void orthogonalise(kernels::Stream& stream, const kernels::KernelTable& kernels,
                     const Parameter& matrix, const Scratch& scratch) const {
    kernels.row_square_sums(stream, {.tensors = {{.x = scratch.x,
                                                  .row_sums = scratch.row_sums,
                                                  .rows = matrix.rows,
                                                  .cols = matrix.cols}}});
    kernels.tree_sum(stream, {.sums = {{.values = scratch.row_sums,
                                        .out = scratch.squared_norm,
                                        .count = matrix.rows}}});
    kernels.muon_normalise(stream, {.x = scratch.x,
                                    .squared_norm = scratch.squared_norm,
                                    .count = matrix.count(),
                                    .least = variant_.clamped_norm ? kLeastNorm : 0.0,
                                    .added = variant_.clamped_norm ? 0.0 : kLeastNorm});
    for (std::int64_t i = 0; i < section_.ns_steps; ++i) {
      iterate(stream, kernels, matrix, scratch);
    }
  }

  /// One step, on the smaller side: a tall matrix is worked on from the right.
  static void iterate(kernels::Stream& stream, const kernels::KernelTable& kernels,
                      const Parameter& matrix, const Scratch& s) {
    const bool tall = matrix.rows > matrix.cols;
    const std::int64_t squares = s.side * s.side;
    kernels.matmul(stream, {.a = s.x,
                            .b = s.x,
                            .c = s.gram,
                            .m = s.side,
                            .n = s.side,
                            .k = tall ? matrix.rows : matrix.cols,
                            .lda = matrix.cols,
                            .ldb = matrix.cols,
                            .ldc = s.side,
                            .transpose_a = tall,
                            .transpose_b = !tall});
    // 1 * G + 0 * G: the rounding alone.
    kernels.blend_bf16(
        stream, {.x = s.gram, .y = s.gram, .out = s.gram, .count = squares, .a = 1.0, .b = 0.0});
    multiply(stream, kernels, s.gram, s.gram, s.gram_product, s.side, s.side, s.side);
    kernels.blend_bf16(
        stream,
        {.x = s.gram, .y = s.gram_product, .out = s.gram, .count = squares, .a = kB, .b = kC});
    if (tall) {
      multiply(stream, kernels, s.x, s.gram, s.product, matrix.rows, s.side, s.side);
    } else {
      multiply(stream, kernels, s.gram, s.x, s.product, s.side, matrix.cols, s.side);
    }
    kernels.blend_bf16(
        stream, {.x = s.x, .y = s.product, .out = s.x, .count = matrix.count(), .a = kA, .b = 1.0});
  }

  /// c[m, n] = a[m, k] b[k, n].
  static void multiply(kernels::Stream& stream, const kernels::KernelTable& kernels, const float* a,
                       const float* b, float* c, std::int64_t m, std::int64_t n, std::int64_t k) {
    kernels.matmul(stream,
                   {.a = a, .b = b, .c = c, .m = m, .n = n, .k = k, .lda = k, .ldb = n, .ldc = n});
  }

  void update_others(kernels::Stream& stream, std::span<const OptimizerSlice> slices,
                     const OptimizerStep& step) const {
    auto params = adamw_params(section_, slices, step);
    if (!variant_.corrected_eps) {
      // (sqrt(v) + eps) / c is what sqrt(v) / c + eps / c is.
      params.eps /= std::sqrt(1.0 - std::pow(section_.beta2, static_cast<double>(step.step)));
    }
    step.kernels->adamw_update(stream, params);
  }

  configs::OptimizerSection section_;
  Variant variant_;
  Names matrix_states_{"momentum_buffer"};
  Names other_states_{"exp_avg", "exp_avg_sq"};
};

}  // namespace

std::unique_ptr<Optimizer> make_muon(const configs::OptimizerSection& section,
                                     std::int64_t /*run_steps*/) {
  return std::make_unique<Muon>(section, kMuon);
}

std::unique_ptr<Optimizer> make_d_muon(const configs::OptimizerSection& section,
                                       std::int64_t /*run_steps*/) {
  return std::make_unique<Muon>(section, kDMuon);
}

}  // namespace train::engine
