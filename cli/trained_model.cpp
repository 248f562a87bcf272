#include "cli/trained_model.hpp"

#include <fmt/format.h>

#include <utility>

#include "actors/head/run_plan.hpp"
#include "base/log.hpp"
#include "checkpoint/layout.hpp"
#include "configs/load_config.hpp"

namespace train::cli {
using namespace actors;
namespace {

namespace fs = std::filesystem;

// How often a run that goes on may retire the newest checkpoint while it is read.
constexpr int kReads = 50;

engine::StateView weight_view(const engine::Parameter& parameter, float* flat) {
  return {.name = engine::weight_name(parameter.name),
          .global_shape = parameter.shape(),
          .first_row = 0,
          .rows = parameter.rows,
          .data = reinterpret_cast<std::byte*>(flat + parameter.offset),
          .size_bytes = static_cast<std::size_t>(parameter.count()) * sizeof(float)};
}

Error no_such_step(const fs::path& checkpoints, std::int64_t step) {
  const auto found = checkpoint::list_checkpoints(checkpoints);
  if (!found) {
    return found.error();
  }
  std::vector<std::int64_t> steps;
  for (const checkpoint::Candidate& candidate : *found) {
    steps.insert(steps.begin(), candidate.step);
  }
  return user_error(
      fmt::format("--step {}: no such checkpoint in {}; there is {}", step, checkpoints.string(),
                  steps.empty() ? "none" : fmt::format("{}", fmt::join(steps, ", "))));
}

}  // namespace

std::vector<const float*> TrainedModel::weights() const {
  std::vector<const float*> weights;
  for (const kernels::Buffer& unit : units) {
    weights.push_back(unit.as<float>());
  }
  return weights;
}

Result<checkpoint::FoundCheckpoint> find_checkpoint(const fs::path& checkpoints,
                                                    std::optional<std::int64_t> step) {
  if (!step) {
    auto report = checkpoint::find_newest_read_only(checkpoints);
    if (!report) {
      return report.error();
    }
    for (const std::string& line : report->set_aside) {
      log_warning(fmt::format("checkpoint_damaged {}", line));
    }
    if (!report->newest) {
      return user_error(
          fmt::format("{}: no checkpoint yet; wait for the first one or lower "
                      "checkpoint.interval_steps",
                      checkpoints.string()));
    }
    return *std::move(report->newest);
  }
  const fs::path path = checkpoints / checkpoint::checkpoint_name(*step);
  std::error_code ignored;  // not there and not readable are the same to the user
  if (!fs::is_directory(path, ignored)) {
    return no_such_step(checkpoints, *step);
  }
  auto verified = checkpoint::verify_checkpoint(path);
  if (!verified) {
    return verified.error();
  }
  if (!verified->whole()) {
    return failure(
        fmt::format("{}{}: {}; choose another --step", path.string(),
                    verified->verdict == checkpoint::Verdict::damaged ? "" : " cannot be read",
                    verified->defect));
  }
  return checkpoint::FoundCheckpoint{.candidate = {.step = *step, .path = path},
                                     .manifest = *std::move(verified->manifest),
                                     .manifest_digest = verified->manifest_digest};
}

Result<configs::RunConfig> load_run_config(const fs::path& run) {
  std::error_code ignored;
  if (!fs::exists(run / "config.toml", ignored)) {
    return user_error(fmt::format(
        "{}: not a run directory (no config.toml); give the directory that `actortrain run` made",
        run.string()));
  }
  return configs::load_config((run / "config.toml").string());
}

Result<TrainedModel> load_model(const fs::path& run, std::optional<std::int64_t> step) {
  const auto config = load_run_config(run);
  if (!config) {
    return config.error();
  }
  auto options = engine_options(*config, 0);
  if (!options) {
    return options.error();
  }
  TrainedModel model{.config = *config, .options = *options, .units = {}};
  std::vector<engine::StateView> views;
  for (const engine::UnitParameters& unit : engine::describe_units(options->shape)) {
    model.units.emplace_back(static_cast<std::size_t>(unit.element_count) * sizeof(float),
                             unit.name);
    for (const engine::Parameter& parameter : unit.parameters) {
      views.push_back(weight_view(parameter, model.units.back().as<float>()));
    }
  }
  for (int left = kReads - 1;; --left) {
    const auto found = find_checkpoint(run / "checkpoints", step);
    if (!found) {
      return found.error();
    }
    const Status restored = checkpoint::restore(found->candidate.path, found->manifest, views,
                                                checkpoint::Restore::subset);
    if (restored.ok()) {
      model.step = found->candidate.step;
      return model;
    }
    std::error_code ignored;
    if (step || left == 0 || fs::exists(found->candidate.path, ignored)) {
      return restored.error();
    }
  }
}

}  // namespace train::cli
