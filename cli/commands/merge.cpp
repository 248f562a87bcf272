#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "base/process/core_shares.hpp"
#include "base/process/stop_signals.hpp"
#include "checkpoint/models/checkpoint_weights.hpp"
#include "checkpoint/models/merged_weights.hpp"
#include "checkpoint/models/published_weights.hpp"
#include "cli/checkpoints/adapter_words.hpp"
#include "cli/checkpoints/export_words.hpp"
#include "cli/checkpoints/published_config.hpp"
#include "cli/checkpoints/run_export.hpp"
#include "cli/checkpoints/stored_run.hpp"
#include "cli/command.hpp"
#include "run/model/model_files.hpp"
#include "run/plan/run_plan.hpp"

namespace train::cli {
using namespace run;
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// Models to merge, and the request that describes the result.
struct Merge {
  checkpoint::ExportRequest request = {};
  std::vector<checkpoint::MergedModel> models = {};
  bool whole = false;
  std::vector<checkpoint::FoundCheckpoint> checkpoints = {};  ///< A run's; `models` read them.
  std::vector<checkpoint::ExportAdapter> adapters = {};
};

/// Shares of `count` models, which sum to 1.
std::vector<double> shares_of(const MergeOptions& options, std::size_t count) {
  std::vector<double> shares = options.weights.empty() ? std::vector(count, 1.0) : options.weights;
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) {
    share /= sum;
  }
  return shares;
}

/// The config.json without keys that tell nothing of the function.
Json function_of(const std::string& config) {
  static const std::set<std::string, std::less<>> kOther = {
      "torch_dtype", "dtype",      "transformers_version",        "_name_or_path",
      "use_cache",   "actortrain", "_attn_implementation_autoset"};
  Json kept = Json::object();
  const Json all = Json::parse(config);
  for (const auto& [key, value] : all.items()) {
    if (!kOther.contains(key)) {
      kept[key] = value;
    }
  }
  return kept;
}

/// The first key whose value differs; empty: none does.
std::string difference(const Json& a, const Json& b) {
  for (const auto* one : {&a, &b}) {
    for (const auto& [key, value] : one->items()) {
      if (!a.contains(key) || !b.contains(key) || a.at(key) != b.at(key)) {
        return key;
      }
    }
  }
  return "";
}

/// Config.json of a directory's model in the form of all exports.
Result<std::string> plain_config(const PublishedModel& model) {
  return published_config(model.config.text, model.config.source, model.spec,
                          storage::WeightType::f32);
}

/// Error (user) unless the two models are the same function of different weights.
Status check_alike(const PublishedModel& first, const PublishedModel& other,
                   const MergeOptions& options, std::size_t index) {
  const std::string key = difference(function_of(TRAIN_TRY(plain_config(first))),
                                     function_of(TRAIN_TRY(plain_config(other))));
  if (!key.empty()) {
    return user_error(fmt::format("{} and {} are different models: {} in config.json differs",
                                  options.inputs.front(), options.inputs[index], key));
  }
  return {};
}

Result<Merge> merge_directories(const MergeOptions& options) {
  Merge merge;
  merge.request.directory = options.out;
  const std::vector<double> shares = shares_of(options, options.inputs.size());
  std::optional<PublishedModel> first;
  for (std::size_t i = 0; i < options.inputs.size(); ++i) {
    if (fs::exists(fs::path(options.inputs[i]) / "index")) {
      return user_error(fmt::format(
          "{} is a run: its checkpoints are merged by --last N, several runs after `actortrain "
          "export`",
          options.inputs[i]));
    }
    auto model = TRAIN_TRY(open_model(options.inputs[i], 0));
    merge.models.push_back({model.weights, shares[i]});
    if (!first) {
      first = std::move(model);
      continue;
    }
    TRAIN_RETURN_IF_ERROR(check_alike(*first, model, options, i));
  }
  show_notes(options.inputs.front(), first->notes);
  const auto* entry =
      first->weights->directory().find(first->weights->name_in_files(first->spec.embedding));
  const auto stored = storage::weight_type(entry->dtype);
  merge.request.type =
      weight_type_of(options.dtype).value_or(stored.value_or(storage::WeightType::bf16));
  first->spec.kept.clear();
  merge.request.tensors = tensors_of(first->spec);
  merge.request.config_text = TRAIN_TRY(
      published_config(first->config.text, first->config.source, first->spec, merge.request.type));
  merge.request.companions = companions_in(first->config.directory);
  return merge;
}

/// The newest checkpoints of the run, the newest first.
Result<std::vector<checkpoint::FoundCheckpoint>> newest(const MergeOptions& options) {
  const StoredRun run{options.inputs.front()};
  const std::vector<checkpoint::Candidate> placed = TRAIN_TRY(placed_in(run));
  const auto wanted = static_cast<std::size_t>(*options.last);
  if (placed.size() < wanted) {
    return user_error(
        fmt::format("{} has {} checkpoints, and --last wants {}; keep more by "
                    "checkpoint.keep_last",
                    options.inputs.front(), placed.size(), wanted));
  }
  std::vector<checkpoint::FoundCheckpoint> found(wanted);
  // Each has a manifest of megabytes. Readers of weights verify what they read, a third of each.
  const auto find = [&](std::size_t i) -> Status {
    found[i] = TRAIN_TRY(find_checkpoint(run, placed[i].step, checkpoint::Depth::files));
    return {};
  };
  TRAIN_RETURN_IF_ERROR(try_on_cores(wanted, find));
  return found;
}

