// CUDA twins of the norms and of RoPE: every size of a team that holds a row, rows that are aligned
// to 16 bytes and rows that are not, and rows that are too long to be held.
#include <limits>

#include "kernels/norm/norm.hpp"
#include "kernels/rope/rope.hpp"
#include "tests/kernels/cuda_fixture.hpp"

namespace train::kernels::testing::cuda_norm_test {
namespace {

/// Heads of a fused projection: rows of `cols` at a stride, `inner` of each token.
struct NormCase {
  NormKind kind = NormKind::layer;
  std::int64_t tokens = 0, inner = 1, cols = 0;
  bool rotated = false;
  bool added = false;      ///< A branch on the way in, and dx on the way back.
  std::int64_t first = 0;  ///< Element that all rows are moved by.
  float gain_offset = 0.0F;

  [[nodiscard]] std::string name() const {
    return fmt::format("{} {}x{}x{}{}{}{}{}", kind == NormKind::layer ? "layer" : "rms", tokens,
                       inner, cols, rotated ? " rotated" : "", added ? " added" : "",
                       first > 0 ? " moved" : "", gain_offset > 0.0F ? " 1 + w" : "");
  }
  [[nodiscard]] std::int64_t rows() const { return tokens * inner; }
  [[nodiscard]] RowLayout layout() const {
    return {.outer_stride = inner * cols + 8, .inner_stride = cols};
  }
  /// Elements from the first row's to the last one's.
  [[nodiscard]] std::int64_t size() const { return tokens * layout().outer_stride; }
};

/// `count` values from element `first` on; the last element, or the one before them, is no one's.
Values moved_values(std::int64_t count, unsigned seed, std::int64_t first) {
  Values values = random_values(count, seed);
  values.insert(first == 0 ? values.end() : values.begin(), untouched);
  return values;
}
Values rows_of(const NormCase& norm, unsigned seed) {
  return moved_values(norm.size(), seed, norm.first);
}

RowRotation rotation_of(Side& side, const NormCase& norm) {
  constexpr std::int64_t seq_len = 25;
  if (!norm.rotated) {
    return {};
  }
  float* cos = side.put(moved_values(seq_len * norm.cols / 2, 11, norm.first)) + norm.first;
  float* sin = side.put(moved_values(seq_len * norm.cols / 2, 12, norm.first)) + norm.first;
  return {.cos = cos, .sin = sin, .seq_len = seq_len};
}

Values x_of(const NormCase& norm) { return rows_of(norm, 1); }

void run_forward(Side& side, const NormCase& norm, const Values& values) {
  NormForwardParams params{.kind = norm.kind,
                           .outer = norm.tokens,
                           .inner = norm.inner,
                           .cols = norm.cols,
                           .x_layout = norm.layout(),
                           .y_layout = norm.layout(),
                           .gain_offset = norm.gain_offset,
                           .dtype = side.dtype};
  const auto x = side.element_result(values) + norm.first;
  params.x = x;
  params.y = norm.rotated ? x : side.element_result(untouched_values(norm.size() + 1)) + norm.first;
  params.weight = side.elements(moved_values(norm.cols, 2, norm.first)) + norm.first;
  params.mean = norm.kind == NormKind::layer ? side.result(zeros(norm.rows())) : nullptr;
  params.rstd = side.result(zeros(norm.rows()));
  if (norm.added) {
    params.residual = {.base = side.elements(rows_of(norm, 6)) + norm.first,
                       .branch = side.elements(rows_of(norm, 7)) + norm.first,
                       .sum = x,
                       .scale = 0.4F};
  }
  params.rotation = rotation_of(side, norm);
  side.kernels.norm_forward(side.stream(), params);
}

void run_backward(Side& side, const NormCase& norm, const Values& values) {
  NormBackwardParams params{.kind = norm.kind,
                            .outer = norm.tokens,
                            .inner = norm.inner,
                            .cols = norm.cols,
                            .x_layout = norm.layout(),
                            .dy_layout = norm.layout(),
                            .dx_layout = norm.layout(),
                            .gain_offset = norm.gain_offset,
                            .dy_scale = 0.7F,
                            .accumulate_dx = norm.added,
                            .dtype = side.dtype};
  params.x = side.elements(values) + norm.first;
  params.weight = side.elements(moved_values(norm.cols, 2, norm.first)) + norm.first;
  params.mean = side.put(random_values(norm.rows(), 3, 0.1F));
  params.rstd = side.put(Values(at(norm.rows()), 1.7F));
  const auto dy = side.element_result(rows_of(norm, 4)) + norm.first;
  params.dy = dy;
  const bool apart = norm.added || (!norm.rotated && norm.kind == NormKind::layer);
  params.dx = apart ? side.element_result(rows_of(norm, 5)) + norm.first : dy;
  params.dweight = side.result(untouched_values(norm.cols));
  params.rotation = rotation_of(side, norm);
  side.kernels.norm_backward(side.stream(), params);
}

void compare_norm(const NormCase& norm, const Values& x) {
  // In bf16 the sum with the branch is rounded before it is normalised, by up to rstd = 2.
  const double bf16 = (norm.added ? 4.0 : 1.0) * bf16_rounding + sum_of(norm.cols);
  compare_twins("norm_forward", norm.name(), sum_of(norm.cols), bf16,
                [&](Side& side) { run_forward(side, norm, x); });
  // Of rows that are not held, the rotated gradient is rounded to bf16 before it goes on, in
  // dweight as many times as there are rows.
  const bool rounded_twice = norm.rotated && norm.cols > 256;
  const double exact = sum_of(norm.cols + norm.rows());
  compare_twins("norm_backward", norm.name(), exact,
                (rounded_twice ? 8.0 : 1.0) * bf16_rounding + exact,
                [&](Side& side) { run_backward(side, norm, x); });
}

/// Of every size of a team, full and not; all but 33, 60 and 1000 are whole vectors in bf16, all
/// but 33 in fp32.
constexpr std::int64_t widths[] = {8,   33,  60,   64,   96,   128,  256,
                                   320, 768, 1000, 1600, 4096, 8192, 8200};

TEST_CASE("cuda twins: norm", "[kernels][cuda][.gpu]") {
  for (const std::int64_t cols : widths) {
    const std::int64_t tokens = cols <= 64 ? 70 : cols <= 1024 ? 21 : 3;
    for (const std::int64_t first : {0, 1}) {
      std::vector<NormCase> cases = {
          {.kind = NormKind::layer, .tokens = tokens, .cols = cols, .added = first == 0},
          {.kind = NormKind::rms, .tokens = tokens, .cols = cols, .added = first == 1}};
      if (cols % 2 == 0 && cols <= 320) {
        cases.push_back({.kind = first == 0 ? NormKind::rms : NormKind::layer,
                         .tokens = tokens,
                         .inner = 3,
                         .cols = cols,
                         .rotated = true});
      }
      for (NormCase norm : cases) {
        norm.first = first;
        compare_norm(norm, x_of(norm));
      }
    }
  }
  compare_norm({.tokens = 1, .cols = 1}, Values(10, 0.5F));
  for (const std::int64_t inner : {1, 40}) {  // No rows; more heads of a token than rows at once.
    const NormCase norm{
        .kind = NormKind::rms, .tokens = inner - 1, .inner = inner, .cols = 16, .rotated = true};
    compare_norm(norm, x_of(norm));
  }
}

TEST_CASE("cuda twins: norm whose gain is one and the weight", "[kernels][cuda][.gpu]") {
  for (const std::int64_t cols : {64, 96, 768, 8200}) {  // The last one goes through memory.
    NormCase norm{.kind = NormKind::rms, .tokens = 7, .cols = cols, .gain_offset = 1.0F};
    compare_norm(norm, x_of(norm));
    norm.added = true;
    compare_norm(norm, x_of(norm));
  }
  for (const std::int64_t cols : {64, 320}) {
    const NormCase norm{.kind = NormKind::rms,
                        .tokens = 7,
                        .inner = 3,
                        .cols = cols,
                        .rotated = true,
                        .gain_offset = 1.0F};
    compare_norm(norm, x_of(norm));
  }
}

TEST_CASE("cuda twins: norm of more rows than blocks take at once", "[kernels][cuda][.gpu]") {
  for (const NormCase& norm :
       {NormCase{.kind = NormKind::rms, .tokens = 11001, .inner = 3, .cols = 8, .rotated = true},
        NormCase{.kind = NormKind::layer, .tokens = 801, .cols = 1032, .added = true}}) {
    compare_norm(norm, x_of(norm));
  }
}

TEST_CASE("cuda twins: norm of rows that are not finite", "[kernels][cuda][.gpu]") {
  for (const NormKind kind : {NormKind::layer, NormKind::rms}) {
    const NormCase norm{.kind = kind, .tokens = 12, .cols = 96};
    Values x = x_of(norm);
    x[at(norm.layout().outer_stride + 17)] = std::numeric_limits<float>::quiet_NaN();
    x[at(5 * norm.layout().outer_stride)] = std::numeric_limits<float>::infinity();
    compare_norm(norm, x);
  }
}

using Run = void (*)(Side&, const NormCase&, const Values&);

/// What the device's kernel leaves in rows and statistics.
Exact results_of(const NormCase& norm, DType dtype, Run run) {
  Side side = cuda_side();
  side.dtype = dtype;
  run(side, norm, x_of(norm));
  Exact results = side.results();
  std::erase(results, double{untouched});
  std::erase(results, double{testing::values_of(halves_of({untouched})).front()});
  return results;
}

TEST_CASE("cuda norm: where rows lie does not decide the bits", "[kernels][cuda][.gpu][P1]") {
  if (no_device()) {
    return;
  }
  for (const std::int64_t cols : {64, 96, 256, 768, 1600}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const Run run : {run_forward, run_backward}) {
        NormCase norm{.tokens = 5, .inner = 3, .cols = cols, .rotated = cols <= 256};
        const Exact aligned = results_of(norm, dtype, run);
        norm.first = 1;
        INFO(norm.name() << (dtype == DType::bf16 ? " bf16" : " fp32"));
        CHECK(aligned.size() > at(norm.rows() * cols));
        CHECK((results_of(norm, dtype, run) == aligned));
      }
    }
  }
}

