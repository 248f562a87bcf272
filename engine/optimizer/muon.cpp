#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "base/math/fixed_math.hpp"
#include "engine/model/elements.hpp"
#include "engine/optimizer/adamw_params.hpp"
#include "engine/optimizer/registry.hpp"
#include "kernels/activation/elementwise.hpp"
#include "kernels/backend.hpp"
#include "kernels/gemm/matmul.hpp"
#include "kernels/optimizer/adamw.hpp"
#include "kernels/optimizer/global_norm.hpp"
#include "kernels/optimizer/muon.hpp"

namespace train::engine {
namespace {

/// Differences between the two Muon variants.
struct Variant {
  std::int64_t most_rows = 0;  ///< AdamW updates matrices with this many rows or more.
  bool average = false;        ///< The momentum is an average of gradients, else their sum.
  bool clamped_norm = false;   ///< The norm that a matrix is divided by is clamped, else added to.
  bool corrected_eps = false;  ///< AdamW's eps is added to the bias-corrected root.
};

constexpr Variant kMuon{
    .most_rows = 50000, .average = true, .clamped_norm = true, .corrected_eps = true};
constexpr Variant kDMuon{
    .most_rows = 10000, .average = false, .clamped_norm = false, .corrected_eps = false};

/// Least value of a matrix's norm before its orthogonalisation, or the term added to the norm.
constexpr double kLeastNorm = 1e-7;
/// Quintic Newton-Schulz iteration X <- a X + (b G + c G^2) X, G = X X^T, whose slope at 0 is
/// steep.
constexpr double kA = 3.4445;
constexpr double kB = -4.7750;
constexpr double kC = 2.0315;

/// A matrix that is orthogonalised: a parameter of two dimensions, or a slice of one of more.
struct Matrix {
  explicit Matrix(const Parameter& parameter)
      : rows(parameter.shape.at(parameter.shape.size() > 2 ? 1 : 0)),
        cols(parameter.count() / parameter.rows() /
             (parameter.shape.size() > 2 ? parameter.shape[1] : 1)) {}

  [[nodiscard]] std::int64_t count() const { return rows * cols; }
  friend auto operator<=>(const Matrix&, const Matrix&) = default;

  std::int64_t rows, cols;
};

/// Scratch of matrices of one shape that are updated together. Each matrix needs two matrices of
/// its shape, two squares of its smaller side, its row sums and their total. Buffers of one kind
/// are adjacent over all matrices, so that one call rounds them all. If products can read bf16,
/// there are buffers for the rounded operands.
struct Scratch {
  Scratch(std::byte* data, const Matrix& shape, std::int64_t matrices, bool bf16)
      : matrix(shape),
        count(matrices),
        size(padded(shape.count())),
        side(std::min(shape.rows, shape.cols)),
        square(padded(side * side)),
        x(reinterpret_cast<float*>(data)),
        product(x + count * size),
        gram(product + count * size),
        gram_product(gram + count * square) {
    auto* rest = reinterpret_cast<std::byte*>(gram_product + count * square);
    if (bf16) {
      x_halves = reinterpret_cast<std::uint16_t*>(rest);
      gram_halves = x_halves + count * size;
      rest = reinterpret_cast<std::byte*>(gram_halves + count * square);
    }
    row_sums = reinterpret_cast<double*>(rest);
    squared_norms = row_sums + count * shape.rows;
  }

  static std::size_t size_bytes(const Matrix& matrix, std::int64_t count, bool bf16) {
    const std::int64_t side = std::min(matrix.rows, matrix.cols);
    const std::int64_t elements = padded(matrix.count()) + padded(side * side);
    const std::size_t element_bytes = 2 * sizeof(float) + (bf16 ? sizeof(std::uint16_t) : 0);
    return static_cast<std::size_t>(count) *
           (static_cast<std::size_t>(elements) * element_bytes +
            static_cast<std::size_t>(matrix.rows + 1) * sizeof(double));
  }

  /// Elements from the first matrix, or square, to the end of the last one.
  [[nodiscard]] std::int64_t elements() const { return (count - 1) * size + matrix.count(); }
  [[nodiscard]] std::int64_t square_elements() const { return (count - 1) * square + side * side; }
  /// Operand of products; all its values are bf16.
  [[nodiscard]] ConstElements operand_x(std::int64_t i) const {
    return x_halves == nullptr ? ConstElements(x + i * size) : halves(x_halves + i * size);
  }
  [[nodiscard]] ConstElements operand_gram(std::int64_t i) const {
    return gram_halves == nullptr ? ConstElements(gram + i * square)
                                  : halves(gram_halves + i * square);
  }
  static ConstElements halves(const std::uint16_t* bits) {
    return {reinterpret_cast<const std::byte*>(bits), kernels::DType::bf16};
  }

