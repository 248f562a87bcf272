#include <algorithm>
#include <chrono>
#include <iterator>

#include "base/process/stop_signals.hpp"
#include "checkpoint/models/checkpoint_weights.hpp"
#include "checkpoint/models/export.hpp"
#include "cli/checkpoints/adapter_words.hpp"
#include "cli/checkpoints/export_words.hpp"
#include "cli/checkpoints/gguf_adapters.hpp"
#include "cli/checkpoints/gguf_words.hpp"
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

constexpr const char* kWithoutLayers = "none";  // A value of --mtp.

/// Adds the layers that predict further tokens: training leaves them as they are, in the directory
/// of the model that the run began with. Without any the model has none.
Status keep_layers(checkpoint::ExportRequest& request, const configs::RunConfig& config,
                   const ExportOptions& options, engine::ModelSpec& model) {
  const std::string& from = options.mtp.empty() ? config.model.from : options.mtp;
  if (model.kept.empty() || from.empty() || from == kWithoutLayers) {
    model.kept.clear();
    return {};
  }
  const auto weights = checkpoint::PublishedWeights::open(from, model);
  if (!weights) {
    return user_error(
        fmt::format("{}; the layers for multi-token prediction are exported from there "
                    "(num_nextn_predict_layers): give that model's directory by --mtp DIR, or "
                    "leave them out by --mtp {}",
                    weights.error().message, kWithoutLayers));
  }
  std::vector<checkpoint::ExportTensor> kept = kept_tensors(*weights);
  if (kept.empty()) {
    model.kept.clear();
  }
  std::ranges::move(kept, std::back_inserter(request.tensors));
  return {};
}

/// Writes the model with adapters merged into its weights.
Result<checkpoint::ExportReport> write_model(checkpoint::ExportRequest request,
                                             const configs::RunConfig& config,
                                             engine::ModelSpec model,
                                             const checkpoint::FoundCheckpoint& found,
                                             const ExportOptions& options) {
  request.tensors = tensors_of(model);
  request.left_out = counts_of(model);
  TRAIN_RETURN_IF_ERROR(keep_layers(request, config, options, model));
  TRAIN_RETURN_IF_ERROR(describe_to(request, config, model, found, options.run_directory));
  return checkpoint::export_weights(found.candidate.path, found.manifest, request,
                                    adapters_of(model), average_prefix(options.ema));
}

/// Writes the model as a GGUF file, with adapters merged into its weights.
Result<checkpoint::ExportReport> write_gguf(checkpoint::ExportRequest request,
                                            const configs::RunConfig& config,
                                            engine::ModelSpec model,
                                            const checkpoint::FoundCheckpoint& found,
                                            const ExportOptions& options) {
  if (!is_published(config.model)) {
    return user_error(fmt::format(
        "run {} trains an architecture of its own, which llama.cpp does not have: use --format hf",
        config.run.name));
  }
  const auto original =
      TRAIN_TRY(find_model_config(model_directory(options.run_directory).string()));
  const std::string text =
      TRAIN_TRY(published_config(original.text, original.source, model, request.type));
  request.left_out = counts_of(model);
  model.kept.clear();
  TRAIN_RETURN_IF_ERROR(make_gguf(request, model, text,
                                  options.no_tokenizer ? fs::path() : original.directory,
                                  gguf_kind_of(options.dtype).value(), config.run.name));
  return checkpoint::export_weights(found.candidate.path, found.manifest, request,
                                    adapters_of(model), average_prefix(options.ema));
}

/// Tensors and adapter_config.json, as PEFT reads them.
Status describe_peft(checkpoint::ExportRequest& request, const configs::RunConfig& config,
                     const engine::ModelSpec& model) {
  TRAIN_RETURN_IF_ERROR(check_peft(model));
  request.file = "adapter_model";
  request.texts["adapter_config.json"] = adapter_config(config, model);
  request.tensors = tensors_of(model, engine::Dialect::peft);
  return {};
}

/// Tensors and metadata of the one GGUF file that llama.cpp reads.
Status describe_gguf_lora(checkpoint::ExportRequest& request, const configs::RunConfig& config,
                          const engine::ModelSpec& model, const ExportOptions& options) {
  if (options.max_file_bytes) {
    return user_error("--max-shard-size: llama.cpp reads an adapter from one file alone");
  }
  auto adapters = TRAIN_TRY(gguf_adapters(model, adapters_of(model)));
  adapters.settings.metadata.push_back({"general.name", config.run.name});
  request.file = "adapter";
  request.tensors = std::move(adapters.tensors);
  request.format = checkpoint::gguf_format(std::move(adapters.settings));
  return {};
}

