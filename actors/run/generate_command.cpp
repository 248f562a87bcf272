#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "actors/exit_codes.hpp"
#include "actors/run/byte_text.hpp"
#include "actors/run/run_command.hpp"
#include "actors/run/run_plan.hpp"
#include "actors/run/signal_watcher.hpp"
#include "checkpoint/layout.hpp"
#include "checkpoint/reader.hpp"
#include "configs/load_config.hpp"
#include "engine/base/log.hpp"
#include "engine/text_generator.hpp"
#include "storage/prepare.hpp"

namespace train::actors {
namespace {

namespace fs = std::filesystem;

/// Weights of a committed checkpoint, and what they belong to.
struct TrainedModel {
  configs::RunConfig config;
  engine::RankEngine::Options options;
  std::vector<engine::UnitState> units;
  std::int64_t step = 0;
};

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
    return failure(fmt::format("{}: {}; choose another --step", path.string(), verified->damage));
  }
  return checkpoint::FoundCheckpoint{.candidate = {.step = *step, .path = path},
                                     .manifest = *std::move(verified->manifest),
                                     .manifest_digest = verified->manifest_digest};
}

Result<TrainedModel> load_model(const fs::path& run, std::optional<std::int64_t> step) {
  std::error_code ignored;
  if (!fs::exists(run / "config.toml", ignored)) {
    return user_error(fmt::format(
        "{}: not a run directory (no config.toml); give the directory that `actortrain run` made",
        run.string()));
  }
  const auto config = configs::load_config((run / "config.toml").string());
  if (!config) {
    return config.error();
  }
  auto options = engine_options(*config, 0);
  if (!options) {
    return options.error();
  }
  const auto found = find_checkpoint(run / "checkpoints", step);
  if (!found) {
    return found.error();
  }
  TrainedModel model{
      .config = *config, .options = *options, .units = {}, .step = found->candidate.step};
  std::vector<engine::StateView> views;
  for (const engine::UnitParameters& unit : engine::describe_units(options->shape)) {
    model.units.emplace_back(unit);
    for (engine::StateView& view : model.units.back().state_views()) {
      if (view.name.starts_with("model.")) {
        views.push_back(std::move(view));
      }
    }
  }
  TRAIN_RETURN_IF_ERROR(checkpoint::restore(found->candidate.path, found->manifest, views,
                                            checkpoint::Restore::subset));
  return model;
}

/// Only the bytes tokenizer can turn a prompt into tokens. The data may be gone by now: then the
/// vocabulary tells.
Status require_bytes(const TrainedModel& model) {
  const auto facts = storage::read_dataset_facts(model.config.data.dir);
  const std::string tokenizer = facts ? facts->tokenizer.value_or("") : std::string();
  const bool fits = model.options.shape.vocab_size >= storage::bytes_vocab_size &&
                    model.options.shape.vocab_size < 2 * storage::bytes_vocab_size;
  if (tokenizer == "bytes" || (tokenizer.empty() && fits)) {
    return {};
  }
  return user_error(fmt::format(
      "generate: this model was trained on tokens of \"{}\", and only the bytes tokenizer is built "
      "in; train on data made by `actortrain data prepare --tokenizer bytes`",
      tokenizer.empty() ? "another tokenizer" : tokenizer));
}

}  // namespace

int generate_command(const cli::GenerateOptions& options) {
  allow_signals();
  auto model = load_model(options.run_directory, options.step);
  Status status = model ? require_bytes(*model) : Status(model.error());
  if (!status.ok()) {
    log_error(status.error().message);
    return status.error().exit_code();
  }
  std::vector<const float*> weights;
  for (const engine::UnitState& unit : model->units) {
    weights.push_back(unit.weights());
  }
  const auto stream =
      kernels::make_thread_stream("compute", resolve_threads(model->config.runtime.threads));
  engine::TextGenerator generator(engine::kernels_of(model->config.runtime.device),
                                  model->options.shape, model->options.seq_len, std::move(weights));
  std::fputs(options.prompt.c_str(), stdout);
  generator.generate(*stream,
                     {.prompt = encode_bytes(options.prompt),
                      .tokens = options.tokens,
                      .vocab = storage::bytes_vocab_size,
                      .sampling = {.temperature = options.temperature,
                                   .top_k = options.top_k,
                                   .top_p = options.top_p,
                                   .seed = options.seed}},
                     [](std::int32_t token) {
                       std::fputs(show_byte(token).c_str(), stdout);
                       std::fflush(stdout);
                       return std::ferror(stdout) == 0;
                     });
  std::fputs("\n", stdout);
  return kExitFinished;
}

}  // namespace train::actors
