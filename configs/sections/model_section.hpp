#pragma once

#include <cstdint>
#include <string>

namespace train::configs {

/// [model]: one of `arch` with dimensions (0: derived by the architecture's rule), `config` and
/// `from`. The dimensions belong to `arch`; the other two have a config.json.
struct ModelSection {
  std::string arch;                ///< "enoki" or "dstar_qwen3" ("qwen3" is its old name).
  std::string config;              ///< Name of a shipped shape, or path of a config.json.
  std::string from;                ///< Directory of a model: its config.json and its weights.
  std::int64_t layers = 0;         ///< Transformer blocks. Rule: enoki 3*heads/4, qwen3 2*heads.
  std::int64_t heads = 3;          ///< Attention heads.
  std::int64_t head_dim = 0;       ///< Width of a head, even. Rule: enoki 64, qwen3 128.
  std::int64_t embedding_dim = 0;  ///< Width of the residual stream. Rule: heads * head_dim.
  std::int64_t mlp_hidden = 0;     ///< Width of the MLP. Rule: enoki 4n, qwen3 3n.
  std::int64_t vocab_size =
      0;  ///< Rows of embedding and head. Rule: meta.json's, padded to 64; else 50304.
  std::string init_scheme = "scaled_gpt";  ///< "scaled_gpt", "karpathy_gpt2" or "standard".
  double init_std = 0.02;                  ///< Standard deviation of "karpathy_gpt2".
  double z_loss_coeff = 1e-4;              ///< Weight of mean(logsumexp^2) in the loss.
  double norm_eps = 1e-5;                  ///< Epsilon of every norm.
  double rope_theta = 10000.0;             ///< Base of the rotary frequencies.
  double residual_scale = 1.0;             ///< c in x + c * branch(x).
  bool qk_norm = true;                     ///< Normalise queries and keys per head before RoPE.
  bool attention_output_gate = true;       ///< qwen3: sigmoid gate on the attention output.
  bool tie_embeddings = false;  ///< The head shares the embedding's matrix, which is not decayed.
};

}  // namespace train::configs
