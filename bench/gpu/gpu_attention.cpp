// Attention alone for several head lengths: the engine's, and PyTorch's with cuDNN.
#include <fmt/format.h>

#include <memory>
#include <stdexcept>

#include "bench/gpu/gpu_kernel_bench.hpp"

namespace train::bench {
namespace {

constexpr double kPatience_s = 60.0;

/// PyTorch's attention at the same shapes, one case after the other.
class TorchAttention {
 public:
  TorchAttention(const GpuSite& site, const std::vector<AttentionCase>& cases) {
    const auto python = torch_python("cuda");
    if (!python) {
      print_skipped("PyTorch's attention", "ACTORTRAIN_PYTHON or python3 has none with CUDA");
      return;
    }
    Words words = {*python, site.place().paths().peers + "/torch_attention.py", "cuda", "cuDNN"};
    for (const AttentionCase& c : cases) {
      words.push_back(fmt::format("{},{},{},{}", c.sequences, c.seq_len, c.heads, c.head_dim));
    }
    child_ = std::make_unique<BenchChild>(words, site.place().directory() / "torch_attention.err");
  }

  /// Prints cuDNN's times of the next case beside the engine's.
  void print_next(const AttentionCase& c, const AttentionTimes& ours, const DeviceLimits& limits) {
    if (child_ == nullptr) {
      return;
    }
    std::optional<std::string> line;
    if (child_->running()) {
      child_->write_line("next");  // It waits until now: both never use the device at the same
                                   // time.
      line = child_->wait_readable(kPatience_s) ? child_->read_line() : std::nullopt;
    }
    if (!line) {
      print_skipped("PyTorch's attention", "no answer: " + child_->errors());
      child_.reset();
      return;
    }
    const auto answer = nlohmann::json::parse(*line);
    if (answer.contains("error")) {
      print_skipped("PyTorch's attention, cuDNN", answer.at("error").get<std::string>());
      return;
    }
    const AttentionTimes theirs{.forward = answer.at("forward").get<double>(),
                                .backward = answer.at("backward").get<double>()};
    const auto print = [&](const char* pass, double seconds, double products) {
      print_result(fmt::format("  cuDNN:  {} {}", pass, c.shape()),
                   time_text(seconds) + rate_text(products * c.product_flop() / seconds, 1e-12,
                                                  "TFLOP/s", limits.bf16_flops));
    };
    print("forward ", theirs.forward, c.kForwardProducts);
    print("backward", theirs.backward, c.kBackwardProducts);
    print_result("  ours / cuDNN: speed forward, backward, of both " + c.shape(),
                 fmt::format("{:.3f}, {:.3f}, {:.3f}; cuDNN's gradients again: {}",
                             theirs.forward / ours.forward, theirs.backward / ours.backward,
                             (theirs.forward + theirs.backward) / (ours.forward + ours.backward),
                             answer.at("same_bits").get<bool>() ? "the same bits" : "other bits"));
  }

 private:
  std::unique_ptr<BenchChild> child_;  // Null: PyTorch is missing or has ended.
};

}  // namespace

AttentionTimes measure_attention(KernelBench& bench, const AttentionCase& c) {
  const AttentionTimes times = attention_rows(bench, c,
                                              {.qkv = bench.bf16(c.tokens() * 3 * c.width()),
                                               .out = bench.bf16(c.tokens() * c.width()),
                                               .dout = bench.bf16(c.tokens() * c.width()),
                                               .dqkv = bench.bf16(c.tokens() * 3 * c.width()),
                                               .lse = bench.fp32(c.tokens() * c.heads),
                                               .delta = bench.fp32(c.tokens() * c.heads)});
  bench.forget();
  return times;
}

void gpu_attention_row(const GpuSite& site) {
  constexpr std::int64_t all_tokens = 32768;
  KernelBench bench(site);
  bench.measure_limits();
  std::vector<AttentionCase> cases;
  for (const auto& [heads, head_dim] : {std::pair{12, 64}, {16, 128}}) {
    if (site.tiny()) {
      cases.push_back({1, 16, 1, head_dim, kernels::DType::bf16});
      continue;
    }
    for (std::int64_t seq_len = 1024; seq_len <= 16384; seq_len *= 2) {
      cases.push_back({all_tokens / seq_len, seq_len, heads, head_dim, kernels::DType::bf16});
    }
  }
  TorchAttention torch(site, cases);
  for (const AttentionCase& c : cases) {
    torch.print_next(c, measure_attention(bench, c), bench.limits());
  }
}

}  // namespace train::bench
