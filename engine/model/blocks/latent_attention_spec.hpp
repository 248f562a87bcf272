#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/blocks/block.hpp"
#include "engine/model/spec.hpp"

namespace train::engine {

/// Multi-head latent attention (DeepSeek-AI 2024, https://arxiv.org/abs/2405.04434). Queries are
/// projected through a narrow latent; keys and values through another, c, shared by all heads:
///   q = W_qb norm(W_qa x), or W_q x;  [c | k_r] = W_kva x;  [k_n | v] of each head = W_kvb norm(c)
///   key of head h = [k_n,h | rope(k_r)];  query = [q_n,h | rope(q_r,h)]
///   output(softmax(scale q k^T) v)
/// Names are below the layer's prefix, without ".weight".
struct LatentAttentionSpec final : BlockSpec {
  std::int64_t heads = 0;
  std::int64_t query_rank = 0;  ///< Width of the queries' latent; 0: there is none.
  std::int64_t key_rank = 0;    ///< Width of the latent of keys and values.
  std::int64_t plain_dim = 0;   ///< Elements of a key without rotary position.
  std::int64_t rope_dim = 0;    ///< Elements of a key with it, at its end.
  std::int64_t value_dim = 0;
  float latent_eps = 1e-6F;              ///< Epsilon of the latents' RMS norms.
  bool bias = false;                     ///< Adds a bias to W_qa, W_kva and the output.
  std::optional<std::size_t> rope = {};  ///< Index into ModelSpec::ropes, of rope_dim elements.
  float scale = 0.0F;                    ///< Factor of q k^T; 0: 1 / sqrt(plain_dim + rope_dim).
  std::string query_in = {}, query_norm = {}, query = {};  ///< The first two: with query_rank.
  std::string key_in = {}, key_norm = {}, key_value = {};
  std::string output = {};

  [[nodiscard]] std::unique_ptr<Block> make(const BlockContext& context,
                                            const ModelSpec& model) const override;
  [[nodiscard]] std::string_view role() const override { return "attention"; }
  [[nodiscard]] std::string_view title() const override { return "latent attention"; }
  [[nodiscard]] std::string sizes() const override;
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] std::string mistake() const override;
  [[nodiscard]] double score_flops(std::int64_t seq_len) const override;
  [[nodiscard]] std::vector<TensorRule> tensor_rules(const ModelSpec& model,
                                                     const BranchSpec& branch,
                                                     Dialect dialect) const override;
  [[nodiscard]] std::optional<DecodingState> decoding_state(CacheForm form) const override;
  [[nodiscard]] std::int64_t widest_head() const override {
    return std::max(plain_dim + rope_dim, value_dim);
  }
};

}  // namespace train::engine