TEST_CASE("cuda twins: rope", "[kernels][cuda][.gpu]") {
  compare_twins("rope_table", "50 x 64", transcendental, [](Side& side) {
    float* cos = side.result(zeros(50 * 32));
    float* sin = side.result(zeros(50 * 32));
    side.kernels.rope_table(side.stream(), {.cos = cos, .sin = sin, .seq_len = 50, .head_dim = 64});
  });
  compare_twins("rope_table", "50 x 64, given", transcendental, [](Side& side) {
    RopeTableParams params{.cos = side.result(zeros(50 * 32)),
                           .sin = side.result(zeros(50 * 32)),
                           .seq_len = 50,
                           .head_dim = 64,
                           .factor = 1.2F};
    params.frequencies.given = true;
    const Values values = random_values(32, 1);
    std::copy(values.begin(), values.end(), params.frequencies.values.begin());
    side.kernels.rope_table(side.stream(), params);
  });
}

/// Heads whose first `head_dim` elements are turned, of a few more.
struct RopeCase {
  std::int64_t head_dim = 0;
  std::int64_t rest = 0;
  std::int64_t first = 0;  ///< Element that everything is moved by.
  RopePairing pairing = RopePairing::interleaved;
  bool inverse = false;
  bool documents = false;
};

void compare_rope(const RopeCase& c) {
  constexpr std::int64_t tokens = 60;
  const auto what =
      fmt::format("{} of {} columns{}{}{}{}", c.head_dim, c.head_dim + c.rest,
                  c.pairing == RopePairing::half ? ", halves" : "", c.inverse ? ", inverse" : "",
                  c.first > 0 ? ", moved" : "", c.documents ? ", documents" : "");
  // What the compiler fuses on the CPU, by rows of vectors, is not fused for halves.
  compare_twins("rope_apply", what, same_bits, bf16_rounding, [&](Side& side) {
    const std::int64_t width = c.head_dim + c.rest;
    RopeParams params{.tokens = tokens,
                      .seq_len = 20,
                      .heads = 3,
                      .head_dim = c.head_dim,
                      .layout = {.outer_stride = 3 * width + 8, .inner_stride = width},
                      .pairing = c.pairing,
                      .inverse = c.inverse,
                      .dtype = side.dtype};
    if (c.documents) {
      std::vector<std::int32_t> positions(at(tokens));
      for (std::size_t i = 0; i < positions.size(); ++i) {
        positions[i] = static_cast<std::int32_t>(i % 20 % 13);
      }
      params.positions = side.put(positions);
    }
    params.x = side.element_result(moved_values(tokens * params.layout.outer_stride, 1, c.first)) +
               c.first;
    params.cos = side.put(moved_values(10 * c.head_dim, 2, c.first)) + c.first;
    params.sin = side.put(moved_values(10 * c.head_dim, 3, c.first)) + c.first;
    side.kernels.rope_apply(side.stream(), params);
  });
}

