#pragma once

#include <cstdint>

#include "base/result.hpp"
#include "configs/sections/model_section.hpp"
#include "engine/model/spec.hpp"
#include "kernels/kinds.hpp"

namespace train::engine {

/// The architectures that a run file gives the dimensions of.
enum class Architecture : std::uint8_t { enoki, dstar_qwen3 };

/// The dimensions of such a model with every rule applied.
struct ModelShape {
  Architecture architecture = Architecture::enoki;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t embedding_dim = 0;
  std::int64_t mlp_hidden = 0;
  std::int64_t experts = 0;  ///< 0: each layer has an MLP.
  std::int64_t experts_per_token = 0;
  std::int64_t expert_hidden = 0;
  std::int64_t shared_expert_hidden = 0;
  kernels::RouterKind router = kernels::RouterKind::softmax_normalised;
  float router_scale = 1.0F;
  std::int64_t router_groups = 1, router_kept_groups = 1;
  double router_bias_rate = 0.0;  ///< 0: no bias corrects the choice.
  std::int64_t vocab_size = 0;
  float norm_eps = 1e-5F;
  double rope_theta = 10000.0;
  float residual_scale = 1.0F;
  float z_loss_coeff = 0.0F;
  bool qk_norm = true;
  bool output_gate = false;
  bool tie_embeddings = false;  ///< The head's matrix is the embedding's.

  /// The model as everything else takes it.
  [[nodiscard]] ModelSpec spec() const;
  operator ModelSpec() const { return spec(); }  // NOLINT: it says the same.
};

/// Applies the rules of the architecture to the zeros of `section`. `dataset_vocab`: vocabulary of
/// the data (0: unknown). Errors: user_error naming the key when the vocabulary is smaller than the
/// data's or a dimension is impossible.
[[nodiscard]] Result<ModelShape> resolve_shape(const configs::ModelSection& section,
                                               std::int64_t dataset_vocab);

/// The dimensions of a model of such an architecture. REQUIRES: ModelShape::spec() made it.
[[nodiscard]] ModelShape shape_of(const ModelSpec& model);

}  // namespace train::engine