  Matrix matrix;
  std::int64_t count, size, side, square;
  float* x;
  float* product;
  float* gram;
  float* gram_product;
  std::uint16_t* x_halves = nullptr;
  std::uint16_t* gram_halves = nullptr;
  double* row_sums;
  double* squared_norms;
};

/// Number of matrices of a shape that are updated together. On a device the launch for a small
/// matrix takes as long as the computation; on a CPU batching would only lower the cache hit rate.
std::int64_t matrices_at_once(const Matrix& matrix, bool bf16) {
  constexpr std::size_t most_bytes = std::size_t{256} << 20U;
  constexpr std::size_t most = 32;
  const std::size_t fit = most_bytes / Scratch::size_bytes(matrix, 1, bf16);
  return bf16 ? static_cast<std::int64_t>(std::clamp(fit, std::size_t{1}, most)) : 1;
}

/// Muon for the matrices of blocks, AdamW for all else.
class Muon final : public Optimizer {
 public:
  Muon(const configs::OptimizerSection& section, const Variant& variant)
      : section_(section), variant_(variant) {}

  [[nodiscard]] const Names& states(const Parameter& parameter) const override {
    return has_matrices(parameter) ? matrix_states_ : other_states_;
  }

  /// Rows of more dimensions than two are whole matrices anyway.
  [[nodiscard]] bool whole(const Parameter& parameter) const override {
    return has_matrices(parameter) && parameter.shape.size() == 2;
  }

  [[nodiscard]] std::size_t scratch_bytes(const Parameter& parameter,
                                          bool knows_bf16) const override {
    if (!has_matrices(parameter)) {
      return 0;
    }
    const Matrix matrix(parameter);
    return Scratch::size_bytes(matrix, matrices_at_once(matrix, knows_bf16), knows_bf16);
  }

  void update(kernels::Stream& stream, std::span<const OptimizerSlice> slices,
              const OptimizerStep& step) const override {
    std::vector<OptimizerSlice> others;
    std::map<Matrix, std::vector<OptimizerSlice>> of_shape;
    for (const OptimizerSlice& slice : slices) {
      if (has_matrices(*slice.parameter)) {
        append_matrices(slice, of_shape[Matrix(*slice.parameter)]);
      } else {
        others.push_back(slice);
      }
    }
    for (const auto& [shape, matrices] : of_shape) {
      const auto most = static_cast<std::size_t>(matrices_at_once(shape, knows_bf16(step)));
      for (std::size_t first = 0; first < matrices.size(); first += most) {
        update_matrices(stream, shape,
                        std::span(matrices).subspan(first, std::min(most, matrices.size() - first)),
                        step);
      }
    }
    update_others(stream, others, step);
  }

 private:
  static bool knows_bf16(const OptimizerStep& step) { return step.kernels->device->knows_bf16; }

  [[nodiscard]] bool has_matrices(const Parameter& parameter) const {
    return parameter.muon && Matrix(parameter).rows < variant_.most_rows;
  }

  /// Appends a slice for each matrix of `slice`.
  static void append_matrices(const OptimizerSlice& slice, std::vector<OptimizerSlice>& matrices) {
    const std::int64_t count = Matrix(*slice.parameter).count();
    for (std::int64_t at = 0; at < slice.rows * slice.parameter->cols(); at += count) {
      OptimizerSlice matrix = slice;
      matrix.weights += at;
      matrix.gradient += at;
      matrix.states[0] += at;
      matrices.push_back(matrix);
    }
  }

  /// Updates matrices of one shape, as many as fit into the scratch.
  void update_matrices(kernels::Stream& stream, const Matrix& matrix,
                       std::span<const OptimizerSlice> slices, const OptimizerStep& step) const {
    TRAIN_CHECK(step.scratch != nullptr, "no scratch for {}", slices.front().parameter->name);
    const Scratch scratch(step.scratch, matrix, std::ssize(slices), knows_bf16(step));
    const double mu = section_.momentum;
    const double add = variant_.average ? 1.0 - mu : 1.0;
    const auto longer = static_cast<double>(std::max(matrix.rows, matrix.cols));
    for (std::int64_t i = 0; i < scratch.count; ++i) {
      const OptimizerSlice& slice = slices[static_cast<std::size_t>(i)];
      step.kernels->muon_momentum(stream, {.g = slice.gradient,
                                           .m = slice.states[0],
                                           .x = scratch.x + i * scratch.size,
                                           .guard = step.guard,
                                           .count = matrix.count(),
                                           .momentum_keep = mu,
                                           .gradient_add = add,
                                           .next_gradient = add,
                                           .next_momentum = mu,
                                           .nesterov = section_.nesterov});
    }
    orthogonalise(stream, *step.kernels, scratch);
    for (std::int64_t i = 0; i < scratch.count; ++i) {
      step.kernels->muon_apply(stream,
                               {.p = slices[static_cast<std::size_t>(i)].weights,
                                .x = scratch.x + i * scratch.size,
                                .guard = step.guard,
                                .count = matrix.count(),
                                .decay = step.decayed ? step.lr * section_.weight_decay : 0.0,
                                .step_size = step.lr * section_.matched_rms * std::sqrt(longer)});
    }
  }

