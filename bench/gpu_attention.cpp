// PyTorch's attention at the shapes of ours: cuDNN's, and its own flash attention.
#include <fmt/format.h>

#include <stdexcept>

#include "bench/gpu_site.hpp"

namespace train::bench {
namespace {

constexpr double kPatience_s = 60.0;

void print_answer(const GpuSite& site, const AttentionCase& c, const nlohmann::json& answer) {
  const std::string way = answer.at("way").get<std::string>();
  if (answer.contains("error")) {
    print_skipped("PyTorch's attention, " + way, answer.at("error").get<std::string>());
    return;
  }
  const auto print = [&](const char* pass, const char* key, double products) {
    const double seconds = answer.at(key).get<double>();
    print_result(fmt::format("PyTorch {}: {} {}", way, pass, c.shape()),
                 time_text(seconds) + rate_text(products * c.product_flop() / seconds, 1e-12,
                                                "TFLOP/s", site.limits().bf16_flops));
  };
  print("forward ", "forward", c.kForwardProducts);
  print("backward", "backward", c.kBackwardProducts);
}

}  // namespace

void print_torch_attention(const GpuSite& site, const std::vector<AttentionCase>& cases) {
  const auto python = torch_python("cuda");
  if (!python) {
    print_skipped("PyTorch's attention", "ACTORTRAIN_PYTHON or python3 has none with CUDA");
    return;
  }
  Words words = {*python, site.place().paths().peers + "/torch_attention.py", "cuda"};
  for (const AttentionCase& c : cases) {
    words.push_back(fmt::format("{},{},{},{}", c.sequences, c.seq_len, c.heads, c.head_dim));
  }
  try {
    BenchChild child(words, site.place().directory() / "torch_attention.err");
    for (const AttentionCase& c : cases) {
      for (int way = 0; way < 2; ++way) {
        const auto line = child.wait_readable(kPatience_s) ? child.read_line() : std::nullopt;
        if (!line) {
          throw std::runtime_error("no answer: " + child.errors());
        }
        print_answer(site, c, nlohmann::json::parse(*line));
      }
    }
  } catch (const std::exception& error) {
    print_skipped("PyTorch's attention", error.what());
  }
}

}  // namespace train::bench
