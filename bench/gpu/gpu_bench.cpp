// Speed, memory and results of the engine on a CUDA device, against PyTorch on the same device in
// the same run (bench/peers/README.md), and each family of kernels against the device's limits.
// Usage: bench_gpu [--tiny] [--program FILE] [--data DIR] [--seconds N] [ROW]...; a row is one of
// those below. A missed target is reported, not a failure. Without a device it only reports that.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "bench/gpu/gpu_site.hpp"
#include "kernels/device/cuda_device.hpp"

namespace {

namespace fs = std::filesystem;
using namespace train::bench;

struct GpuRow {
  const char* name;
  const char* title;
  double seconds;  ///< Expected duration.
  void (*run)(const GpuSite& site);
};

// Cheap rows first, then by importance; PyTorch, which compiles for a minute and more, after the
// engine's own.
constexpr GpuRow kRows[] = {
    {"kernels", "each family of kernels alone", 40, gpu_kernels_row},
    {"attention", "attention alone at each length, beside PyTorch's by cuDNN", 60,
     gpu_attention_row},
    {"loss", "fp32 against the CPU engine, step by step", 20, gpu_loss_row},
    {"kill", "kill -9 and resume, in bf16", 20, gpu_kill_row},
    {"ranks", "two ranks on the device against one, bit by bit", 25, gpu_ranks_row},
    {"gpt2_124m", "Enoki, 124 M weights, T = 1024, 32 sequences", 55, gpu_gpt2_row},
    {"8b", "Llama 3's 8 B weights, T = 4096, every block computed again", 100, gpu_8b_row},
    {"qwen3_600m", "qwen3, 0.6 B weights, T = 2048, 8 sequences", 25, gpu_qwen3_row},
    {"qwen3_600m_4096", "qwen3, 0.6 B weights, T = 4096, 4 sequences", 25, gpu_qwen3_long_row},
    {"qwen2.5", "Qwen2.5's 0.5 B, 1.5 B and 3 B weights, T = 1024", 60, gpu_qwen25_row},
    {"gpt2_1558m", "Enoki, 1.5 B weights, T = 1024, 16 sequences", 35, gpu_gpt2_xl_row},
    {"determinism", "the price of the same bits at any number of ranks", 60, gpu_determinism_row},
    {"gpt2_124m_torch", "the same in turns with PyTorch", 100, gpu_gpt2_torch_row},
    {"qwen3_600m_torch", "the same in turns with PyTorch", 90, gpu_qwen3_torch_row},
    {"gpt2_1558m_torch", "the same in turns with PyTorch", 120, gpu_gpt2_xl_torch_row},
    {"checkpoint", "the price of a checkpoint of 1.5 B weights every 100 steps", 200,
     gpu_checkpoint_row},
};

struct Call {
  GpuSite::Options site;
  std::vector<std::string> rows;
};

/// Files beside the program: in the build directory, or in a bundle.
GpuSite::Options found_beside(const fs::path& self) {
  GpuSite::Options options{.paths = {},
                           .data = ACTORTRAIN_SOURCE_DIR "/data/quickstart",
                           .tiny = false,
                           .seconds = 450.0};
  if (const fs::path root = self.parent_path().parent_path();
      fs::exists(root / "share" / "peers")) {
    options.paths = {.program = (root / "bin" / "actortrain").string(),
                     .configs = (root / "configs").string(),
                     .peers = (root / "share" / "peers").string()};
    options.data = (root / "data" / "quickstart").string();
  }
  if (!fs::exists(options.data)) {
    options.data.clear();
  }
  return options;
}

bool is_row(std::string_view word) {
  return std::any_of(std::begin(kRows), std::end(kRows),
                     [&](const GpuRow& row) { return word == row.name; });
}

/// nullopt: a usage error, already reported.
std::optional<Call> parse(int argc, char** argv) {
  Call call{.site = found_beside(fs::read_symlink("/proc/self/exe")), .rows = {}};
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (word == "--tiny") {
      call.site.tiny = true;
    } else if (word == "--program" && !value.empty()) {
      call.site.paths.program = fs::absolute(argv[++i]).string();
    } else if (word == "--data" && !value.empty()) {
      call.site.data = fs::absolute(argv[++i]).string();
    } else if (word == "--seconds" && !value.empty()) {
      ++i;
      std::from_chars(value.data(), value.data() + value.size(), call.site.seconds);
    } else if (is_row(word)) {
      call.rows.push_back(word);
    } else {
      fmt::print("bench_gpu: no row or option \"{}\"; rows:", word);
      for (const GpuRow& row : kRows) {
        fmt::print(" {}", row.name);
      }
      fmt::print("\n");
      return std::nullopt;
    }
  }
  return call;
}

/// Returns 1 if it could not be measured, otherwise 0.
int run_row(const GpuSite& site, const GpuRow& row) {
  fmt::print("{}: {}\n", row.name, row.title);
  if (site.seconds_left() < row.seconds) {
    print_skipped(row.name, fmt::format("{:.0f} s are left, it may take {:.0f}",
                                        site.seconds_left(), row.seconds));
    return 0;
  }
  const double before = site.seconds_left();
  int failed = 0;
  try {
    row.run(site);
  } catch (const std::exception& error) {
    print_result(row.name, std::string("could not be measured: ") + error.what());
    failed = 1;
  }
  fmt::print("  ({:.0f} s)\n", before - site.seconds_left());
  std::fflush(stdout);
  return failed;
}

}  // namespace

int main(int argc, char* argv[]) {
  const auto call = parse(argc, argv);
  if (!call) {
    return 2;
  }
  if (train::kernels::cuda_backend() == nullptr) {
    fmt::print("bench_gpu: skipped: {}\n", train::kernels::cuda_absence());
    return 0;
  }
  try {
    const GpuSite site(call->site);
    fmt::print("{}, {}\n", site.kernels().kernel_set(),
               call->site.data.empty() ? "random tokens" : call->site.data);
    int failed = 0;
    for (const GpuRow& row : kRows) {
      const auto& only = call->rows;
      if (only.empty() || std::find(only.begin(), only.end(), row.name) != only.end()) {
        failed = std::max(failed, run_row(site, row));
      }
    }
    return failed;
  } catch (const std::exception& error) {
    fmt::print("bench_gpu: {}\n", error.what());
    return 1;
  }
}
