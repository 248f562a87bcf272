// Each family of kernels alone, in bf16 at the models' shapes, against the device's limits.
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bench/gpu/gpu_kernel_bench.hpp"
#include "bench/kernels/attention_rows.hpp"
#include "engine/model/blocks/head_unit.hpp"
#include "kernels/activation/activation.hpp"
#include "kernels/activation/elementwise.hpp"
#include "kernels/embedding/embedding.hpp"
#include "kernels/gemm/matmul.hpp"
#include "kernels/head/head_loss.hpp"
#include "kernels/norm/norm.hpp"
#include "kernels/optimizer/adamw.hpp"
#include "kernels/optimizer/ademamix.hpp"
#include "kernels/optimizer/dana.hpp"
#include "kernels/optimizer/global_norm.hpp"
#include "kernels/optimizer/muon.hpp"
#include "kernels/optimizer/update_guard.hpp"
#include "kernels/rope/rope.hpp"

namespace train::bench {
namespace {

using namespace kernels;

/// `full`, or a size small enough for an emulated device.
std::int64_t sized(const KernelBench& bench, std::int64_t full, std::int64_t tiny) {
  return bench.tiny() ? tiny : full;
}

/// The three products of a linear layer.
void products(KernelBench& bench, std::int64_t tokens, std::int64_t out, std::int64_t in) {
  const std::byte* x = bench.bf16(tokens * in);
  const std::byte* w = bench.bf16(out * in);
  const std::byte* y = bench.bf16(tokens * out);
  auto* to_y = bench.bf16(tokens * out);
  auto* to_x = bench.bf16(tokens * in);
  float* to_w = bench.fp32(out * in);
  const double flop = 2.0 * static_cast<double>(tokens * out * in);
  const std::string shape = fmt::format("{} x {} -> {}", tokens, in, out);
  const auto product = [&](const std::string& name, MatmulParams params) {
    params.dtype = DType::bf16;
    bench.row(name + shape, flop, 0,
              [&bench, params](Stream& stream) { bench.kernels().matmul(stream, params); });
  };
  product("matmul y = x W^T   ", {.a = x,
                                  .b = w,
                                  .c = to_y,
                                  .m = tokens,
                                  .n = out,
                                  .k = in,
                                  .lda = in,
                                  .ldb = in,
                                  .ldc = out,
                                  .transpose_b = true,
                                  .output_dtype = DType::bf16});
  product("matmul dx = dy W   ", {.a = y,
                                  .b = w,
                                  .c = to_x,
                                  .m = tokens,
                                  .n = in,
                                  .k = out,
                                  .lda = out,
                                  .ldb = in,
                                  .ldc = in,
                                  .output_dtype = DType::bf16});
  product("matmul dW = dy^T x ", {.a = y,
                                  .b = x,
                                  .c = to_w,
                                  .m = out,
                                  .n = in,
                                  .k = tokens,
                                  .lda = out,
                                  .ldb = in,
                                  .ldc = in,
                                  .transpose_a = true});
  bench.forget();
}

void norms(KernelBench& bench, NormKind kind, std::int64_t rows, std::int64_t cols) {
  const std::byte* x = bench.bf16(rows * cols);
  const std::byte* weight = bench.bf16(cols);
  const std::byte* dy = bench.bf16(rows * cols);
  auto* y = bench.bf16(rows * cols);
  float* dweight = bench.fp32(cols);
  float* mean = bench.fp32(rows);
  float* rstd = bench.positive(rows);
  const RowLayout layout{cols, 0};
  const double bytes = static_cast<double>(kHalf) * static_cast<double>(rows * cols);
  const std::string shape =
      fmt::format("{} {} x {}", kind == NormKind::layer ? "layer" : "rms", rows, cols);
  bench.row("norm forward  " + shape, 0, 2 * bytes, [&](Stream& stream) {
    bench.kernels().norm_forward(stream, {.kind = kind,
                                          .x = x,
                                          .weight = weight,
                                          .y = y,
                                          .mean = mean,
                                          .rstd = rstd,
                                          .outer = rows,
                                          .cols = cols,
                                          .x_layout = layout,
                                          .y_layout = layout,
                                          .dtype = DType::bf16});
  });
  bench.row("norm backward " + shape, 0, 3 * bytes, [&](Stream& stream) {
    bench.kernels().norm_backward(stream, {.kind = kind,
                                           .x = x,
                                           .weight = weight,
                                           .mean = mean,
                                           .rstd = rstd,
                                           .dy = dy,
                                           .dx = y,
                                           .dweight = dweight,
                                           .outer = rows,
                                           .cols = cols,
                                           .x_layout = layout,
                                           .dy_layout = layout,
                                           .dx_layout = layout,
                                           .dtype = DType::bf16});
  });
  bench.forget();
}

/// Query heads of a fused projection: norm and rotation into a buffer of queries and keys, and back
/// in place; and rotation in place, without a norm.
void heads(KernelBench& bench, std::int64_t tokens, std::int64_t seq_len, std::int64_t heads,
           std::int64_t head_dim) {
  const std::int64_t width = heads * head_dim;
  const RowLayout fused{3 * width, head_dim};
  const std::byte* x = bench.bf16(tokens * 3 * width);
  const std::byte* weight = bench.bf16(head_dim);
  auto* y = bench.bf16(tokens * 2 * width);
  auto* dx = bench.bf16(tokens * 3 * width);
  float* dweight = bench.fp32(head_dim);
  float* mean = bench.fp32(tokens * heads);
  float* rstd = bench.positive(tokens * heads);
  const float* cos = bench.fp32(seq_len * head_dim / 2);
  const float* sin = bench.fp32(seq_len * head_dim / 2);
  const RowRotation rotation{.cos = cos, .sin = sin, .seq_len = seq_len};
  const double bytes = static_cast<double>(kHalf) * static_cast<double>(tokens * width);
  const std::string shape = fmt::format("{} x {} x {}", tokens, heads, head_dim);
  bench.row("rotated norm forward  " + shape, 0, 2 * bytes, [&](Stream& stream) {
    bench.kernels().norm_forward(stream, {.x = x,
                                          .weight = weight,
                                          .y = y,
                                          .mean = mean,
                                          .rstd = rstd,
                                          .outer = tokens,
                                          .inner = heads,
                                          .cols = head_dim,
                                          .x_layout = fused,
                                          .y_layout = {2 * width, head_dim},
                                          .rotation = rotation,
                                          .dtype = DType::bf16});
  });
  bench.row("rotated norm backward " + shape, 0, 3 * bytes, [&](Stream& stream) {
    bench.kernels().norm_backward(stream, {.x = x,
                                           .weight = weight,
                                           .mean = mean,
                                           .rstd = rstd,
                                           .dy = dx,
                                           .dx = dx,
                                           .dweight = dweight,
                                           .outer = tokens,
                                           .inner = heads,
                                           .cols = head_dim,
                                           .x_layout = fused,
                                           .dy_layout = fused,
                                           .dx_layout = fused,
                                           .rotation = rotation,
                                           .dtype = DType::bf16});
  });
  bench.row("rope_apply " + shape, 0, 2 * bytes, [&](Stream& stream) {
    bench.kernels().rope_apply(stream, {.x = dx,
                                        .cos = cos,
                                        .sin = sin,
                                        .tokens = tokens,
                                        .seq_len = seq_len,
                                        .heads = heads,
                                        .head_dim = head_dim,
                                        .layout = fused,
                                        .dtype = DType::bf16});
  });
  bench.forget();
}

void elementwise(KernelBench& bench, std::int64_t count) {
  const std::byte* x = bench.bf16(count);
  const std::byte* dy = bench.bf16(count);
  auto* y = bench.bf16(count);
  auto* z = bench.bf16(count);
  const double bytes = static_cast<double>(kHalf) * static_cast<double>(count);
  const auto name = [&](const char* kernel) { return fmt::format("{} {}", kernel, count); };
  const KernelTable& table = bench.kernels();
  constexpr DType bf16 = DType::bf16;
  bench.row(name("gelu_forward"), 0, 2 * bytes, [&](Stream& stream) {
    table.gelu_forward(stream, {.x = x, .y = y, .count = count, .dtype = bf16});
  });
  bench.row(name("gelu_backward"), 0, 3 * bytes, [&](Stream& stream) {
    table.gelu_backward(stream, {.x = x, .dy = dy, .dx = y, .count = count, .dtype = bf16});
  });
  bench.row(name("swiglu_forward"), 0, 3 * bytes, [&](Stream& stream) {
    table.swiglu_forward(stream, {.gate = x, .up = dy, .y = y, .count = count, .dtype = bf16});
  });
  bench.row(name("swiglu_backward"), 0, 5 * bytes, [&](Stream& stream) {
    table.swiglu_backward(
        stream,
        {.gate = x, .up = dy, .dy = dy, .dgate = y, .dup = z, .count = count, .dtype = bf16});
  });
  bench.row(name("residual_add"), 0, 3 * bytes, [&](Stream& stream) {
    table.residual_add(stream, {.x = x, .branch = dy, .out = y, .count = count, .dtype = bf16});
  });
  bench.forget();
}

void updates(KernelBench& bench, std::int64_t count) {
  float* p = bench.fp32(count);
  const float* g = bench.fp32(count);
  float* m = bench.fp32(count);
  float* v = bench.positive(count);
  float* w = bench.fp32(count);
  auto* half = reinterpret_cast<std::uint16_t*>(bench.bf16(count));
  const UpdateGuard open;
  auto* guard = bench.empty<UpdateGuard>(sizeof(UpdateGuard));
  bench.kernels().device->copy(guard, &open, sizeof(open));
  auto* sums = bench.empty<double>(static_cast<std::size_t>(count / 16 + 1) * sizeof(double));
  const auto elements = static_cast<double>(count);
  bench.row(fmt::format("adamw_update {}", count), 0, 28 * elements, [&](Stream& stream) {
    bench.kernels().adamw_update(stream,
                                 {.tensors = {{.p = p, .g = g, .m = m, .v = v, .count = count}},
                                  .guard = guard,
                                  .step = 10,
                                  .lr = 1e-4});
  });
  bench.row(fmt::format("ademamix_update {}", count), 0, 36 * elements, [&](Stream& stream) {
    bench.kernels().ademamix_update(
        stream, {.tensors = {{.p = p, .g = g, .fast = m, .slow = w, .v = v, .count = count}},
                 .guard = guard,
                 .step = 10,
                 .lr = 1e-4});
  });
  bench.row(fmt::format("dana_update {}", count), 0, 28 * elements, [&](Stream& stream) {
    bench.kernels().dana_update(
        stream, {.tensors = {{.p = p, .g = g, .m = m, .v = v, .rows = count / 1024, .cols = 1024}},
                 .guard = guard,
                 .step = 10,
                 .lr = 1e-4});
  });
  bench.row(fmt::format("muon_momentum {}", count), 0, 16 * elements, [&](Stream& stream) {
    bench.kernels().muon_momentum(stream, {.g = g, .m = m, .x = w, .guard = guard, .count = count});
  });
  bench.row(fmt::format("row_square_sums {}", count), 0, 4 * elements, [&](Stream& stream) {
    bench.kernels().row_square_sums(
        stream, {.tensors = {{.x = g, .row_sums = sums, .rows = count / 1024, .cols = 1024}}});
  });
  bench.row(fmt::format("tree_add {}", count), 0, 12 * elements, [&](Stream& stream) {
    bench.kernels().tree_add(stream, {.left = p, .right = g, .out = m, .count = count});
  });
  bench.row(fmt::format("pack_bf16 {}", count), 0, 6 * elements, [&](Stream& stream) {
    bench.kernels().pack_bf16(stream, {.in = p, .out = half, .count = count});
  });
  bench.forget();
}

void ends(KernelBench& bench, std::int64_t rows, std::int64_t cols, std::int64_t vocab,
          std::int64_t chunk_rows) {
  const std::byte* x = bench.bf16(rows * cols);
  const std::byte* weight = bench.bf16(vocab * cols);
  const KernelBench::Ids ids = bench.ids(rows, vocab);
  const std::int32_t* tokens = ids.data;
  auto* dx = bench.bf16(rows * cols);
  float* dweight = bench.fp32(vocab * cols);
  float* logits = bench.fp32(chunk_rows * vocab);
  auto* terms = bench.empty<double>(static_cast<std::size_t>(rows * 4) * sizeof(double));
  auto* sums = bench.empty<LossSums>(sizeof(LossSums));
  const auto elements = static_cast<double>(rows * cols);
  const auto head_loss = [&](Stream& stream, std::int64_t width) {
    bench.kernels().head_loss(stream, {.x = x,
                                       .weight = weight,
                                       .targets = tokens,
                                       .sums = sums,
                                       .dx = dx,
                                       .dweight = dweight,
                                       .logits = logits,
                                       .row_terms = terms,
                                       .rows = rows,
                                       .cols = width,
                                       .vocab = vocab,
                                       .chunk_rows = chunk_rows,
                                       .dtype = DType::bf16});
  };
  bench.row(fmt::format("head_loss {} x {} -> {} by {}", rows, cols, vocab, chunk_rows),
            6.0 * elements * static_cast<double>(vocab), 0,
            [&](Stream& stream) { head_loss(stream, cols); });
  // So few columns that nearly everything is logits: written by a product, read and replaced by the
  // loss, and read by two products.
  constexpr std::int64_t few = 16;
  bench.row(fmt::format("head_loss {} x {} -> {} by {}", rows, few, vocab, chunk_rows), 0,
            14.0 * static_cast<double>(rows) * static_cast<double>(vocab),
            [&](Stream& stream) { head_loss(stream, few); });
  bench.row(fmt::format("embedding_forward {} x {}", rows, cols), 0, 4 * elements,
            [&](Stream& stream) {
              bench.kernels().embedding_forward(stream, {.tokens = tokens,
                                                         .weight = weight,
                                                         .out = dx,
                                                         .rows = rows,
                                                         .cols = cols,
                                                         .vocab = vocab,
                                                         .dtype = DType::bf16});
            });
  const auto backward = [&](const char* name, bool accumulate, double bytes) {
    bench.row(fmt::format("embedding_backward {} x {}{}", rows, cols, name), 0, bytes,
              [&, accumulate](Stream& stream) {
                bench.kernels().embedding_backward(stream, {.tokens = tokens,
                                                            .dout = x,
                                                            .dweight = dweight,
                                                            .rows = rows,
                                                            .cols = cols,
                                                            .vocab = vocab,
                                                            .accumulate = accumulate,
                                                            .dtype = DType::bf16});
              });
  };
  // Zeros everywhere, written again for present tokens; or the old value, read and written.
  const auto touched = static_cast<double>(ids.distinct * cols);
  backward("", false, 2 * elements + 4 * static_cast<double>(vocab * cols) + 4 * touched);
  backward(", accumulate", true, 2 * elements + 8 * touched);
  bench.forget();
}

}  // namespace

void gpu_kernels_row(const GpuSite& site) {
  KernelBench bench(site);
  bench.measure_limits();
  const auto of = [&](std::int64_t full, std::int64_t tiny) { return sized(bench, full, tiny); };
  products(bench, of(32768, 8), of(2304, 16), of(768, 8));
  products(bench, of(32768, 8), of(3072, 16), of(768, 8));
  if (!site.tiny()) {
    products(bench, 8192, 6400, 1600);
    products(bench, 16384, 3072, 1024);
    products(bench, 4096, 14336, 4096);
  }
  std::vector<AttentionCase> cases = {
      {of(32, 1), of(1024, 16), of(12, 1), of(64, 16), DType::bf16}};
  if (!site.tiny()) {
    cases.push_back({8, 2048, 16, 128, DType::bf16});
    cases.push_back({1, 4096, 32, 128, DType::bf16});
  }
  for (const AttentionCase& c : cases) {
    (void)measure_attention(bench, c);
  }
  // The layers of OLMoE and of Qwen3-30B-A3B, at 2048 and 256 places of an expert on average.
  measure_experts(bench, {of(16384, 8), of(64, 3), of(8, 2), of(2048, 16), of(1024, 8)});
  if (!site.tiny()) {
    measure_experts(bench, {4096, 128, 8, 2048, 768});
  }
  // Buffers many times the device's cache, 50 MiB of which would keep data that a step does not.
  norms(bench, NormKind::layer, of(262144, 4), of(768, 16));
  norms(bench, NormKind::rms, of(196608, 4), of(1024, 16));
  heads(bench, of(262144, 4), of(1024, 4), of(12, 1), of(64, 16));
  elementwise(bench, of(32768 * 3072, 64));
  updates(bench, of(std::int64_t{1} << 27U, 1 << 10U));
  const std::int64_t vocab = of(50304, 32);
  for (const std::int64_t chunk :
       {of(256, 2), engine::head_chunk_rows(of(32768, 8), vocab, DType::bf16)}) {
    ends(bench, of(32768, 8), of(768, 16), vocab, chunk);
  }
}

}  // namespace train::bench
