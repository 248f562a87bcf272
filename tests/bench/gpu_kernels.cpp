// Each family of kernels alone, in bf16 at the models' shapes, against the device's limits.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/model/head_unit.hpp"
#include "kernels/device/buffer.hpp"
#include "tests/bench/attention_rows.hpp"
#include "tests/bench/gpu_site.hpp"

namespace train::bench {
namespace {

using namespace kernels;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kHalf = sizeof(std::uint16_t);

/// Memory of the device for the arguments of one kernel, and its clock.
class KernelBench {
 public:
  explicit KernelBench(const GpuSite& site)
      : site_(site), stream_(site.kernels().device->make_stream("bench", 1)) {}

  [[nodiscard]] const KernelTable& kernels() const { return site_.kernels(); }
  [[nodiscard]] bool tiny() const { return site_.tiny(); }

  /// Values of either sign in [0.5, 1), bf16 or fp32: what is all zeros takes less power, and a
  /// device that takes less runs faster.
  std::byte* bf16(std::int64_t count) {
    return filled(static_cast<std::size_t>(count) * kHalf, 0x807F807FU, 0x3F003F00U);
  }
  float* fp32(std::int64_t count) {
    return reinterpret_cast<float*>(
        filled(static_cast<std::size_t>(count) * sizeof(float), 0x807FFFFFU, 0x3F000000U));
  }
  /// Small positive fp32, for moments and statistics.
  float* positive(std::int64_t count) {
    return reinterpret_cast<float*>(
        filled(static_cast<std::size_t>(count) * sizeof(float), 0x007FFFFFU, 0x3F000000U));
  }
  std::int32_t* ids(std::int64_t count, std::int64_t vocabulary) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(count));
    for (std::int32_t& value : values) {
      value = static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(vocabulary));
    }
    void* data = empty(values.size() * sizeof(std::int32_t));
    kernels().device->copy(data, values.data(), values.size() * sizeof(std::int32_t));
    return static_cast<std::int32_t*>(data);
  }
  template <class T = std::byte>
  T* empty(std::size_t size_bytes) {
    buffers_.emplace_back(size_bytes, "bench", kernels().device->memory);
    return buffers_.back().template as<T>();
  }
  /// Nothing asked for so far is used any more.
  void forget() { buffers_.clear(); }

  /// Prints the median over batches, which are queued at once and long enough to hide their start.
  /// `flop` and `bytes`: of one call; 0 where that is not its limit.
  void row(const std::string& name, double flop, double bytes,
           const std::function<void(Stream&)>& work) {
    batch(work, 1);
    const double one = batch(work, 1);
    const int runs = tiny() ? 1 : static_cast<int>(std::clamp(0.02 / one, 2.0, 400.0));
    Values seconds;
    for (int i = 0; i < (tiny() ? 1 : 5); ++i) {
      seconds.add(batch(work, runs) / runs);
    }
    const DeviceLimits limits = site_.limits();
    std::string text = fmt::format("{:9.1f} us", seconds.median() * 1e6);
    const auto rate = [&](double amount, double scale, const char* unit, double limit) {
      const double per_second = amount / seconds.median();
      text += fmt::format("  {:8.1f} {}", per_second * scale, unit);
      if (limit > 0.0) {
        text += fmt::format("  {:5.1f} % of the device's", 100.0 * per_second / limit);
      }
    };
    if (flop > 0.0) {
      rate(flop, 1e-12, "TFLOP/s", limits.bf16_flops);
    }
    if (bytes > 0.0) {
      rate(bytes, 1e-9, "GB/s", limits.bytes_per_second);
    }
    print_result(name, text);
  }

 private:
  double batch(const std::function<void(Stream&)>& work, int runs) {
    const auto begin = Clock::now();
    for (int i = 0; i < runs; ++i) {
      work(*stream_);
    }
    stream_->synchronize();
    return std::chrono::duration<double>(Clock::now() - begin).count();
  }

  std::uint32_t random() {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::uint32_t>(state_ >> 32U);
  }

  std::byte* filled(std::size_t size_bytes, std::uint32_t mask, std::uint32_t bits) {
    constexpr std::size_t block_bytes = std::size_t{1} << 22U;
    std::vector<std::uint32_t> block(block_bytes / sizeof(std::uint32_t));
    for (std::uint32_t& word : block) {
      word = (random() & mask) | bits;
    }
    auto* data = empty<std::byte>(size_bytes);
    for (std::size_t at = 0; at < size_bytes; at += block_bytes) {
      kernels().device->copy(data + at, block.data(), std::min(block_bytes, size_bytes - at));
    }
    return data;
  }

  const GpuSite& site_;
  std::unique_ptr<Stream> stream_;
  std::vector<Buffer> buffers_;
  std::uint64_t state_ = 12345;
};

/// `full`, or what an emulated device gets through.
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

