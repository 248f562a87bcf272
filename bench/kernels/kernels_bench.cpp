// Speed of the CPU kernels on this machine, one table. Usage: bench_kernels [threads [GROUP]]; a
// group is linear, experts, scans, attention, head, elements, optimizer or stream.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/kernels/cpu_attention.hpp"
#include "bench/kernels/cpu_experts.hpp"
#include "bench/kernels/cpu_scans.hpp"
#include "kernels/activation/activation.hpp"
#include "kernels/activation/elementwise.hpp"
#include "kernels/backend.hpp"
#include "kernels/gemm/matmul.hpp"
#include "kernels/head/head_loss.hpp"
#include "kernels/norm/norm.hpp"
#include "kernels/optimizer/adamw.hpp"
#include "kernels/optimizer/ademamix.hpp"
#include "kernels/optimizer/dana.hpp"
#include "kernels/optimizer/global_norm.hpp"
#include "kernels/optimizer/muon.hpp"
#include "kernels/optimizer/update_guard.hpp"

namespace {

using namespace train::kernels;
using namespace train::bench;
using Bench = CpuKernelBench;

/// Measures the three products of a linear layer with `out` x `in` weights.
void bench_linear(Bench& bench, std::int64_t tokens, std::int64_t out, std::int64_t in) {
  const Floats x = values(tokens * in);
  const Floats w = values(out * in);
  const Floats y = values(tokens * out);
  Floats to_y(y.size());
  Floats to_x(x.size());
  Floats to_w(w.size());
  const double flop = 2.0 * static_cast<double>(tokens * out * in);
  const std::string shape = fmt::format("{} x {} -> {}", tokens, in, out);
  bench.row("matmul y = x W^T   " + shape, flop, 0, [&](Stream& stream) {
    bench.kernels().matmul(stream, {.a = x.data(),
                                    .b = w.data(),
                                    .c = to_y.data(),
                                    .m = tokens,
                                    .n = out,
                                    .k = in,
                                    .lda = in,
                                    .ldb = in,
                                    .ldc = out,
                                    .transpose_b = true});
  });
  bench.row("matmul dx = dy W   " + shape, flop, 0, [&](Stream& stream) {
    bench.kernels().matmul(stream, {.a = y.data(),
                                    .b = w.data(),
                                    .c = to_x.data(),
                                    .m = tokens,
                                    .n = in,
                                    .k = out,
                                    .lda = out,
                                    .ldb = in,
                                    .ldc = in});
  });
  bench.row("matmul dW = dy^T x " + shape, flop, 0, [&](Stream& stream) {
    bench.kernels().matmul(stream, {.a = y.data(),
                                    .b = x.data(),
                                    .c = to_w.data(),
                                    .m = out,
                                    .n = in,
                                    .k = tokens,
                                    .lda = out,
                                    .ldb = in,
                                    .ldc = in,
                                    .transpose_a = true});
  });
}

void bench_head_loss(Bench& bench, std::int64_t rows, std::int64_t cols, std::int64_t vocab,
                     std::int64_t chunk_rows) {
  const Floats x = values(rows * cols);
  const Floats weight = values(vocab * cols);
  const std::vector<std::int32_t> targets(static_cast<std::size_t>(rows), 5);
  Floats dx(x.size());
  Floats dweight(weight.size());
  Floats logits(static_cast<std::size_t>(chunk_rows * vocab));
  std::vector<double> row_terms(static_cast<std::size_t>(rows * 4));
  LossSums sums;
  bench.row(fmt::format("head_loss {} x {} -> {} by {}", rows, cols, vocab, chunk_rows),
            6.0 * static_cast<double>(rows * cols * vocab), 0, [&](Stream& stream) {
              bench.kernels().head_loss(stream, {.x = x.data(),
                                                 .weight = weight.data(),
                                                 .targets = targets.data(),
                                                 .sums = &sums,
                                                 .dx = dx.data(),
                                                 .dweight = dweight.data(),
                                                 .logits = logits.data(),
                                                 .row_terms = row_terms.data(),
                                                 .rows = rows,
                                                 .cols = cols,
                                                 .vocab = vocab,
                                                 .chunk_rows = chunk_rows});
            });
}

void bench_norm(Bench& bench, std::int64_t rows, std::int64_t cols) {
  const Floats x = values(rows * cols);
  const Floats weight = values(cols);
  const Floats dy = values(rows * cols);
  Floats y(x.size());
  Floats dweight(weight.size());
  Floats mean(static_cast<std::size_t>(rows));
  Floats rstd(mean.size());
  const RowLayout layout{cols, 0};
  const double bytes = 4.0 * static_cast<double>(rows * cols);
  bench.row(fmt::format("norm forward  {} x {}", rows, cols), 0, 2 * bytes, [&](Stream& stream) {
    bench.kernels().norm_forward(stream, {.x = x.data(),
                                          .weight = weight.data(),
                                          .y = y.data(),
                                          .mean = mean.data(),
                                          .rstd = rstd.data(),
                                          .outer = rows,
                                          .cols = cols,
                                          .x_layout = layout,
                                          .y_layout = layout});
  });
  bench.row(fmt::format("norm backward {} x {}", rows, cols), 0, 3 * bytes, [&](Stream& stream) {
    bench.kernels().norm_backward(stream, {.x = x.data(),
                                           .weight = weight.data(),
                                           .mean = mean.data(),
                                           .rstd = rstd.data(),
                                           .dy = dy.data(),
                                           .dx = y.data(),
                                           .dweight = dweight.data(),
                                           .outer = rows,
                                           .cols = cols,
                                           .x_layout = layout,
                                           .dy_layout = layout,
                                           .dx_layout = layout});
  });
}

/// Measures norm and rotation of a fused projection's queries.
void bench_head_norm(Bench& bench, std::int64_t tokens, std::int64_t heads) {
  const std::int64_t head_dim = 64;
  const std::int64_t width = heads * head_dim;
  const Floats weight = values(head_dim);
  const Floats angles = values(tokens * head_dim / 2);
  const Floats projection = values(tokens * 3 * width);
  Floats d = projection;
  Floats y = projection;
  Floats dweight = weight;
  Floats mean(static_cast<std::size_t>(tokens * heads)), rstd = mean;
  const RowLayout layout{3 * width, head_dim}, y_layout{2 * width, head_dim};
  const RowRotation rotation{angles.data(), angles.data(), tokens};
  const double bytes = 4.0 * static_cast<double>(tokens * width);
  const std::string shape = fmt::format("{} x {} x 64", tokens, heads);
  bench.row("norm + rope forward  " + shape, 0, 2 * bytes, [&](Stream& stream) {
    bench.kernels().norm_forward(stream, {.x = projection.data(),
                                          .weight = weight.data(),
                                          .y = y.data(),
                                          .mean = mean.data(),
                                          .rstd = rstd.data(),
                                          .outer = tokens,
                                          .inner = heads,
                                          .cols = head_dim,
                                          .x_layout = layout,
                                          .y_layout = y_layout,
                                          .rotation = rotation});
  });
  bench.row("norm + rope backward " + shape, 0, 3 * bytes, [&](Stream& stream) {
    bench.kernels().norm_backward(stream, {.x = projection.data(),
                                           .weight = weight.data(),
                                           .mean = mean.data(),
                                           .rstd = rstd.data(),
                                           .dy = d.data(),
                                           .dx = d.data(),
                                           .dweight = dweight.data(),
                                           .outer = tokens,
                                           .inner = heads,
                                           .cols = head_dim,
                                           .x_layout = layout,
                                           .dy_layout = layout,
                                           .dx_layout = layout,
                                           .rotation = rotation});
  });
}

void bench_elementwise(Bench& bench, std::int64_t count) {
  const Floats x = values(count);
  const Floats dy = values(count);
  Floats y(x.size());
  Floats z(x.size());
  const double bytes = 4.0 * static_cast<double>(count);
  const auto name = [&](const char* kernel) { return fmt::format("{} {}", kernel, count); };
  const KernelTable& k = bench.kernels();
  bench.row(name("gelu forward"), 0, 2 * bytes, [&](Stream& stream) {
    k.gelu_forward(stream, {.x = x.data(), .y = y.data(), .count = count});
  });
  bench.row(name("gelu backward"), 0, 3 * bytes, [&](Stream& stream) {
    k.gelu_backward(stream, {.x = x.data(), .dy = dy.data(), .dx = y.data(), .count = count});
  });
  bench.row(name("swiglu forward"), 0, 3 * bytes, [&](Stream& stream) {
    k.swiglu_forward(stream, {.gate = x.data(), .up = dy.data(), .y = y.data(), .count = count});
  });
  bench.row(name("swiglu backward"), 0, 5 * bytes, [&](Stream& stream) {
    k.swiglu_backward(stream, {.gate = x.data(),
                               .up = x.data(),
                               .dy = dy.data(),
                               .dgate = y.data(),
                               .dup = z.data(),
                               .count = count});
  });
  bench.row(name("residual_add"), 0, 3 * bytes, [&](Stream& stream) {
    k.residual_add(stream, {.x = x.data(), .branch = dy.data(), .out = y.data(), .count = count});
  });
}

/// Update rows show the bytes moved per parameter.
void bench_updates(Bench& bench, std::int64_t count) {
  Floats p = values(count);
  const Floats g = values(count);
  std::vector<Floats> states(3, Floats(p.size()));
  const UpdateGuard guard;
  const auto row = [&](const char* name, int bytes, const std::function<void(Stream&)>& work) {
    bench.row(fmt::format("{} {}, {} B each", name, count, bytes), 0,
              static_cast<double>(bytes) * static_cast<double>(count), work);
  };
  const KernelTable& kernels = bench.kernels();
  row("adamw_update", 28, [&](Stream& stream) {
    kernels.adamw_update(stream, {.tensors = {{.p = p.data(),
                                               .g = g.data(),
                                               .m = states[0].data(),
                                               .v = states[1].data(),
                                               .count = count}},
                                  .guard = &guard,
                                  .step = 10,
                                  .lr = 1e-3});
  });
  row("ademamix_update", 36, [&](Stream& stream) {
    kernels.ademamix_update(stream, {.tensors = {{.p = p.data(),
                                                  .g = g.data(),
                                                  .fast = states[0].data(),
                                                  .slow = states[1].data(),
                                                  .v = states[2].data(),
                                                  .count = count}},
                                     .guard = &guard,
                                     .step = 10,
                                     .lr = 1e-3});
  });
  for (const bool star : {false, true}) {
    row(star ? "dana_update star" : "dana_update", star ? 36 : 28, [&, star](Stream& stream) {
      kernels.dana_update(stream, {.tensors = {{.p = p.data(),
                                                .g = g.data(),
                                                .m = states[0].data(),
                                                .v = states[1].data(),
                                                .tau = star ? states[2].data() : nullptr,
                                                .rows = count}},
                                   .guard = &guard,
                                   .step = 10,
                                   .lr = 1e-3});
    });
  }
  std::vector<DanaRowSums> sums(static_cast<std::size_t>(count / 768));
  row("dana_update star with sums", 36, [&](Stream& stream) {
    kernels.dana_update(stream, {.tensors = {{.p = p.data(),
                                              .g = g.data(),
                                              .m = states[0].data(),
                                              .v = states[1].data(),
                                              .tau = states[2].data(),
                                              .row_sums = sums.data(),
                                              .rows = count / 768,
                                              .cols = 768}},
                                 .guard = &guard,
                                 .step = 10,
                                 .lr = 1e-3});
  });
  row("muon_momentum", 16, [&](Stream& stream) {
    kernels.muon_momentum(stream, {.g = g.data(),
                                   .m = states[0].data(),
                                   .x = states[1].data(),
                                   .guard = &guard,
                                   .count = count});
  });
  row("muon_apply", 12, [&](Stream& stream) {
    kernels.muon_apply(
        stream, {.p = p.data(), .x = g.data(), .guard = &guard, .count = count, .step_size = 1e-6});
  });
}

void bench_optimizer(Bench& bench, std::int64_t count) {
  bench_updates(bench, count);
  Floats p = values(count);
  const Floats g = values(count);
  const double bytes = 4.0 * static_cast<double>(count);
  std::vector<double> row_sums(static_cast<std::size_t>(count / 768));
  bench.row(fmt::format("row_square_sums {}", count), 0, bytes, [&](Stream& stream) {
    bench.kernels().row_square_sums(
        stream,
        {.tensors = {
             {.x = g.data(), .row_sums = row_sums.data(), .rows = count / 768, .cols = 768}}});
  });
  bench.row(fmt::format("tree_add {}", count), 0, 3 * bytes, [&](Stream& stream) {
    bench.kernels().tree_add(
        stream, {.left = p.data(), .right = g.data(), .out = p.data(), .count = count});
  });
}

void bench_stream(Bench& bench) {
  constexpr int items = 10'000;
  bench.row(fmt::format("stream: {} empty items", items), 0, 0, [](Stream& stream) {
    for (int i = 0; i < items; ++i) {
      stream.enqueue([] {});
    }
  });
}

void linear_rows(Bench& bench) {
  for (const auto& [out, in] : {std::pair<std::int64_t, std::int64_t>{384, 128},
                                {128, 128},
                                {512, 128},
                                {128, 512},
                                {2304, 768},
                                {768, 768},
                                {3072, 768},
                                {768, 3072}}) {
    bench_linear(bench, 1024, out, in);
  }
}

/// 32 to 256 rows of each expert.
void experts_rows(Bench& bench) {
  bench_routers(bench, 2048);
  struct Target {
    std::int64_t rows;
    double products, whole;
  };
  for (const Target& target : {Target{256, 0.58, 0.50}, Target{512, 0.75, 0.66},
                               Target{1024, 0.87, 0.78}, Target{2048, 0.91, 0.84}}) {
    bench_experts(bench, {.rows = target.rows, .d = 512, .hidden = 256, .experts = 64, .slots = 8},
                  target.products, target.whole);
  }
}

void attention_rows_of_shapes(Bench& bench) {
  bench_attention(bench, {4, 256, 2, 64, DType::f32});
  bench_attention(bench, {1, 1024, 12, 64, DType::f32});
  bench_attention(bench, {1, 1024, 12, 64, DType::f32, /*kv_heads=*/3});
  bench_attention(bench, {1, 1024, 9, 64, DType::f32, /*kv_heads=*/3});
  bench_attention(bench, {1, 4096, 8, 64, DType::f32});
  bench_attention(bench, {1, 4096, 8, 64, DType::f32, /*kv_heads=*/0, /*window=*/256});
  for (const std::int64_t length : {256, 1024}) {
    bench_grouped_attention(bench, {1, length, 12, 64, DType::f32, /*kv_heads=*/3});
  }
  bench_windowed_attention(bench, {1, 4096, 8, 64, DType::f32, /*kv_heads=*/0, /*window=*/256});
  for (const std::int64_t length : {1024, 4096}) {
    bench_value_widths(bench, {.sequences = 1,
                               .seq_len = length,
                               .heads = 4,
                               .head_dim = 192,
                               .dtype = DType::f32,
                               .value_dim = 128});
  }
  bench_latent_attention(
      bench, {.tokens = 4096, .heads = 8, .latent = 128, .rope = 32, .plain = 64, .values = 64});
}

void head_rows(Bench& bench) {
  bench_head_loss(bench, 1024, 128, 257, 1024);
  for (const std::int64_t chunk_rows : {32, 128, 256, 1024}) {
    bench_head_loss(bench, 1024, 768, 50304, chunk_rows);
  }
}

void row_and_element_rows(Bench& bench) {
  bench_norm(bench, 1024, 128);
  bench_norm(bench, 1024, 768);
  bench_head_norm(bench, 1024, 12);
  bench_elementwise(bench, 1024 * 512);
  bench_elementwise(bench, 1024 * 3072);
}

struct Group {
  const char* name;
  void (*run)(Bench& bench);
};
constexpr Group kGroups[] = {
    {"linear", linear_rows},
    {"experts", experts_rows},
    {"scans", [](Bench& bench) { bench_scans(bench, 1024); }},
    {"attention", attention_rows_of_shapes},
    {"head", head_rows},
    {"elements", row_and_element_rows},
    {"optimizer", [](Bench& bench) { bench_optimizer(bench, 768 * 10'000); }},
    {"stream", [](Bench& bench) { bench_stream(bench); }},
};

}  // namespace

int main(int argc, char* argv[]) {
  const int threads =
      argc > 1 ? std::atoi(argv[1]) : static_cast<int>(std::thread::hardware_concurrency());
  const std::string only = argc > 2 ? argv[2] : "";
  Bench bench(std::max(1, threads));
  for (const Group& group : kGroups) {
    if (only.empty() || only == group.name) {
      group.run(bench);
    }
  }
}