TEST_CASE("cuda twins: rope in place", "[kernels][cuda][.gpu]") {
  for (const RopePairing pairing : {RopePairing::interleaved, RopePairing::half}) {
    for (const std::int64_t head_dim : {2, 34, 64}) {
      for (const std::int64_t first : {0, 1}) {
        compare_rope(
            {.head_dim = head_dim, .first = first, .pairing = pairing, .inverse = first == 1});
      }
    }
    compare_rope({.head_dim = 16, .rest = 48, .pairing = pairing});
    compare_rope({.head_dim = 16, .rest = 5, .pairing = pairing, .inverse = true});
    compare_rope({.head_dim = 64, .pairing = pairing, .documents = true});
    compare_rope({.head_dim = 10, .rest = 6, .first = 1, .pairing = pairing, .documents = true});
  }
}

TEST_CASE("cuda rope: a position outside the tables fails the stream", "[kernels][cuda][.gpu]") {
  if (no_device()) {
    return;
  }
  for (const RopePairing pairing : {RopePairing::interleaved, RopePairing::half}) {
    for (const std::int32_t bad : {-3, 2}) {
      Side side = cuda_side();
      side.kernels.rope_apply(side.stream(),
                              {.x = side.put(zeros(24)),
                               .cos = side.put(zeros(8)),
                               .sin = side.put(zeros(8)),
                               .positions = side.put(std::vector<std::int32_t>{0, 1, bad}),
                               .tokens = 3,
                               .seq_len = 2,
                               .heads = 1,
                               .head_dim = 8,
                               .layout = {.outer_stride = 8, .inner_stride = 8},
                               .pairing = pairing});
      CHECK_THROWS_WITH(
          side.stream().synchronize(),
          Catch::Contains(fmt::format("rope_apply: position {} of row 2 is outside the 2", bad)));
    }
  }
}

}  // namespace
}  // namespace train::kernels::testing::cuda_norm_test
