#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/blocks/block.hpp"
#include "engine/model/blocks/linear_and_norm.hpp"
#include "engine/model/blocks/rotation_block.hpp"
#include "engine/model/blocks/state_space/mamba_scan.hpp"
#include "engine/model/blocks/state_space/mamba_spec.hpp"
#include "engine/model/spec.hpp"
#include "kernels/attention/attention_cached.hpp"
#include "kernels/row_layout.hpp"

namespace train::engine {

/// Heads of attention and a scan side by side on one input (Hymba: Dong et al. 2024,
/// https://arxiv.org/abs/2411.13676):
///   [q | k | v | u | z] = in x,
///   out((norm(attention(rope q, rope k, v)) + norm'(scan of [u | z])) / 2),
/// the attention over ModelSpec::prefix and the window, the scan as MambaSpec has it between its
/// maps. A layer may read keys, after rope, and values of an earlier one: its map in is [q | u |
/// z].
struct HybridHeadsSpec final : BlockSpec {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< Divides heads.
  std::int64_t head_dim = 0;
  std::int64_t value_dim = 0;  ///< heads of it make the scan's channels.
  std::optional<std::size_t> rope = {};
  std::int64_t window = 0;  ///< Keys that a query sees, itself included; 0: all.
  std::int64_t prefix = 0;  ///< Keys that stay visible beside the window.
  MambaSpec scan = {};      ///< Its maps in and out are this block's.
  NormSpec attention_norm = {}, scan_norm = {};
  std::string keys_of = {};  ///< Layer prefix of the layer that it reads keys of; empty: its own.
  std::int64_t readers = 0;  ///< Later layers that read its keys.

  [[nodiscard]] bool makes_keys() const { return keys_of.empty(); }

  [[nodiscard]] std::unique_ptr<Block> make(const BlockContext& context,
                                            const ModelSpec& model) const override;
  [[nodiscard]] std::string_view role() const override { return "attention"; }
  [[nodiscard]] std::string_view title() const override { return "attention beside a scan"; }
  [[nodiscard]] std::string sizes() const override;
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] std::string mistake() const override;
  [[nodiscard]] double score_flops(std::int64_t seq_len) const override;
  [[nodiscard]] std::optional<DecodingState> decoding_state(CacheForm form) const override;
  [[nodiscard]] std::int64_t widest_head() const override { return value_dim; }
};

/// HybridHeadsSpec's form. Keeps what the map in gives, keys and values side by side, and the
/// results of attention and scan. Keys that other layers read are kept whatever is computed again;
/// their gradients are summed from the last layer that reads them to the one that makes them.
class HybridHeadsBlock final : public Block {
 public:
  HybridHeadsBlock(const BlockContext& context, const HybridHeadsSpec& spec,
                   const ModelSpec& model);

  void forward_kept(const BlockCall& call, ConstElements x) override;
  void forward_output(const BlockCall& call, Elements branch) override;
  void backward(const BlockCall& call, ConstElements x, ConstElements dbranch,
                Elements dx) override;

 private:
  [[nodiscard]] std::int64_t inner() const { return spec_.scan.inner; }
  [[nodiscard]] std::int64_t key_dim() const { return spec_.kv_heads * spec_.head_dim; }
  [[nodiscard]] std::int64_t query_dim() const { return spec_.heads * spec_.head_dim; }
  /// Columns of keys and values.
  [[nodiscard]] std::int64_t kv_dim() const { return key_dim() + spec_.kv_heads * spec_.value_dim; }
  [[nodiscard]] kernels::RowLayout query_layout() const { return {width_, spec_.head_dim}; }
  [[nodiscard]] kernels::RowLayout key_layout() const { return {kv_dim(), spec_.head_dim}; }
  [[nodiscard]] kernels::RowLayout value_layout() const { return {kv_dim(), spec_.value_dim}; }
  [[nodiscard]] kernels::RowLayout output_layout() const { return {inner(), spec_.value_dim}; }
  [[nodiscard]] Elements keys() const { return workspace_->at(keys_); }
  [[nodiscard]] Elements values() const { return keys() + key_dim(); }

  void reserve(const BlockContext& context);
  void reserve_keys(const BlockContext& context);
  [[nodiscard]] kernels::KeyValueCache cache() const;
  /// Rotates queries, and the keys that the layer makes, which it copies out of the projection.
  void rotate(const BlockCall& call) const;
  void attend(const BlockCall& call) const;
  /// Params of attention over a lane, forward and backward, but for what one of them alone has.
  template <class Params>
  [[nodiscard]] Params lane_params(const BlockCall& call) const;
  void attend_to_lane(const BlockCall& call) const;
  void attend_cached(const BlockCall& call) const;
  /// The mean of both normed results, the input of the map out.
  void mix(const BlockCall& call) const;
  void attend_backward(const BlockCall& call, ConstElements dattended) const;
  /// Adds this layer's gradient of keys and values to that of the later layers that read them, or
  /// gives the map in the whole of it.
  void hand_on_keys(const BlockCall& call) const;
  /// No layer has added to the gradient of keys that others read: not all of them need run.
  void clear_read_gradient(const BlockCall& call) const;
  void add(const BlockCall& call, ConstElements x, ConstElements y, Elements out,
           std::int64_t width) const;
  void halve(const BlockCall& call, Elements x) const;

  const kernels::KernelTable* kernels_;
  Workspace* workspace_;
  HybridHeadsSpec spec_;
  RotationBlock rotation_;
  std::int64_t embedding_dim_;
  std::int64_t width_;  ///< Columns of the projection.
  float scale_;
  std::optional<LinearBlock> in_, out_;
  std::optional<MambaScan> scan_;
  std::optional<HeadNormBlock> attention_norm_, scan_norm_;
  Workspace::Slot projection_ = 0, keys_ = 0, attended_ = 0, lse_ = 0, scanned_ = 0;
  Workspace::Slot mixed_ = 0, normed_ = 0;
  std::int64_t cache_capacity_ = 0;
  Workspace::Slot cached_keys_ = 0, cached_values_ = 0;
  Workspace::Slot dprojection_ = 0, dmixed_ = 0, dattended_ = 0, delta_ = 0;
  Workspace::Slot dkeys_ = 0, read_gradient_ = 0;
};

}  // namespace train::engine
