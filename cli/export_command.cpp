#include "cli/export_command.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "actors/head/run_plan.hpp"
#include "base/exit_codes.hpp"
#include "base/log.hpp"
#include "base/signal_watcher.hpp"
#include "base/units.hpp"
#include "checkpoint/export.hpp"
#include "cli/report_error.hpp"
#include "cli/trained_model.hpp"
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
  if (!config) {
    return config.error();
  }
  const auto engine = engine_options(*config, 0);
  if (!engine) {
    return engine.error();
  }
  allow_signals();  // there is nothing yet that would have to be removed
  const auto found = find_checkpoint(run / "checkpoints", options.step);
  block_signals();
  if (!found) {
    return found.error();
  }
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
  if (!report) {
    return report.error();
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  std::fputs(fmt::format("exported step={} out={} dtype={} files={} tensors={} compared={} "
                         "bytes={} seconds={:.1f}\n",
                         found->candidate.step, options.out, options.bf16 ? "bf16" : "fp32",
                         report->files.size(), report->tensors, report->compared,
                         report->tensor_bytes, elapsed.count())
                 .c_str(),
             stdout);
  return {};
}

}  // namespace

int export_command(const ExportOptions& options) {
  const Status status = export_run(options);
  if (!status.ok()) {
    return report_error(status.error());
  }
  return kExitFinished;
}

}  // namespace train::cli
