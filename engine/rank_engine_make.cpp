// Plans and engines from options, with the errors a user can mend.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/base/check.hpp"
#include "engine/optimizer/registry.hpp"
#include "engine/rank_engine.hpp"
#include "kernels/device/cuda_device.hpp"
#include "kernels/device/device_error.hpp"

namespace train::engine {

Result<ShardPlan> plan_of(const RankEngine::Options& options) {
  std::vector<UnitParameters> units = describe_units(options.shape);
  std::vector<std::string> whole =
      whole_parameters(*make_optimizer(options.optimizer, options.total_steps), units);
  whole.insert(whole.end(), options.whole_parameters.begin(), options.whole_parameters.end());
  return ShardPlan::make({.parallel = options.parallel,
                          .precision = options.precision,
                          .units = std::move(units),
                          .train_lanes = options.batch.lanes,
                          .eval_lanes = options.eval_lanes,
                          .tied = options.shape.tie_embeddings,
                          .whole_parameters = std::move(whole)});
}

Status check_freeze(const RankEngine::Options& options) {
  const std::vector<UnitParameters> units = describe_units(options.shape);
  for (const std::string& pattern : options.train.freeze) {
    const bool found = std::any_of(units.begin(), units.end(), [&](const UnitParameters& unit) {
      return matches(pattern, unit.name) ||
             std::any_of(
                 unit.parameters.begin(), unit.parameters.end(),
                 [&](const Parameter& parameter) { return matches(pattern, parameter.name); });
    });
    if (!found) {
      return user_error(fmt::format(
          "train.freeze: \"{}\" matches no parameter and no unit; units are called \"{}\" to "
          "\"{}\", parameters \"{}\"",
          pattern, units.front().name, units.back().name, units.front().parameters.front().name));
    }
  }
  return {};
}

Result<std::unique_ptr<RankEngine>> make_rank_engine(const std::string& device,
                                                     const RankEngine::Options& options) {
  const kernels::KernelTable* kernels =
      device == "cpu" ? &kernels::cpu_backend() : kernels::cuda_backend();
  if (kernels == nullptr) {
    return user_error(fmt::format("runtime.device = \"{}\": {}; set runtime.device = \"cpu\"",
                                  device, kernels::cuda_absence()));
  }
  if (const auto plan = plan_of(options); !plan) {
    return plan.error();
  }
  TRAIN_RETURN_IF_ERROR(check_freeze(options));
  try {
    return std::make_unique<RankEngine>(*kernels, options);
  } catch (const kernels::DeviceError& error) {
    return failure(
        fmt::format("not enough memory: {}; lower batch.micro_batch or the model's size, or split "
                    "it over more ranks (--dry-run shows what is needed)",
                    error.what()));
  }
}

const kernels::KernelTable& kernels_of(const std::string& device) {
  const kernels::KernelTable* kernels =
      device == "cpu" ? &kernels::cpu_backend() : kernels::cuda_backend();
  TRAIN_CHECK(kernels != nullptr, "no device {}", device);
  return *kernels;
}

std::string kernel_set_name() { return kernels::kernel_set(); }

double measure_peak_flops(int threads, double seconds) {
  return kernels::measure_gemm_flops(threads, seconds);
}

}  // namespace train::engine
