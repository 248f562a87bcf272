#include "engine/model/model_shape.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/check.hpp"
#include "engine/model/architectures/own_architectures.hpp"
#include "engine/model/blocks/attention_block.hpp"
#include "engine/model/blocks/mlp_block.hpp"
#include "engine/model/experts/experts_block.hpp"

namespace train::engine {
namespace {

constexpr std::int64_t kUnknownVocab = 50304;  // GPT-2's vocabulary, padded to a multiple of 64.
constexpr std::int64_t kVocabMultiple = 64;
constexpr std::int64_t kLargestDimension = std::int64_t{1} << 24;

std::int64_t or_rule(std::int64_t given, std::int64_t rule) { return given != 0 ? given : rule; }

std::int64_t padded_vocab(std::int64_t dataset_vocab) {
  if (dataset_vocab == 0) {
    return kUnknownVocab;
  }
  return (dataset_vocab + kVocabMultiple - 1) / kVocabMultiple * kVocabMultiple;
}

/// The kind of a name that model.router takes.
kernels::RouterKind router_kind(std::string_view name) {
  constexpr std::array<std::string_view, 4> kNames = {"softmax", "softmax_normalised", "sigmoid",
                                                      "sigmoid_normalised"};
  const auto* const found = std::ranges::find(kNames, name);
  TRAIN_CHECK(found != kNames.end(), "model.router is \"{}\"", name);
  return static_cast<kernels::RouterKind>(found - kNames.begin());
}

Status check_dimension(const char* key, std::int64_t value) {
  if (value < 1 || value > kLargestDimension) {
    return user_error(fmt::format("{} is {}: give a number from 1 to {}, or 0 for the rule", key,
                                  value, kLargestDimension));
  }
  return {};
}

Status check_dimensions(const ModelShape& shape, std::int64_t dataset_vocab) {
  TRAIN_RETURN_IF_ERROR(check_dimension("model.layers", shape.layers));
  TRAIN_RETURN_IF_ERROR(check_dimension("model.head_dim", shape.head_dim));
  TRAIN_RETURN_IF_ERROR(check_dimension("model.embedding_dim", shape.embedding_dim));
  TRAIN_RETURN_IF_ERROR(check_dimension("model.mlp_hidden", shape.mlp_hidden));
  if (shape.experts > 0) {
    TRAIN_RETURN_IF_ERROR(check_dimension("model.expert_hidden", shape.expert_hidden));
  }
  TRAIN_RETURN_IF_ERROR(check_dimension("model.vocab_size", shape.vocab_size));
  if (shape.head_dim % 2 != 0) {
    return user_error(fmt::format(
        "model.head_dim is {}: rotary positions rotate pairs of channels, so it must be even",
        shape.head_dim));
  }
  if (shape.vocab_size < dataset_vocab) {
    return user_error(
        fmt::format("model.vocab_size is {} but the data has {} tokens: set it to {} or leave it 0",
                    shape.vocab_size, dataset_vocab, padded_vocab(dataset_vocab)));
  }
  return {};
}

}  // namespace

Result<ModelShape> resolve_shape(const configs::ModelSection& section, std::int64_t dataset_vocab) {
  ModelShape shape;
  if (section.arch != "enoki" && section.arch != "dstar_qwen3" && section.arch != "qwen3") {
    return user_error(
        fmt::format("model.arch is \"{}\": give \"enoki\" or \"dstar_qwen3\", or model.config or "
                    "model.from for a published architecture",
                    section.arch));
  }
  TRAIN_RETURN_IF_ERROR(check_dimension("model.heads", section.heads));
  const bool qwen3 = section.arch != "enoki";
  shape.architecture = qwen3 ? Architecture::dstar_qwen3 : Architecture::enoki;
  shape.heads = section.heads;
  shape.layers = or_rule(
      section.layers, qwen3 ? 2 * section.heads : std::max<std::int64_t>(1, 3 * section.heads / 4));
  shape.head_dim = or_rule(section.head_dim, qwen3 ? 128 : 64);
  shape.embedding_dim = or_rule(section.embedding_dim, shape.heads * shape.head_dim);
  shape.mlp_hidden = or_rule(section.mlp_hidden, (qwen3 ? 3 : 4) * shape.embedding_dim);
  if (section.experts > 0) {
    shape.experts = section.experts;
    shape.experts_per_token = section.experts_per_token;
    shape.expert_hidden = or_rule(section.expert_hidden, shape.mlp_hidden);
    shape.shared_expert_hidden = section.shared_expert_hidden;
    shape.router = router_kind(section.router);
    shape.router_scale = static_cast<float>(section.router_scale);
    shape.router_groups = section.router_groups;
    shape.router_kept_groups = section.router_kept_groups;
    shape.router_bias_rate = section.router_bias_rate;
  }
  shape.vocab_size = or_rule(section.vocab_size, padded_vocab(dataset_vocab));
  shape.norm_eps = static_cast<float>(section.norm_eps);
  shape.rope_theta = section.rope_theta;
  shape.residual_scale = static_cast<float>(section.residual_scale);
  shape.z_loss_coeff = static_cast<float>(section.z_loss_coeff);
  shape.qk_norm = section.qk_norm;
  shape.output_gate = qwen3 && section.attention_output_gate;
  shape.tie_embeddings = section.tie_embeddings;
  TRAIN_RETURN_IF_ERROR(check_dimensions(shape, dataset_vocab));
  return shape;
}

ModelSpec ModelShape::spec() const {
  return architecture == Architecture::enoki ? enoki_spec(*this) : dstar_qwen3_spec(*this);
}

ModelShape shape_of(const ModelSpec& model) {
  const LayerSpec& layer = model.layers.front();
  const auto& attention = block_of<AttentionSpec>(layer);
  ModelShape shape{.architecture = model.architecture == "enoki" ? Architecture::enoki
                                                                 : Architecture::dstar_qwen3,
                   .layers = std::ssize(model.layers),
                   .heads = attention.heads,
                   .head_dim = attention.head_dim,
                   .embedding_dim = model.embedding_dim,
                   .vocab_size = model.vocab_size,
                   .norm_eps = model.final_norm.eps,
                   .rope_theta = model.ropes.front().theta,
                   .residual_scale = model.residual_scale,
                   .z_loss_coeff = model.z_loss_coeff,
                   .qk_norm = attention.head_norm != HeadNorm::none,
                   .output_gate = attention.output_gate,
                   .tie_embeddings = model.tie_embeddings};
  if (const auto* experts = find_block<ExpertsSpec>(layer)) {
    shape.experts = experts->experts;
    shape.experts_per_token = experts->slots;
    shape.expert_hidden = experts->hidden;
    shape.mlp_hidden = experts->hidden;
    shape.shared_expert_hidden = experts->shared.hidden;
    shape.router = experts->router;
    shape.router_scale = experts->scale;
    shape.router_groups = experts->groups;
    shape.router_kept_groups = experts->kept_groups;
    shape.router_bias_rate = experts->choice_bias_rate;
  } else {
    shape.mlp_hidden = block_of<MlpSpec>(layer).hidden;
  }
  return shape;
}

}  // namespace train::engine
