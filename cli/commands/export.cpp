#include <array>
#include <chrono>
#include <nlohmann/json.hpp>

#include "actors/head/run_plan.hpp"
#include "base/log.hpp"
#include "base/signal_watcher.hpp"
#include "checkpoint/export.hpp"
#include "cli/checkpoints/stored_run.hpp"
#include "cli/command.hpp"
#include "engine/model/model.hpp"
#include "storage/tokens/dataset_facts.hpp"

namespace train::cli {
using namespace actors;
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// What computes the model, as far as the weights' shapes do not say it. Names as other programs
/// use them where they have one. `model_type` is no name of theirs: the tensors are named otherwise
/// than in theirs, and a program that took them for its own would start from random weights.
Json describe_model(const configs::RunConfig& config, const engine::ModelShape& shape,
                    checkpoint::ExportType type) {
  const bool enoki = shape.architecture == engine::Architecture::enoki;
  return {{"model_type", enoki ? "actortrain-enoki" : "actortrain-qwen3"},
          {"vocab_size", shape.vocab_size},
          {"hidden_size", shape.embedding_dim},
          {"num_hidden_layers", shape.layers},
          {"num_attention_heads", shape.heads},
          {"num_key_value_heads", shape.heads},
          {"head_dim", shape.head_dim},
          {"intermediate_size", shape.mlp_hidden},
          {"hidden_act", enoki ? "gelu" : "silu"},
          {"mlp_gate", !enoki},
          {"norm", enoki ? "layer_norm" : "rms_norm"},
          {"norm_eps", config.model.norm_eps},
          {"qk_norm", shape.qk_norm},
          {"attention_output_gate", shape.output_gate},
          {"residual_scale", config.model.residual_scale},
          {"rope_theta", shape.rope_theta},
          {"rope_interleaved", true},
          {"tie_word_embeddings", shape.tie_embeddings},
          {"max_position_embeddings", config.data.sequence_length},
          {"torch_dtype", type == checkpoint::ExportType::fp32 ? "float32" : "bfloat16"}};
}

/// The data may be gone by now; then the tokenizer is null.
Json describe_tokenizer(const configs::RunConfig& config) {
  const auto facts = storage::read_dataset_facts(config.data.dir);
  if (!facts || !facts->tokenizer) {
    log_warning(fmt::format(
        "tokenizer_unknown {} does not tell it; config.json says null: put its name there",
        config.data.dir));
    return nullptr;
  }
  Json tokenizer = {{"name", *facts->tokenizer}};
  if (facts->vocab_size) {
    tokenizer["vocab_size"] = *facts->vocab_size;
  }
  if (facts->end_of_text) {
    tokenizer["end_of_text"] = *facts->end_of_text;
  }
  return tokenizer;
}

std::string config_text(const configs::RunConfig& config, const engine::ModelShape& shape,
                        const checkpoint::Manifest& manifest, checkpoint::ExportType type) {
  Json object = describe_model(config, shape, type);
  object["tokenizer"] = describe_tokenizer(config);
  object["actortrain"] = {{"version", ACTORTRAIN_VERSION},
                          {"run", config.run.name},
                          {"step", manifest.fields.step},
                          {"tokens", manifest.fields.tokens},
                          {"weights_digest", manifest.fields.weights_digest},
                          {"kernel_set", manifest.fields.kernel_set}};
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Status export_run(const ExportOptions& options) {
  const fs::path run(options.run_directory);
  const auto config = load_run_config(run);
  TRAIN_RETURN_IF_ERROR(config);
  const auto engine = engine_options(*config, 0);
  TRAIN_RETURN_IF_ERROR(engine);
  allow_signals();  // there is nothing yet that would have to be removed
  const auto found = find_checkpoint(run / "checkpoints", options.step);
  block_signals();
  TRAIN_RETURN_IF_ERROR(found);
  checkpoint::ExportRequest request{
      .directory = options.out,
      .tensors = {},
      .type = options.bf16 ? checkpoint::ExportType::bf16 : checkpoint::ExportType::fp32,
      .max_file_bytes = options.max_file_bytes,
      .config_text = {},
      .stop = signal_pending};
  for (const engine::UnitParameters& unit : engine::describe_units(engine->shape)) {
    for (const engine::Parameter& parameter : unit.parameters) {
      request.tensors.push_back({parameter.name, parameter.shape()});
    }
  }
  request.config_text = config_text(*config, engine->shape, found->manifest, request.type);
  const auto begin = std::chrono::steady_clock::now();
  const auto report = checkpoint::export_weights(found->candidate.path, found->manifest, request);
  TRAIN_RETURN_IF_ERROR(report);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  print(fmt::format(
      "exported step={} out={} dtype={} files={} tensors={} compared={} "
      "bytes={} seconds={:.1f}\n",
      found->candidate.step, options.out, options.bf16 ? "bf16" : "fp32", report->files.size(),
      report->tensors, report->compared, report->tensor_bytes, elapsed.count()));
  return {};
}

/// "5GB", "512MiB", "4096": bytes; nothing if it is no size of 1 or more.
std::optional<std::uint64_t> size_in(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, std::uint64_t>, 8> kUnits = {
      {{"", 1},
       {"B", 1},
       {"KB", 1'000},
       {"MB", 1'000'000},
       {"GB", 1'000'000'000},
       {"KiB", std::uint64_t{1} << 10},
       {"MiB", std::uint64_t{1} << 20},
       {"GiB", std::uint64_t{1} << 30}}};
  std::uint64_t count = 0;
  const char* end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, count);
  if (code != std::errc() || count == 0) {
    return std::nullopt;
  }
  const std::string_view unit(stop, static_cast<std::size_t>(end - stop));
  for (const auto& [name, bytes] : kUnits) {
    if (unit == name && count <= std::numeric_limits<std::uint64_t>::max() / bytes) {
      return count * bytes;
    }
  }
  return std::nullopt;
}

}  // namespace

/// A checkpoint's weights as safetensors files and what is needed to use them. A signal ends it and
/// leaves nothing.
void describe_export(CommandSyntaxes& commands) {
  CommandSyntax& command = commands.add(
      "export", "Write a checkpoint's weights as safetensors files for other programs.");
  ExportOptions& options = command.runs(export_run);
  command.run_directory(options.run_directory);
  command.text("--out", options.out, "Directory to make", "DIR")->required();
  command.step(options.step);
  command.check([&options] { return options.out.empty() ? "--out is empty" : ""; });
  const auto dtype = [&options](std::string_view text) {
    options.bf16 = text == "bf16";
    return options.bf16 || text == "fp32";
  };
  command
      .read("--dtype", dtype, "--dtype must be fp32 or bf16",
            "fp32: the bits; bf16: rounded to the nearest", "fp32|bf16")
      ->default_str("fp32");
  const auto size = [&options](std::string_view text) {
    const auto bytes = size_in(text);
    options.max_file_bytes = bytes.value_or(0);
    return bytes.has_value();
  };
  command
      .read("--max-file-bytes", size, "--max-file-bytes wants a size like 5GB, 512MiB or 1000000",
            "Weights above this size go to several files with an index", "SIZE")
      ->default_str("5GB");
}

}  // namespace train::cli