  /// Each of scratch.x becomes about the nearest matrix with orthonormal rows or columns.
  void orthogonalise(kernels::Stream& stream, const kernels::KernelTable& kernels,
                     const Scratch& s) const {
    const Matrix& matrix = s.matrix;
    kernels::RowSquareSumsParams rows;
    kernels::TreeSumParams sums;
    for (std::int64_t i = 0; i < s.count; ++i) {
      double* of_rows = s.row_sums + i * matrix.rows;
      rows.tensors.push_back(
          {.x = s.x + i * s.size, .row_sums = of_rows, .rows = matrix.rows, .cols = matrix.cols});
      sums.sums.push_back({.values = of_rows, .out = s.squared_norms + i, .count = matrix.rows});
    }
    kernels.row_square_sums(stream, rows);
    kernels.tree_sum(stream, sums);
    for (std::int64_t i = 0; i < s.count; ++i) {
      kernels.muon_normalise(stream, {.x = s.x + i * s.size,
                                      .squared_norm = s.squared_norms + i,
                                      .count = matrix.count(),
                                      .least = variant_.clamped_norm ? kLeastNorm : 0.0,
                                      .added = variant_.clamped_norm ? 0.0 : kLeastNorm});
    }
    for (std::int64_t i = 0; i < section_.ns_steps; ++i) {
      iterate(stream, kernels, s);
    }
  }

  /// One step, on the smaller side: a tall matrix is multiplied from the right. Products of each
  /// matrix are calls of their own: a library may compute many at once by a way that depends on
  /// their number, and ranks have different numbers of them.
  static void iterate(kernels::Stream& stream, const kernels::KernelTable& kernels,
                      const Scratch& s) {
    const Matrix& matrix = s.matrix;
    const bool tall = matrix.rows > matrix.cols;
    read_as_bf16(stream, kernels, s.x, s.x_halves, s.elements());
    for (std::int64_t i = 0; i < s.count; ++i) {
      const ConstElements x = s.operand_x(i);
      kernels.matmul(stream, {.a = x,
                              .b = x,
                              .c = s.gram + i * s.square,
                              .m = s.side,
                              .n = s.side,
                              .k = tall ? matrix.rows : matrix.cols,
                              .lda = matrix.cols,
                              .ldb = matrix.cols,
                              .ldc = s.side,
                              .transpose_a = tall,
                              .transpose_b = !tall,
                              .dtype = x.dtype});
    }
    // 1 * G + 0 * G: the rounding alone.
    blend(stream, kernels, s.gram, s.gram, s.square_elements(), 1.0, 0.0);
    read_as_bf16(stream, kernels, s.gram, s.gram_halves, s.square_elements());
    for (std::int64_t i = 0; i < s.count; ++i) {
      multiply(stream, kernels, s.operand_gram(i), s.operand_gram(i), s.gram_product + i * s.square,
               s.side, s.side, s.side);
    }
    blend(stream, kernels, s.gram, s.gram_product, s.square_elements(), kB, kC);
    read_as_bf16(stream, kernels, s.gram, s.gram_halves, s.square_elements());
    for (std::int64_t i = 0; i < s.count; ++i) {
      float* product = s.product + i * s.size;
      if (tall) {
        multiply(stream, kernels, s.operand_x(i), s.operand_gram(i), product, matrix.rows, s.side,
                 s.side);
      } else {
        multiply(stream, kernels, s.operand_gram(i), s.operand_x(i), product, s.side, matrix.cols,
                 s.side);
      }
    }
    blend(stream, kernels, s.x, s.product, s.elements(), kA, 1.0);
  }

  /// x = a x + b y, rounded to bf16.
  static void blend(kernels::Stream& stream, const kernels::KernelTable& kernels, float* x,
                    const float* y, std::int64_t count, double a, double b) {
    kernels.blend_bf16(stream, {.x = x, .y = y, .out = x, .count = count, .a = a, .b = b});
  }

  /// Writes `values` as bf16 `halves` where products can read bf16: tensor cores multiply bf16
  /// values exactly and add up in fp32.
  static void read_as_bf16(kernels::Stream& stream, const kernels::KernelTable& kernels,
                           const float* values, std::uint16_t* halves, std::int64_t count) {
    if (halves != nullptr) {
      kernels.pack_bf16(stream, {.in = values, .out = halves, .count = count});
    }
  }

  /// c[m, n] = a[m, k] b[k, n].
  static void multiply(kernels::Stream& stream, const kernels::KernelTable& kernels,
                       ConstElements a, ConstElements b, float* c, std::int64_t m, std::int64_t n,
                       std::int64_t k) {
    kernels.matmul(stream, {.a = a,
                            .b = b,
                            .c = c,
                            .m = m,
                            .n = n,
                            .k = k,
                            .lda = k,
                            .ldb = n,
                            .ldc = n,
                            .dtype = a.dtype});
  }

  void update_others(kernels::Stream& stream, std::span<const OptimizerSlice> slices,
                     const OptimizerStep& step) const {
    auto params = adamw_params(section_, slices, step);
    if (!variant_.corrected_eps) {
      // (sqrt(v) + eps) / c is what sqrt(v) / c + eps / c is.
      params.eps /= std::sqrt(1.0 - fixed::pow(section_.beta2, static_cast<double>(step.step)));
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
