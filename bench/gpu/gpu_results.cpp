// Results of a step: compared with the CPU, and across a kill.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "bench/gpu/gpu_site.hpp"

namespace train::bench {
namespace {

double loss_of(const nlohmann::json& step) { return step.at("loss").get<double>(); }

/// Checks that the runs' lines match.
void check_steps(const FinishedRun& first, const FinishedRun& second) {
  if (first.steps.empty() || first.steps.size() != second.steps.size()) {
    throw std::runtime_error(fmt::format("{} steps in one run, {} in the other", first.steps.size(),
                                         second.steps.size()));
  }
}

/// Compares everything that must be bitwise equal: not the speed.
bool same_results(const nlohmann::json& first, const nlohmann::json& second) {
  return first.at("loss") == second.at("loss") && first.at("grad_norm") == second.at("grad_norm") &&
         first.value("weights_digest", "") == second.value("weights_digest", "");
}

}  // namespace

void gpu_loss_row(const GpuSite& site) {
  const StepCase one = site.small_model();
  const Words steps = {fmt::format("run.steps={}", site.tiny() ? 4 : 50)};
  const FinishedRun cpu = site.run(one, "on_cpu", steps);
  const FinishedRun device = site.run(one, "on_device", joined(steps, {"runtime.device=\"cuda\""}));
  check_steps(cpu, device);
  Values worst{{0.0}};
  for (std::size_t i = 0; i < cpu.steps.size(); ++i) {
    const double expected = loss_of(cpu.steps[i]);
    worst.all[0] = std::max(worst.all[0], std::abs(loss_of(device.steps[i]) - expected) / expected);
  }
  print_result(
      fmt::format("fp32, {} steps: loss on the CPU and on the device", cpu.steps.size()),
      fmt::format("{:.6f}, {:.6f}", loss_of(cpu.steps.back()), loss_of(device.steps.back())));
  print_result("fp32: loss off that of the CPU by, at most",
               fmt::format("{:.1e}   target <= 1e-05: {}", worst.all[0],
                           worst.all[0] <= 1e-5 ? "met" : "MISSED"));
}

void gpu_kill_row(const GpuSite& site) {
  const StepCase one = site.small_model();
  const int last = site.tiny() ? 6 : 40;
  const Words keys = {"runtime.device=\"cuda\"", "precision.compute=\"bf16\"",
                      fmt::format("run.steps={}", last),
                      fmt::format("checkpoint.interval_steps={}", last / 2),
                      fmt::format("run.digest_interval_steps={}", last / 2)};
  const FinishedRun unbroken = site.run(one, "unbroken", keys);
  site.run_and_kill(one, "killed", keys, last * 2 / 3);
  const FinishedRun resumed = site.run(one, "killed", keys);
  check_steps(unbroken, resumed);
  std::size_t differing = 0;
  for (std::size_t i = 0; i < resumed.steps.size(); ++i) {
    differing += same_results(unbroken.steps[i], resumed.steps[i]) ? 0 : 1;
  }
  print_result(
      fmt::format("kill -9 after step {}, resumed: steps with other bits", last * 2 / 3),
      fmt::format("{} of {}   target 0: {}", differing, last, differing == 0 ? "met" : "MISSED"));
}

// Ranks that share a device take turns: only their bits matter here.
void gpu_ranks_row(const GpuSite& site) {
  const StepCase one = site.small_model();
  const int last = site.tiny() ? 3 : 20;
  const Words keys = {"runtime.device=\"cuda\"", "precision.compute=\"bf16\"",
                      fmt::format("run.steps={}", last), "run.digest_interval_steps=1"};
  const FinishedRun alone = site.run(one, "one_rank", keys);
  for (const std::string strategy : {"none", "full"}) {
    const FinishedRun two =
        site.run(one, "two_ranks_" + strategy,
                 joined(keys, {"parallel.ranks=2", "parallel.transport=\"inproc\"",
                               fmt::format("parallel.strategy=\"{}\"", strategy)}));
    check_steps(alone, two);
    std::size_t differing = 0;
    for (std::size_t i = 0; i < two.steps.size(); ++i) {
      differing += same_results(alone.steps[i], two.steps[i]) ? 0 : 1;
    }
    print_result(
        fmt::format("2 ranks on a device, \"{}\": steps with other bits than 1's", strategy),
        fmt::format("{} of {}   target 0: {}", differing, last, differing == 0 ? "met" : "MISSED"));
  }
}

}  // namespace train::bench
