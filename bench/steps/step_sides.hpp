#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "bench/steps/step_case.hpp"
#include "bench/support/bench_child.hpp"

// Both sides of the comparison: the real program, and PyTorch's server (peers/).
namespace train::bench {

/// Lines of training steps in a run's metrics.jsonl; the last may be incomplete.
[[nodiscard]] std::vector<nlohmann::json> steps_of(const std::filesystem::path& metrics);

/// Result of several steps of one side.
struct StepTimes {
  double seconds = 0.0;     ///< Median step time.
  double peak_bytes = 0.0;  ///< VmHWM of the process.
  double first_loss = 0.0;  ///< Loss of the first step; engine only.
};

/// Called at intervals while a process runs.
using Watch = std::function<void(pid_t process)>;

/// Runs `steps` steps of a new process after `dropped` others; it is killed before it would save.
/// Throws std::runtime_error with the end of its output if it fails. Blocks.
[[nodiscard]] StepTimes run_ours(const Workplace& place, const StepCase& one, int steps,
                                 int dropped, const Words& keys = {}, const Watch& watch = {});

/// PyTorch with the same model, batch and threads, warmed up and waiting.
class TorchPeer {
 public:
  /// `mode`: "eager" or "compiled". `choose_way`: for a batch of several microbatches determines,
  /// in some steps, whether accumulating or one large batch is faster; otherwise it accumulates.
  /// Blocks until it has run its first steps. Throws std::runtime_error if it fails, or if its
  /// model has another number of weights. `patience_s`: longest time for an answer.
  TorchPeer(const Workplace& place, const StepCase& one, std::string mode, bool choose_way,
            double patience_s = 3600.0);

  /// Blocks. Runs `dropped` more steps first, excluded: the process was asleep.
  [[nodiscard]] StepTimes run(int steps, int dropped);
  [[nodiscard]] const std::string& mode() const { return mode_; }
  [[nodiscard]] double first_loss() const { return first_loss_; }
  [[nodiscard]] const std::string& version() const { return version_; }
  /// FLOP/s of its product of 1024 x 768 and 768 x 3072.
  [[nodiscard]] double gemm_flops() const { return gemm_flops_; }
  /// Way of running a batch of several microbatches.
  [[nodiscard]] const char* way() const { return split_ ? "accumulated" : "whole batch"; }

 private:
  std::string mode_;
  double patience_s_;
  BenchChild child_;
  double first_loss_ = 0.0;
  double gemm_flops_ = 0.0;
  std::string version_;
  bool split_ = true;
};

/// Python with PyTorch for that device: ACTORTRAIN_PYTHON or python3; nullopt if it has none.
[[nodiscard]] std::optional<std::string> torch_python(const std::string& device = "cpu");

}  // namespace train::bench
