#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "bench/bench_child.hpp"
#include "bench/step_case.hpp"

// The two sides of the comparison: the real program, and PyTorch's server (peers/).
namespace train::bench {

/// The lines of training steps in a run's metrics.jsonl; the last one may still be in the writing.
[[nodiscard]] std::vector<nlohmann::json> steps_of(const std::filesystem::path& metrics);

/// Some steps of one side.
struct StepTimes {
  double seconds = 0.0;     ///< Of a step: the median.
  double peak_bytes = 0.0;  ///< VmHWM of the process.
  double first_loss = 0.0;  ///< Of the first step; ours only.
};

/// Called now and then while a process runs.
using Watch = std::function<void(pid_t process)>;

/// `steps` steps of a fresh process after `dropped` more; it is killed then, before it would save.
/// Throws std::runtime_error with the end of its output if it fails. Blocks.
[[nodiscard]] StepTimes run_ours(const Workplace& place, const StepCase& one, int steps,
                                 int dropped, const Words& keys = {}, const Watch& watch = {});

/// PyTorch with the same model, batch and threads, warm and waiting.
class TorchPeer {
 public:
  /// `mode`: "eager" or "compiled". `choose_way`: a batch of several microbatches is run the faster
  /// way of accumulating and whole, which takes some steps to find out; else it accumulates. Blocks
  /// until it has run its first steps. Throws std::runtime_error if it fails, or if its model has
  /// another number of weights.
  /// `patience_s`: longest time that it may take to answer.
  TorchPeer(const Workplace& place, const StepCase& one, std::string mode, bool choose_way,
            double patience_s = 3600.0);

  /// Blocks. `dropped` steps more are run first and left out: it was asleep.
  [[nodiscard]] StepTimes run(int steps, int dropped);
  [[nodiscard]] const std::string& mode() const { return mode_; }
  [[nodiscard]] double first_loss() const { return first_loss_; }
  [[nodiscard]] const std::string& version() const { return version_; }
  /// Of its product of 1024 x 768 and 768 x 3072.
  [[nodiscard]] double gemm_flops() const { return gemm_flops_; }
  /// How it runs a batch of several microbatches.
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

/// The Python that has PyTorch for that device: ACTORTRAIN_PYTHON or python3; nothing if it has
/// none.
[[nodiscard]] std::optional<std::string> torch_python(const std::string& device = "cpu");

}  // namespace train::bench
