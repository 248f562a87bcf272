#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "bench/kernels/attention_rows.hpp"
#include "bench/steps/step_case.hpp"
#include "bench/steps/step_sides.hpp"
#include "kernels/backend.hpp"

// Parts shared by the rows of bench_gpu: the device and its limits, models, runs of the program.
namespace train::bench {

/// As stated by the maker, dense without sparsity; 0: unknown.
struct DeviceLimits {
  double bf16_flops = 0.0;
  double bytes_per_second = 0.0;
};

/// Targets for either card; 0: none.
struct CardTargets {
  double h100 = 0.0;
  double h200 = 0.0;
};

/// Measured run: its metrics lines of training steps, in order.
struct FinishedRun {
  std::vector<nlohmann::json> steps;
};

class GpuSite {
 public:
  struct Options {
    BenchPaths paths;
    std::string data;      ///< Directory of tokens; empty: random ones.
    bool tiny = false;     ///< Tiny shapes, for an emulated device.
    double seconds = 0.0;  ///< Time budget: a row that may exceed it is not started.
  };
  /// REQUIRES: cuda_backend() is not null.
  explicit GpuSite(const Options& options);

  [[nodiscard]] const Workplace& place() const { return place_; }
  [[nodiscard]] const kernels::KernelTable& kernels() const { return *kernels::cuda_backend(); }
  [[nodiscard]] bool tiny() const { return options_.tiny; }
  [[nodiscard]] double seconds_left() const;
  /// Limits by the device's name.
  [[nodiscard]] DeviceLimits limits() const;
  /// Target by the device's name; 0 for other cards.
  [[nodiscard]] double target(const CardTargets& targets) const;
  [[nodiscard]] double device_bytes_used() const;
  /// Device memory not used by this or other processes.
  [[nodiscard]] double device_bytes_free() const;

  /// Model with the keys `full` on the device, in bf16, with one lane per step; with very few rows
  /// if the site is tiny.
  [[nodiscard]] StepCase model(const std::string& name, const std::string& architecture,
                               std::int64_t vocabulary, const Words& full) const;
  /// Model of the config.json `config` with fresh weights, one lane per step on the device, in
  /// bf16.
  [[nodiscard]] StepCase published(const std::string& name, const std::string& config,
                                   std::int64_t vocabulary, const Words& keys) const;
  /// Small model that trains in seconds, for rows that compare results: byte-level, as
  /// configs/quickstart.toml.
  [[nodiscard]] StepCase small_model() const;

  /// Runs `one` to its last step, in `name` below the place's directory, which is kept. Blocks.
  /// Throws std::runtime_error if it fails.
  [[nodiscard]] FinishedRun run(const StepCase& one, const std::string& name,
                                const Words& keys) const;
  /// Runs it profiled; returns the `--profile` summary of its one rank.
  [[nodiscard]] nlohmann::json profile(const StepCase& one, const std::string& name,
                                       const Words& keys) const;
  /// Runs it as run() does, and kills it (SIGKILL) when it has written the line of step `last`.
  void run_and_kill(const StepCase& one, const std::string& name, const Words& keys,
                    std::int64_t last) const;

  /// Steps that such a run has written so far.
  [[nodiscard]] std::vector<nlohmann::json> steps_of_run(const std::string& name) const;
  [[nodiscard]] bool has_checkpoint(const std::string& name, std::int64_t step) const;
  void remove_run(const std::string& name) const;
  /// Bytes of the weights and optimizer state in a checkpoint of `one`.
  [[nodiscard]] double state_bytes(const StepCase& one) const;
  /// Free space where runs are written.
  [[nodiscard]] double disk_bytes_free() const;

 private:
  [[nodiscard]] std::filesystem::path run_directory(const std::string& name) const {
    return place_.directory() / "runs" / name;
  }
  [[nodiscard]] Words words(const StepCase& one, const std::string& name, const Words& keys) const;
  void run_to_end(const Words& words, const std::string& name) const;
  /// Longest time without a sign of life from a run.
  [[nodiscard]] double patience() const;

  Options options_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  Workplace place_;
};

/// Text for a kernel's result: microseconds, then the rate in `unit` (one is 1 / `scale`), beside
/// the device's `limit` (0: unknown).
[[nodiscard]] std::string time_text(double seconds);
[[nodiscard]] std::string rate_text(double per_second, double scale, const char* unit,
                                    double limit);

/// Prints one line for what cannot be measured here.
void print_skipped(const std::string& what, const std::string& why);

// Rows of bench_gpu.
void gpu_gpt2_row(const GpuSite& site);
void gpu_gpt2_torch_row(const GpuSite& site);
void gpu_gpt2_xl_row(const GpuSite& site);
void gpu_gpt2_xl_torch_row(const GpuSite& site);
void gpu_qwen3_row(const GpuSite& site);
void gpu_qwen3_torch_row(const GpuSite& site);
void gpu_qwen3_long_row(const GpuSite& site);
void gpu_8b_row(const GpuSite& site);
void gpu_qwen25_row(const GpuSite& site);
void gpu_attention_row(const GpuSite& site);
void gpu_determinism_row(const GpuSite& site);
void gpu_checkpoint_row(const GpuSite& site);
void gpu_ranks_row(const GpuSite& site);
void gpu_loss_row(const GpuSite& site);
void gpu_kill_row(const GpuSite& site);
void gpu_kernels_row(const GpuSite& site);

}  // namespace train::bench
