#include "run/plan/reference_key.hpp"

#include <string>
#include <utility>

#include "engine/rank/plan/run_device.hpp"
#include "run/directory/run_directory.hpp"
#include "run/model/model_files.hpp"

namespace train::run {

Result<checkpoint::ReferenceKey> reference_key(const RunPlan& plan, bool with_model) {
  const data::ReferenceRows rows = plan.data->facts().reference;
  auto model = TRAIN_TRY(with_model ? weights_fingerprint(plan.config, run_root(plan.config))
                                    : Result<std::string>(std::string()));
  const bool mixed = !rows.live && !rows.of_sources.empty();
  return checkpoint::ReferenceKey{
      .data = mixed ? plan.data_fingerprint + " " + rows.of_sources : plan.data_fingerprint,
      .compute = plan.config.precision.compute,
      .model = std::move(model),
      .kernel_set =
          engine::kernel_set_name(plan.config.runtime.device, plan.config.precision.compute),
      .training_rows = rows.live ? 0 : rows.training_rows,
      .validation_rows = rows.live ? 0 : rows.validation_rows};
}

Result<std::int64_t> references_done(const RunPlan& plan) {
  const data::ReferenceRows rows = plan.data->facts().reference;
  if (rows.commands == 0 || rows.live) {
    return 0;
  }
  const auto key = TRAIN_TRY(reference_key(plan, /*with_model=*/true));
  const auto file = checkpoint::read_partial_reference(
      checkpoint::partial_reference_path(run_root(plan.config)), key);
  return file ? file->commands : 0;
}

}  // namespace train::run
