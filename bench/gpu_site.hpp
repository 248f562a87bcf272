#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "bench/attention_rows.hpp"
#include "bench/step_case.hpp"
#include "bench/step_sides.hpp"
#include "kernels/backend.hpp"

// What the rows of bench_gpu share: the device and its limits, the models, runs of the program.
namespace train::bench {

/// As the maker states them, dense and without sparsity; 0: unknown.
struct DeviceLimits {
  double bf16_flops = 0.0;
  double bytes_per_second = 0.0;
};

/// Targets for either card; 0: none.
struct CardTargets {
  double h100 = 0.0;
  double h200 = 0.0;
};

/// A measured run: its lines of training steps, in order.
struct FinishedRun {
  std::vector<nlohmann::json> steps;
};

class GpuSite {
 public:
  struct Options {
    BenchPaths paths;
    std::string data;      ///< A directory of tokens; empty: random ones.
    bool tiny = false;     ///< Shapes of a few rows, for a device that is emulated.
    double seconds = 0.0;  ///< No row begins that may take longer than what is left of them.
  };
  /// REQUIRES: cuda_backend() is there.
  explicit GpuSite(const Options& options);

  [[nodiscard]] const Workplace& place() const { return place_; }
  [[nodiscard]] const kernels::KernelTable& kernels() const { return *kernels::cuda_backend(); }
  [[nodiscard]] bool tiny() const { return options_.tiny; }
  [[nodiscard]] double seconds_left() const;
  /// By the device's name.
  [[nodiscard]] DeviceLimits limits() const;
  /// By the device's name too; 0 for any other card.
  [[nodiscard]] double target(const CardTargets& targets) const;
  [[nodiscard]] double device_bytes_used() const;
  /// What this process and all others leave of it.
  [[nodiscard]] double device_bytes_free() const;

  /// A model of `full`'s keys on the device, in bf16, with a step of one lane; of hardly any rows
  /// where the site is tiny.
  [[nodiscard]] StepCase model(const std::string& name, const std::string& architecture,
                               std::int64_t vocabulary, const Words& full) const;
  /// A step of one lane on the device, in bf16, of fresh weights of what the file `config` (a
  /// config.json) says.
  [[nodiscard]] StepCase published(const std::string& name, const std::string& config,
                                   std::int64_t vocabulary, const Words& keys) const;
  /// A model of seconds, for rows that compare results: byte-level, as configs/quickstart.toml.
  [[nodiscard]] StepCase small_model() const;

  /// Runs `one` to its last step, below the place's directory under `name`; the run's directory is
  /// kept. Blocks. Throws std::runtime_error if it fails.
  [[nodiscard]] FinishedRun run(const StepCase& one, const std::string& name,
                                const Words& keys) const;
  /// The same, profiled: what `--profile` says of its one rank.
  [[nodiscard]] nlohmann::json profile(const StepCase& one, const std::string& name,
                                       const Words& keys) const;
  /// The same as run(), killed (SIGKILL) when it has written the line of step `last`.
  void run_and_kill(const StepCase& one, const std::string& name, const Words& keys,
                    std::int64_t last) const;

  /// Steps that such a run has written so far.
  [[nodiscard]] std::vector<nlohmann::json> steps_of_run(const std::string& name) const;
  [[nodiscard]] bool has_checkpoint(const std::string& name, std::int64_t step) const;
  void remove_run(const std::string& name) const;
  /// Bytes of the weights and the optimizer's state of a checkpoint of `one`.
  [[nodiscard]] double state_bytes(const StepCase& one) const;
  /// Where runs are.
  [[nodiscard]] double disk_bytes_free() const;

 private:
  [[nodiscard]] std::filesystem::path run_directory(const std::string& name) const {
    return place_.directory() / "runs" / name;
  }
  [[nodiscard]] Words words(const StepCase& one, const std::string& name, const Words& keys) const;
  void run_to_end(const Words& words, const std::string& name) const;
  /// How long a run may take that shows no life.
  [[nodiscard]] double patience() const;

  Options options_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  Workplace place_;
};

/// How a result of kernels is told: microseconds, and then what that makes a second, in `unit` of
/// which one is 1 / `scale`, beside the device's `limit` (0: unknown).
[[nodiscard]] std::string time_text(double seconds);
[[nodiscard]] std::string rate_text(double per_second, double scale, const char* unit,
                                    double limit);

/// One line for what cannot be measured here.
void print_skipped(const std::string& what, const std::string& why);

// The rows.
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