void attention(KernelBench& bench, std::int64_t sequences, std::int64_t seq_len, std::int64_t heads,
               std::int64_t head_dim) {
  const AttentionCase c{sequences, seq_len, heads, head_dim, DType::bf16};
  attention_rows(bench, c,
                 {.qkv = bench.bf16(c.tokens() * 3 * c.width()),
                  .out = bench.bf16(c.tokens() * c.width()),
                  .dout = bench.bf16(c.tokens() * c.width()),
                  .dqkv = bench.bf16(c.tokens() * 3 * c.width()),
                  .lse = bench.fp32(c.tokens() * heads),
                  .delta = bench.fp32(c.tokens() * heads)});
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

/// Queries of a fused projection: normed and rotated into a buffer of queries and keys, and back in
/// place; and rotated in place, without a norm.
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
  auto* half = reinterpret_cast<std::uint16_t*>(bench.bf16(count));
  const UpdateGate open;
  auto* gate = bench.empty<UpdateGate>(sizeof(UpdateGate));
  bench.kernels().device->copy(gate, &open, sizeof(open));
  auto* sums = bench.empty<double>(static_cast<std::size_t>(count / 16 + 1) * sizeof(double));
  const auto elements = static_cast<double>(count);
  bench.row(fmt::format("adamw_update {}", count), 0, 28 * elements, [&](Stream& stream) {
    bench.kernels().adamw_update(
        stream,
        {.p = p, .g = g, .m = m, .v = v, .gate = gate, .count = count, .step = 10, .lr = 1e-4});
  });
  bench.row(fmt::format("row_square_sums {}", count), 0, 4 * elements, [&](Stream& stream) {
    bench.kernels().row_square_sums(stream,
                                    {.x = g, .row_sums = sums, .rows = count / 1024, .cols = 1024});
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
  const std::int32_t* tokens = bench.ids(rows, vocab);
  auto* dx = bench.bf16(rows * cols);
  float* dweight = bench.fp32(vocab * cols);
  float* logits = bench.fp32(chunk_rows * vocab);
  auto* terms = bench.empty<double>(static_cast<std::size_t>(rows * 4) * sizeof(double));
  auto* sums = bench.empty<LossSums>(sizeof(LossSums));
  const auto elements = static_cast<double>(rows * cols);
  bench.row(fmt::format("head_loss {} x {} -> {} by {}", rows, cols, vocab, chunk_rows),
            6.0 * elements * static_cast<double>(vocab), 0, [&](Stream& stream) {
              bench.kernels().head_loss(stream, {.x = x,
                                                 .weight = weight,
                                                 .targets = tokens,
                                                 .sums = sums,
                                                 .dx = dx,
                                                 .dweight = dweight,
                                                 .logits = logits,
                                                 .row_terms = terms,
                                                 .rows = rows,
                                                 .cols = cols,
                                                 .vocab = vocab,
                                                 .chunk_rows = chunk_rows,
                                                 .dtype = DType::bf16});
            });
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
  bench.row(fmt::format("embedding_backward {} x {}", rows, cols), 0,
            2 * elements + 4 * static_cast<double>(vocab * cols), [&](Stream& stream) {
              bench.kernels().embedding_backward(stream, {.tokens = tokens,
                                                          .dout = x,
                                                          .dweight = dweight,
                                                          .rows = rows,
                                                          .cols = cols,
                                                          .vocab = vocab,
                                                          .dtype = DType::bf16});
            });
  bench.forget();
}

}  // namespace

void gpu_kernels_row(const GpuSite& site) {
  KernelBench bench(site);
  const auto of = [&](std::int64_t full, std::int64_t tiny) { return sized(bench, full, tiny); };
  products(bench, of(32768, 8), of(2304, 16), of(768, 8));
  products(bench, of(32768, 8), of(3072, 16), of(768, 8));
  if (!site.tiny()) {
    products(bench, 8192, 6400, 1600);
    products(bench, 16384, 3072, 1024);
    products(bench, 4096, 14336, 4096);
  }
  attention(bench, of(32, 1), of(1024, 16), of(12, 1), of(64, 16));
  if (!site.tiny()) {
    attention(bench, 8, 2048, 16, 128);
    attention(bench, 1, 4096, 32, 128);
  }
  norms(bench, NormKind::layer, of(32768, 4), of(768, 16));
  norms(bench, NormKind::rms, of(16384, 4), of(1024, 16));
  heads(bench, of(32768, 4), of(1024, 4), of(12, 1), of(64, 16));
  elementwise(bench, of(32768 * 3072, 64));
  updates(bench, of(std::int64_t{1} << 27U, 1 << 10U));
  const std::int64_t vocab = of(50304, 32);
  for (const std::int64_t chunk : {engine::head_chunk_rows(of(32768, 8), vocab), of(4096, 4)}) {
    ends(bench, of(32768, 8), of(768, 16), vocab, chunk);
  }
}

}  // namespace train::bench