Result<Merge> merge_steps(const MergeOptions& options) {
  const fs::path run(options.inputs.front());
  const auto config = TRAIN_TRY(load_run_config(run));
  auto engine = TRAIN_TRY(engine_options(config, 0));
  Merge merge;
  merge.request.directory = options.out;
  merge.checkpoints = TRAIN_TRY(newest(options));
  merge.adapters = adapters_of(engine.model);
  merge.whole = !merge.adapters.empty();
  merge.request.type = weight_type_of(options.dtype).value_or(storage::WeightType::f32);
  merge.request.left_out = counts_of(engine.model);
  engine.model.kept.clear();
  merge.request.tensors = tensors_of(engine.model);
  TRAIN_RETURN_IF_ERROR(
      describe_to(merge.request, config, engine.model, merge.checkpoints.front(), run));
  return merge;
}

/// Readers of the run's checkpoints; what they read stays in `merge`.
Status open_steps(Merge& merge, const MergeOptions& options) {
  const std::vector<double> shares = shares_of(options, merge.checkpoints.size());
  for (std::size_t i = 0; i < merge.checkpoints.size(); ++i) {
    const checkpoint::FoundCheckpoint& found = merge.checkpoints[i];
    TRAIN_RETURN_IF_ERROR(checkpoint::check_weights(found.candidate.path, found.manifest,
                                                    merge.request, merge.adapters));
    merge.models.push_back({std::make_shared<checkpoint::CheckpointWeights>(
                                found.candidate.path, found.manifest, merge.adapters),
                            shares[i]});
  }
  return {};
}

Status merge_models(const MergeOptions& options) {
  auto merge = TRAIN_TRY(options.last ? merge_steps(options) : merge_directories(options));
  TRAIN_RETURN_IF_ERROR(open_steps(merge, options));
  watch_signals();
  merge.request.max_file_bytes = file_limit(options.max_file_bytes, "hf");
  merge.request.stop = [] { return stop_signal() != 0; };
  const std::size_t count = merge.models.size();
  const auto begin = std::chrono::steady_clock::now();
  const auto report = TRAIN_TRY(checkpoint::export_tensors(
      merge.request, checkpoint::MergedWeights(std::move(merge.models), merge.whole)));
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  print(
      fmt::format("merged models={} out={} dtype={} files={} tensors={} bytes={} seconds={:.1f}\n",
                  count, options.out, storage::config_name(merge.request.type), report.files.size(),
                  report.tensors, report.tensor_bytes, elapsed.count()));
  return {};
}

std::string mistake(const MergeOptions& options) {
  const std::size_t count =
      options.last ? static_cast<std::size_t>(*options.last) : options.inputs.size();
  if (options.last && options.inputs.size() != 1) {
    return "--last merges checkpoints of one run: name one RUN_DIRECTORY";
  }
  if (count < 2) {
    return "merge wants two models or more, or --last N of a run's checkpoints";
  }
  if (!options.weights.empty() && options.weights.size() != count) {
    return fmt::format("--weights has {} numbers for {} models", options.weights.size(), count);
  }
  const bool positive = std::ranges::all_of(
      options.weights, [](double weight) { return std::isfinite(weight) && weight > 0.0; });
  if (!positive) {
    return "--weights must be positive numbers";
  }
  const double sum = std::accumulate(options.weights.begin(), options.weights.end(), 0.0);
  return std::isfinite(sum) ? "" : "--weights are too large to be added up";
}

}  // namespace

/// Writes the weighted mean of models, or of a run's checkpoints, as a model.
void describe_merge(CommandSyntaxes& commands) {
  CommandSyntax& command = commands.add(
      "merge", "Average the weights of models, or of a run's last checkpoints, into a new model.");
  MergeOptions& options = command.runs(merge_models);
  command.app
      .add_option("MODEL", options.inputs,
                  "Directories with config.json and safetensors files; or one run's, with --last")
      ->type_name("DIR")
      ->required();
  command.integer("--last", options.last, "Merge that many newest checkpoints of a run", 2);
  command.app
      .add_option("--weights", options.weights,
                  "Weight of each model, in their order, newest first for --last; scaled to a sum "
                  "of 1")
      ->type_name("W,...")
      ->delimiter(',');
  command.text("--out", options.out, "Directory to make", "DIR")->required();
  command.check([&options] { return options.out.empty() ? "--out is empty" : mistake(options); });
  command.read(
      "--method", [](std::string_view text) { return text == "linear"; }, "--method must be linear",
      "linear: the weighted mean", "linear");
  read_dtype(command, options.dtype,
             "Type of the new weights; by default that of the first model, fp32 for checkpoints");
  command.check([&options] { return format_mistake("hf", options.dtype, false); });
  read_file_size(command, options.max_file_bytes);
}

}  // namespace train::cli