/// Writes the adapters alone.
Result<checkpoint::ExportReport> write_adapters(checkpoint::ExportRequest request,
                                                const configs::RunConfig& config,
                                                const engine::ModelSpec& model,
                                                const checkpoint::FoundCheckpoint& found,
                                                const ExportOptions& options) {
  const bool gguf = options.format == "gguf-lora";
  if (model.lora.rank == 0) {
    return user_error(
        fmt::format("run {} has trained no adapters (lora.rank is 0): use --format {}",
                    config.run.name, gguf ? "gguf" : "hf"));
  }
  TRAIN_RETURN_IF_ERROR(gguf ? describe_gguf_lora(request, config, model, options)
                             : describe_peft(request, config, model));
  return checkpoint::export_tensors(
      request, checkpoint::CheckpointWeights(found.candidate.path, found.manifest, {},
                                             average_prefix(options.ema)));
}

Result<checkpoint::ExportReport> write_format(const checkpoint::ExportRequest& request,
                                              const configs::RunConfig& config,
                                              const engine::ModelSpec& model,
                                              const checkpoint::FoundCheckpoint& found,
                                              const ExportOptions& options) {
  if (options.format == "peft" || options.format == "gguf-lora") {
    return write_adapters(request, config, model, found, options);
  }
  const auto write = options.format == "gguf" ? write_gguf : write_model;
  return write(request, config, model, found, options);
}

Status export_run(const ExportOptions& options) {
  const fs::path run(options.run_directory);
  const auto config = TRAIN_TRY(load_run_config(run));
  const auto engine = TRAIN_TRY(engine_options(config, 0));
  TRAIN_RETURN_IF_ERROR(check_average(config, options.ema));
  allow_signals();  // Nothing exists yet that would have to be removed.
  const auto found = find_checkpoint({run}, options.step);
  block_signals();
  watch_signals();
  TRAIN_RETURN_IF_ERROR(found);
  checkpoint::ExportRequest request{
      .directory = options.out,
      .tensors = {},
      .type = weight_type_of(options.dtype).value_or(storage::WeightType::f32),
      .max_file_bytes = file_limit(options.max_file_bytes, options.format),
      .config_text = {},
      .stop = [] { return stop_signal() != 0; }};
  const auto begin = std::chrono::steady_clock::now();
  const auto report = TRAIN_TRY(write_format(request, config, engine.model, *found, options));
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  print(
      fmt::format("exported step={} out={} dtype={} files={} tensors={} compared={} "
                  "bytes={} seconds={:.1f}\n",
                  found->candidate.step, options.out, options.dtype, report.files.size(),
                  report.tensors, report.compared, report.tensor_bytes, elapsed.count()));
  return {};
}

}  // namespace

/// Writes a checkpoint's weights as safetensors files, with the files needed to use them. A signal
/// ends it and leaves nothing.
void describe_export(CommandSyntaxes& commands) {
  CommandSyntax& command = commands.add(
      "export", "Write a checkpoint's weights as safetensors files, or GGUF, for other programs.");
  ExportOptions& options = command.runs(export_run);
  command.run_directory(options.run_directory);
  command.text("--out", options.out, "Directory to make", "DIR")->required();
  command.step(options.step);
  command.check([&options] { return options.out.empty() ? "--out is empty" : ""; });
  command.read(
      "--format",
      [&options](std::string_view text) {
        options.format = text;
        return text == "hf" || text == "peft" || text == "gguf" || text == "gguf-lora";
      },
      "--format must be hf, peft, gguf or gguf-lora",
      "hf: names, shapes and config.json as transformers reads them, where it knows the model; "
      "adapters are merged. peft: the adapters of a run with [lora] alone, as PEFT reads them. "
      "gguf: one file for llama.cpp, and a Modelfile for Ollama. gguf-lora: the adapters alone, "
      "for "
      "llama.cpp",
      "hf|peft|gguf|gguf-lora");
  command.app.add_flag("--no-tokenizer", options.no_tokenizer,
                       "Leave the tokenizer out of a GGUF file");
  command.check(
      [&options] { return format_mistake(options.format, options.dtype, options.no_tokenizer); });
  read_dtype(command, options.dtype,
             "fp32: the bits; bf16 and fp16: rounded to the nearest; q8_0 and q4_k_m: quantised, "
             "for gguf")
      ->default_str("fp32");
  command.text("--mtp", options.mtp,
               "Model whose layers for multi-token prediction are kept, by default the run's "
               "model.from; none: export without them",
               "DIR|none");
  command.app.add_flag("--ema", options.ema,
                       "Export the running average of the weights (train.ema)");
  read_file_size(command, options.max_file_bytes);
}

}  // namespace train::cli
