#include "cli/checkpoints/run_export.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/text/log.hpp"
#include "cli/checkpoints/export_words.hpp"
#include "cli/checkpoints/published_config.hpp"
#include "data/tokens/dataset_facts.hpp"
#include "engine/model/model_shape.hpp"
#include "run/model/model_files.hpp"

namespace train::cli {
using namespace run;
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// Architecture settings that the weights' shapes do not show, under the names that other programs
/// use, if any. `model_type` is deliberately an own name: the tensors are named differently from
/// theirs, and a program that mistook the model for its own would start from random weights.
Json describe_model(const configs::RunConfig& config, const engine::ModelSpec& model,
                    checkpoint::ExportType type) {
  const bool enoki = model.architecture == "enoki";
  const engine::ModelShape shape = engine::shape_of(model);
  Json object = {{"model_type", enoki ? "actortrain-enoki" : "actortrain-qwen3"},
                 {"vocab_size", model.vocab_size},
                 {"hidden_size", model.embedding_dim},
                 {"num_hidden_layers", model.layers.size()},
                 {"num_attention_heads", shape.heads},
                 {"num_key_value_heads", shape.heads},
                 {"head_dim", shape.head_dim},
                 {"intermediate_size", shape.mlp_hidden},
                 {"hidden_act", enoki ? "gelu" : "silu"},
                 {"mlp_gate", !enoki || shape.experts > 0},
                 {"norm", enoki ? "layer_norm" : "rms_norm"},
                 {"norm_eps", config.model.norm_eps},
                 {"qk_norm", config.model.qk_norm},
                 {"attention_output_gate", shape.output_gate},
                 {"residual_scale", config.model.residual_scale},
                 {"rope_theta", config.model.rope_theta},
                 {"rope_interleaved", true},
                 {"tie_word_embeddings", model.tie_embeddings},
                 {"max_position_embeddings", config.data.sequence_length},
                 {"torch_dtype", storage::config_name(type)}};
  if (shape.experts > 0) {
    object["num_experts"] = shape.experts;
    object["num_experts_per_tok"] = shape.experts_per_token;
    object["moe_intermediate_size"] = shape.expert_hidden;
    object["shared_expert_intermediate_size"] = shape.shared_expert_hidden;
    const kernels::RouterKind router = shape.router;
    object["norm_topk_prob"] = router == kernels::RouterKind::softmax_normalised ||
                               router == kernels::RouterKind::sigmoid_normalised;
    if (router == kernels::RouterKind::sigmoid ||
        router == kernels::RouterKind::sigmoid_normalised) {
      object["scoring_func"] = "sigmoid";
    }
    if (shape.router_scale != 1.0F) {
      object["routed_scaling_factor"] = config.model.router_scale;
    }
    if (shape.router_groups > 1) {
      object["n_group"] = shape.router_groups;
      object["topk_group"] = shape.router_kept_groups;
    }
  }
  return object;
}

/// If the data no longer exists the tokenizer is null.
Json describe_tokenizer(const configs::RunConfig& config) {
  const auto facts = data::read_dataset_facts(config.data.dir);
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

std::string config_text(const configs::RunConfig& config, const engine::ModelSpec& model,
                        const checkpoint::Manifest& manifest, checkpoint::ExportType type) {
  Json object = describe_model(config, model, type);
  object["tokenizer"] = describe_tokenizer(config);
  object["actortrain"] = {{"version", ACTORTRAIN_VERSION},
                          {"run", config.run.name},
                          {"step", manifest.fields.step},
                          {"tokens", manifest.fields.tokens},
                          {"weights_digest", manifest.fields.weights_digest},
                          {"kernel_set", manifest.fields.kernel_set}};
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

Status describe_to(checkpoint::ExportRequest& request, const configs::RunConfig& config,
                   const engine::ModelSpec& model, const checkpoint::FoundCheckpoint& found,
                   const fs::path& run) {
  if (!is_published(config.model)) {
    request.config_text = config_text(config, model, found.manifest, request.type);
    return {};
  }
  const auto original = TRAIN_TRY(find_model_config(model_directory(run).string()));
  request.config_text =
      TRAIN_TRY(published_config(original.text, original.source, model, request.type));
  request.companions = companions_in(original.directory);
  return {};
}

}  // namespace train::cli
