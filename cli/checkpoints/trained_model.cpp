#include "cli/checkpoints/trained_model.hpp"

#include <fmt/format.h>

#include <set>
#include <string>
#include <utility>

#include "base/process/stop_signals.hpp"
#include "base/text/log.hpp"
#include "base/text/text_output.hpp"
#include "checkpoint/models/published_weights.hpp"
#include "cli/checkpoints/config_warnings.hpp"
#include "cli/checkpoints/stored_run.hpp"
#include "cli/checkpoints/text_writer.hpp"
#include "cli/options.hpp"
#include "data/prepare/prepare.hpp"
#include "run/directory/run_events.hpp"
#include "run/model/model_files.hpp"
#include "run/model/text_codec.hpp"
#include "run/plan/run_plan.hpp"

namespace train::cli {
using namespace run;
namespace {

namespace fs = std::filesystem;

// Number of attempts, as a running run may retire the newest checkpoint while it is read.
constexpr int kReads = 50;

engine::StateView weight_view(const engine::Parameter& parameter, float* flat) {
  return {.name = engine::weight_name(parameter.name),
          .global_shape = parameter.shape,
          .first_row = 0,
          .rows = parameter.rows(),
          .data = reinterpret_cast<std::byte*>(flat + parameter.offset),
          .size_bytes = static_cast<std::size_t>(parameter.count()) * sizeof(float)};
}

/// Names in the views of weights, where the checkpoint has one, their running average instead.
void take_averages(const checkpoint::Manifest& manifest, std::vector<engine::StateView>& views) {
  std::set<std::string> names;
  for (const checkpoint::TensorRecord& record : manifest.tensors) {
    names.insert(record.name);
  }
  const std::string weights = engine::weight_name("");
  for (engine::StateView& view : views) {
    if (engine::is_weight(view.name)) {
      std::string average = average_prefix(true) + view.name.substr(weights.size());
      view.name = names.contains(average) ? std::move(average) : view.name;
    }
  }
}

}  // namespace

Result<TrainedModel> load_model_directory(const fs::path& directory, std::int64_t context) {
  const auto opened = TRAIN_TRY(open_model(directory.string(), context));
  show_notes(directory.string(), opened.notes);
  warn_of_unread_keys(opened.spec, opened.config.source);
  TrainedModel model;
  model.options.model = opened.spec;
  model.options.seq_len = context;
  for (const engine::UnitParameters& unit : engine::describe_units(opened.spec)) {
    model.units.emplace_back(static_cast<std::size_t>(unit.element_count) * sizeof(float),
                             unit.name);
    for (const engine::Parameter& parameter : unit.parameters) {
      float* to = model.units.back().as<float>() + parameter.offset;
      TRAIN_RETURN_IF_ERROR(opened.weights->read_rows(
          parameter, 0, parameter.rows(),
          std::span<float>(to, static_cast<std::size_t>(parameter.count()))));
    }
  }
  return model;
}

Result<TrainedModel> load_model(const fs::path& run, std::optional<std::int64_t> step,
                                bool average) {
  const auto config = TRAIN_TRY(load_run_config(run));
  TRAIN_RETURN_IF_ERROR(check_average(config, average));
  auto options = TRAIN_TRY(engine_options(config, 0));
  TrainedModel model{.config = config, .options = options, .units = {}};
  std::vector<engine::StateView> views;
  for (const engine::UnitParameters& unit : engine::describe_units(options.model)) {
    model.units.emplace_back(static_cast<std::size_t>(unit.element_count) * sizeof(float),
                             unit.name);
    for (const engine::Parameter& parameter : unit.parameters) {
      views.push_back(weight_view(parameter, model.units.back().as<float>()));
    }
  }
  for (int left = kReads - 1;; --left) {
    const auto found = TRAIN_TRY(find_checkpoint({run}, step));
    if (average) {
      take_averages(found.manifest, views);
    }
    const Status restored = checkpoint::restore(found.candidate.path, found.manifest, views,
                                                {.which = checkpoint::Restore::subset});
    if (restored.ok()) {
      return model;
    }
    std::error_code ignored;
    if ((step && *step != kBestStep) || left == 0 || fs::exists(found.candidate.path, ignored)) {
      return restored.error();
    }
  }
}

void show_sample(const PreparedRun& run) {
  const configs::RunSection& section = run.config().run;
  if (section.sample_tokens == 0) {
    return;
  }
  const auto model = load_model(run.directory.root, std::nullopt);
  if (!model) {
    log_warning(fmt::format("no_sample {}", model.error().message));
    return;
  }
  const auto codec =
      TextCodec::of_run(run.directory.root, run.config(), model->options.model.vocab_size);
  if (!codec) {
    log_warning(fmt::format("no_sample {}", codec.error().message));
    return;
  }
  const auto prompt = codec->encode(section.sample_prompt);
  if (!prompt) {
    log_warning(fmt::format("no_sample {}", prompt.error().message));
    return;
  }
  std::string text = section.sample_prompt;
  TextWriter(*model, *codec, run.config().runtime.threads, 1)
      .write({.prompts = {*prompt},
              .tokens = section.sample_tokens,
              .sampling = {.seed = section.seed}},
             [&text](const WrittenToken& written) {
               text += written.shown;
               return stop_signal() == 0;
             });
  standard_output().write(fmt::format("sample:\n{}\n", text));
  run::note_event(run, {.kind = "sample", .text = text, .step = run.config().run.steps});
}

}  // namespace train::cli
