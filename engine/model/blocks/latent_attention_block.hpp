#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/model/blocks/block.hpp"
#include "engine/model/blocks/latent_attention_spec.hpp"
#include "engine/model/blocks/linear_and_norm.hpp"
#include "engine/model/blocks/rotation_block.hpp"
#include "kernels/row_layout.hpp"

namespace train::kernels {

struct KeyValueCache;
struct LatentCache;

}  // namespace train::kernels

namespace train::engine {

/// Computes a LatentAttentionSpec. Keeps the latents, queries, keys and values of a lane. Decoding
/// state: the keys and values of each head, which the cached kernels read with the bits of a whole
/// lane, or (CacheForm::latent) norm(c) and rope(k_r), which all heads share. With W_k,h and
/// W_v,h the rows of W_kvb for a head, a new token then attends as
///   q_n k_n = (q_n W_k,h) norm(c), and sum over keys of p v = W_v,h (sum over keys of p norm(c)):
/// the query is folded once, and the result unfolded once, instead of each key and value. Rows
/// that begin a text attend as in training.
class LatentAttentionBlock final : public Block {
 public:
  LatentAttentionBlock(const BlockContext& context, const LatentAttentionSpec& spec,
                       const ModelSpec& model);

  void forward_kept(const BlockCall& call, ConstElements x) override;
  void forward_output(const BlockCall& call, Elements branch) override;
  void backward(const BlockCall& call, ConstElements x, ConstElements dbranch,
                Elements dx) override;

 private:
  /// A latent: its norm, and slots of what the norm reads and gives.
  struct Latent {
    std::optional<LinearBlock> map;
    std::optional<HeadNormBlock> norm;
    std::int64_t dim = 0;
    Workspace::Slot input = 0, output = 0, gradient = 0;

    [[nodiscard]] kernels::RowLayout layout() const { return {dim, 0}; }
  };

  void add_queries(const BlockContext& context);
  void add_keys(const BlockContext& context);
  void reserve(const BlockContext& context);
  [[nodiscard]] std::int64_t key_dim() const { return spec_.plain_dim + spec_.rope_dim; }
  /// Columns of all heads of queries and keys, of the up-projection, and of the values.
  [[nodiscard]] std::int64_t key_width() const { return spec_.heads * key_dim(); }
  [[nodiscard]] std::int64_t up_dim() const { return spec_.plain_dim + spec_.value_dim; }
  [[nodiscard]] std::int64_t up_width() const { return spec_.heads * up_dim(); }
  [[nodiscard]] std::int64_t value_width() const { return spec_.heads * spec_.value_dim; }
  [[nodiscard]] kernels::RowLayout key_layout() const { return {key_width(), key_dim()}; }
  [[nodiscard]] kernels::RowLayout up_layout() const { return {up_width(), up_dim()}; }
  [[nodiscard]] kernels::RowLayout value_layout() const { return {value_width(), spec_.value_dim}; }

  void normalise(const BlockCall& call, const Latent& latent) const;
  void project_queries(const BlockCall& call, ConstElements x) const;
  /// Queries of all heads, from their normalised latent, or from x.
  void expand_queries(const BlockCall& call, ConstElements x) const;
  void project_keys(const BlockCall& call, ConstElements x) const;
  /// Keys and values of all heads.
  void expand(const BlockCall& call) const;
  /// Keys of all heads, of their own parts and the rotated one.
  void join_keys(const BlockCall& call) const;
  [[nodiscard]] bool keeps_latents() const { return workspace_->cache_form() == CacheForm::latent; }
  [[nodiscard]] std::int64_t latent_width() const { return spec_.key_rank + spec_.rope_dim; }
  void reserve_cache(const std::string& prefix);
  [[nodiscard]] kernels::KeyValueCache cache() const;
  [[nodiscard]] kernels::LatentCache latent_cache() const;
  /// Adds the lane's rows to the cache.
  void append(const BlockCall& call) const;
  void attend(const BlockCall& call) const;
  void attend_cached(const BlockCall& call) const;
  void attend_latents(const BlockCall& call) const;
  void attend_backward(const BlockCall& call, ConstElements dattended) const;
  void queries_backward(const BlockCall& call, ConstElements x, Elements dx) const;
  void keys_backward(const BlockCall& call, ConstElements x, Elements dx) const;

  const kernels::KernelTable* kernels_;
  Workspace* workspace_;
  LatentAttentionSpec spec_;
  std::int64_t embedding_dim_;
  float scale_ = 1.0F;
  RotationBlock rotation_;
  Latent query_latent_;  ///< Without a map: there is none.
  std::optional<LinearBlock> query_;
  Latent key_latent_;  ///< Its map gives the rotated part, too.
  std::optional<LinearBlock> key_value_;
  std::optional<LinearBlock> output_;
  Workspace::Slot queries_ = 0, key_input_ = 0, rotated_key_ = 0, keys_ = 0, up_ = 0;
  Workspace::Slot attended_ = 0, lse_ = 0;
  bool expands_again_ = false;  ///< Queries, keys and values are made again from the latents.
  std::int64_t cache_capacity_ = 0;
  Workspace::Slot cached_keys_ = 0, cached_values_ = 0;
  Workspace::Slot cached_latents_ = 0, folded_queries_ = 0, over_latents_ = 0;
  Workspace::Slot dqueries_ = 0, dkeys_ = 0, dup_ = 0, drotated_ = 0, dkey_input_ = 0;
  Workspace::Slot dattended_ = 0, delta_ = 0;
};

}  // namespace train::engine
