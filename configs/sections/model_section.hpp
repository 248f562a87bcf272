#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace train::configs {

// Meaning, unit and range of each member: its key in configs/fields/field_table.cpp.

/// [model.rope]: longer context of a published model.
struct RopeSection {
  std::string type = "none";
  double factor = 1.0;
};

/// [model]: exactly one of `arch`, `config` and `from` is set. `arch` comes with the dimensions (0:
/// derived by the architecture's rule); for the other two a config.json gives them. `balance` and
/// `router_bias_rate` apply to all three.
struct ModelSection {
  std::string arch;
  std::string config;
  std::string from;
  std::int64_t layers = 0;
  std::int64_t heads = 3;
  std::int64_t head_dim = 0;
  std::int64_t embedding_dim = 0;
  std::int64_t mlp_hidden = 0;
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 2;
  std::int64_t expert_hidden = 0;
  std::int64_t shared_expert_hidden = 0;
  std::string router = "softmax_normalised";
  double router_scale = 1.0;
  std::int64_t router_groups = 1;
  std::int64_t router_kept_groups = 1;
  double router_bias_rate = 0.0;
  std::vector<std::string> balance;
  std::int64_t vocab_size = 0;
  std::string init_scheme = "scaled_gpt";
  double init_std = 0.02;
  double z_loss_coeff = 1e-4;
  double norm_eps = 1e-5;
  double rope_theta = 10000.0;
  RopeSection rope = {};
  double residual_scale = 1.0;
  bool qk_norm = true;
  bool attention_output_gate = true;
  bool tie_embeddings = false;
};

}  // namespace train::configs
