#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/parameter.hpp"
#include "kernels/kinds.hpp"

namespace train::engine {

/// A norm, of the model's width unless stated otherwise.
struct NormSpec {
  std::string name = {};  ///< Weight name without layer prefix and ".weight".
  kernels::NormKind kind = kernels::NormKind::rms;
  float eps = 1e-5F;
  bool plus_one = false;  ///< The gain is 1 + w, and w starts at 0 (Gemma).
  bool bias = false;      ///< LayerNorm's.
};

/// Rotary positions (Su et al. 2021) of the first `rotary_dim` elements of a head.
struct RopeSpec {
  double theta = 10000.0;
  std::int64_t rotary_dim = 0;
  kernels::RopePairing pairing = kernels::RopePairing::interleaved;
  /// [rotary_dim / 2] radians a position. Empty: theta^(-2i / rotary_dim), in double.
  std::vector<float> frequencies = {};
  float factor = 1.0F;           ///< Factor of cosine and sine (yarn, longrope).
  std::string scaling = "none";  ///< Method that made `frequencies`; for people.
};

class BlockSpec;

/// A part of a layer: f in x + post(f(pre(x))). f is what the block computes.
struct BranchSpec {
  std::optional<NormSpec> pre = {}, post = {};
  std::shared_ptr<const BlockSpec> block = {};
};

/// One layer: serial    x += c f(x), of one branch after the other;
///            parallel  x += f(x) + g(x) + ..., of all branches.
struct LayerSpec {
  std::string prefix = {};  ///< "model.layers.0.": starts the names of its tensors.
  bool parallel = false;
  std::vector<BranchSpec> branches = {};  ///< At least one.
};

/// True if `name` matches the shell pattern ('*', '?', '[...]').
[[nodiscard]] bool matches_shell(const std::string& pattern, const std::string& name);

/// Low-rank adapters of linear maps (AdapterBlock), which are trained in their place.
struct LoraSpec {
  std::int64_t rank = 0;  ///< 0: no adapters.
  double alpha = 16.0;
  bool rslora = false;
  /// "all-linear", or shell patterns of the names of maps, or of the ends of names behind a dot.
  std::vector<std::string> targets = {};

  /// alpha / rank, with rslora alpha / sqrt(rank) (Kalajdzievski 2023).
  [[nodiscard]] float scale() const;
  /// True if the map `module` of a layer, "model.layers.0.self_attn.q_proj", has an adapter.
  /// `by_name`: "all-linear" does not mean it (Parameter::adapted_by_name).
  [[nodiscard]] bool adapts(const std::string& module, bool by_name = false) const;
};

/// A model as plain data: everything that its units are built from. Tensors have the names and the
/// shapes of its published weights' files, unless BlockSpec::tensor_rules says otherwise.
struct ModelSpec {
  std::string architecture = {};  ///< Name in the registry.
  std::int64_t vocab_size = 0;
  std::int64_t embedding_dim = 0;
  std::string embedding = {};    ///< "model.embed_tokens.weight".
  float embedding_scale = 1.0F;  ///< Factor of the embedding's output (Gemma).
  std::string positions = {};    ///< Learned positions' tensor; empty: none (GPT-2).
  std::int64_t position_rows = 0;
  /// Learned rows before each text, [prefix_tokens, embedding_dim]: layers see them as its first
  /// tokens, the head does not (Hymba). Lanes then have one text a sequence.
  std::string prefix = {};
  std::int64_t prefix_tokens = 0;  ///< 0: none.
  std::vector<RopeSpec> ropes = {};
  std::vector<LayerSpec> layers = {};
  NormSpec final_norm = {};     ///< Full name, not relative to a layer.
  std::string head = {};        ///< "lm_head.weight"; unused when tied.
  bool tie_embeddings = false;  ///< The head's matrix is the embedding's.
  float logit_softcap = 0.0F;   ///< c in c tanh(logit / c); 0: none.
  float residual_scale = 1.0F;  ///< c in x + c * branch(x).
  float z_loss_coeff = 0.0F;
  bool transposed_linears = false;  ///< Layers' matrices are [inputs, outputs] (GPT-2).
  /// Name that GGUF files have for the norm before MLPs and experts.
  std::string gguf_mlp_norm = "ffn_norm";
  std::int64_t max_positions = 0;  ///< Limit in the configuration; 0: none is given.
  /// The keys of a config.json that say `ropes`, in both of its dialects: a JSON object as text.
  std::string rope_keys = {};
  /// Configuration keys that no part of the function reads; for people.
  std::vector<std::string> unread_keys = {};
  /// Prefixes of stored tensors that no part of the function reads and that exports keep: layers
  /// that predict further tokens (DeepSeek-V3's multi-token prediction).
  std::vector<std::string> kept = {};
  std::vector<std::string> dropout = {};  ///< Dropout keys, "attn_pdrop 0.1"; not applied here.
  /// Shell patterns of parameters and units whose weights do not change (Parameter::frozen).
  std::vector<std::string> frozen = {};
  LoraSpec lora = {};  ///< With adapters all else is frozen.

  /// True if `parameter` of `unit` is frozen.
  [[nodiscard]] bool is_frozen(const std::string& unit, const Parameter& parameter) const;

  /// The widest head of any block.
  [[nodiscard]] std::int64_t widest_head() const;
  /// Number of branches of all layers.
  [[nodiscard]] std::int64_t branch_count() const;
  /// BlockSpec::sums() of all layers' blocks, in their order.
  [[nodiscard]] std::vector<std::string> block_sums() const;
  /// BlockSpec::reads_step_sums() of any block.
  [[nodiscard]] bool reads_step_sums() const;
};

/// Trainable elements: all, and without embedding and head. With tied embeddings the one matrix
/// counts as embedding, and `head` is 0. Learned positions are neither.
struct ParameterCount {
  std::int64_t total = 0;
  std::int64_t embedding = 0;
  std::int64_t head = 0;
  std::int64_t active = 0;  ///< Those that one token uses (Parameter::used_share).
  [[nodiscard]] std::int64_t non_embedding() const { return total - embedding - head; }
};
[[nodiscard]] ParameterCount count_parameters(const ModelSpec& spec);

/// "8 heads of 64, MLP 2048": BlockSpec::sizes() of all branches.
[[nodiscard]] std::string block_sizes(const LayerSpec& layer);

/// The metrics that ModelSpec::block_sums() make: each name once, where it comes first.
[[nodiscard]] std::vector<std::string> block_metrics(const ModelSpec& spec);

/// Training FLOPs (forward + backward) of one token: 6 * (elements of all matrices used in a
/// matmul by a token, head included) + 3 * BlockSpec::score_flops of every branch. Of frozen
/// matrices 4, and below all that is trained the third that the forward pass takes.
[[nodiscard]] double flops_per_token(const ModelSpec& spec, std::int64_t seq_len);

}  // namespace train::engine
