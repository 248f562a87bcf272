#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/parameter.hpp"
#include "kernels/activation/activation.hpp"
#include "kernels/attention/rope.hpp"
#include "kernels/norm/norm.hpp"

namespace train::engine {

/// A norm. Of width `dim` of the model where nothing else is said.
struct NormSpec {
  std::string name = {};  ///< Of its weight, without ".weight", below the layer's prefix.
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
  float factor = 1.0F;           ///< Of cosine and sine (yarn, longrope).
  std::string scaling = "none";  ///< What made `frequencies`; for people.
};

enum class ProjectionLayout : std::uint8_t {
  separate,  ///< Three matrices.
  fused,     ///< One, rows [Q | K | V].
  per_head,  ///< One, rows [q | k | v] head by head (GPT-NeoX).
};

enum class HeadNorm : std::uint8_t {
  none,
  per_head,  ///< Over each head, one weight [head_dim] for all.
  whole,     ///< Over all heads of a row at once (OLMo 2).
};

/// Causal attention. Names are below the layer's prefix, without ".weight".
struct AttentionSpec {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< Divides heads.
  std::int64_t head_dim = 0;
  ProjectionLayout layout = ProjectionLayout::separate;
  bool projection_bias = false, output_bias = false;
  HeadNorm head_norm = HeadNorm::none;
  NormSpec norm = {};                    ///< Of queries and keys; its name is not used.
  std::optional<std::size_t> rope = {};  ///< Index into ModelSpec::ropes.
  float scale = 0.0F;                    ///< Of q k^T; 0: 1 / sqrt(head_dim).
  float softcap = 0.0F;                  ///< c in c tanh(s / c); 0: none (Gemma 2).
  std::int64_t window = 0;               ///< Keys that a query sees, itself included; 0: all.
  bool output_gate = false;              ///< DSTAR: q's rows are per head [query D | gate D].
  std::string query = {};                ///< Or the one matrix of the other layouts.
  std::string key = {}, value = {};      ///< Of ProjectionLayout::separate.
  std::string output = {};
  std::string query_norm = {}, key_norm = {};
};

/// out(act(in x)), or out(act(gate x) * up x).
struct MlpSpec {
  std::int64_t hidden = 0;
  kernels::ActivationKind activation = kernels::ActivationKind::silu;
  bool gated = false;
  bool fused = false;  ///< gated: one matrix, rows [gate | up].
  bool bias = false;
  std::string in = {};  ///< gated: gate's, or that of the fused matrix.
  std::string up = {};
  std::string out = {};
};

/// A part of a layer between its norms: f in x + post(f(pre(x))).
struct BranchNorms {
  std::optional<NormSpec> pre = {}, post = {};
};

/// One layer: serial    x += c attn(x), then x += c mlp(x);
///            parallel  x += attn(x) + mlp(x).
struct LayerSpec {
  std::string prefix = {};  ///< "model.layers.0.": starts the names of its tensors.
  bool parallel = false;
  BranchNorms attention_norms = {}, mlp_norms = {};
  AttentionSpec attention = {};
  MlpSpec mlp = {};
};

/// True if `name` matches the shell pattern ('*', '?', '[...]').
[[nodiscard]] bool matches_shell(const std::string& pattern, const std::string& name);

/// Low-rank adapters of linear maps (AdapterBlock), which are trained in their place.
struct LoraSpec {
  std::int64_t rank = 0;  ///< 0: there are none.
  double alpha = 16.0;
  bool rslora = false;
  /// "all-linear", or shell patterns of the names of maps, or of the ends of names behind a dot.
  std::vector<std::string> targets = {};

  /// alpha / rank, with rslora alpha / sqrt(rank) (Kalajdzievski 2023).
  [[nodiscard]] float scale() const;
  /// Whether the map `module` of a layer, "model.layers.0.self_attn.q_proj", has one.
  [[nodiscard]] bool adapts(const std::string& module) const;
};

/// A model as plain data: everything that its units are built from. Tensors have the names and the
/// shapes of the files that the architecture's weights are published in.
struct ModelSpec {
  std::string architecture = {};  ///< Its name in the registry.
  std::int64_t vocab_size = 0;
  std::int64_t embedding_dim = 0;
  std::string embedding = {};    ///< "model.embed_tokens.weight".
  float embedding_scale = 1.0F;  ///< Of the embedding's output (Gemma).
  std::string positions = {};    ///< Learned positions' tensor; empty: none (GPT-2).
  std::int64_t position_rows = 0;
  std::vector<RopeSpec> ropes = {};
  std::vector<LayerSpec> layers = {};
  NormSpec final_norm = {};     ///< Its name is whole.
  std::string head = {};        ///< "lm_head.weight"; unused when tied.
  bool tie_embeddings = false;  ///< The head's matrix is the embedding's.
  float logit_softcap = 0.0F;   ///< c in c tanh(logit / c); 0: none.
  float residual_scale = 1.0F;  ///< c in x + c * branch(x).
  float z_loss_coeff = 0.0F;
  bool transposed_linears = false;  ///< Layers' matrices are [inputs, outputs] (GPT-2).
  std::int64_t max_positions = 0;   ///< Of the configuration; 0: it says nothing.
  /// The keys of a config.json that say `ropes`, in both of its dialects: a JSON object as text.
  std::string rope_keys = {};
  /// What the configuration says and no part of the function has, for people.
  std::vector<std::string> unread_keys = {};
  std::vector<std::string> dropout = {};  ///< Of its training, "attn_pdrop 0.1"; here is none.
  /// Shell patterns of parameters and units whose weights do not change (Parameter::frozen).
  std::vector<std::string> frozen = {};
  LoraSpec lora = {};  ///< With adapters all else is frozen.

  /// Whether `parameter` of `unit` is frozen.
  [[nodiscard]] bool is_frozen(const std::string& unit, const Parameter& parameter) const;

  /// The widest head of any layer.
  [[nodiscard]] std::int64_t widest_head() const;
};

/// Trainable elements: all, and without embedding and head. With tied embeddings the one matrix
/// counts as embedding, and `head` is 0. Learned positions are neither.
struct ParameterCount {
  std::int64_t total = 0;
  std::int64_t embedding = 0;
  std::int64_t head = 0;
  [[nodiscard]] std::int64_t non_embedding() const { return total - embedding - head; }
};
[[nodiscard]] ParameterCount count_parameters(const ModelSpec& spec);

/// Training FLOPs (forward + backward) of one token: 6 * (elements of all matrices used in a
/// matmul, head included) + 12 * heads * head_dim * (mean number of keys that a query sees, which
/// is (seq_len) / 2 but in a window) of every layer. Of frozen matrices 4, and below all that is
/// trained the third that the forward pass takes.
[[nodiscard]] double flops_per_token(const ModelSpec& spec, std::int64_t seq_len);

}  // namespace train::engine
