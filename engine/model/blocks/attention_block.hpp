#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/model/blocks/layer_unit.hpp"
#include "engine/model/blocks/linear_and_norm.hpp"

namespace train::engine {

/// How one attention block differs from another.
struct AttentionOptions {
  std::int64_t embedding_dim = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  kernels::NormKind norm = kernels::NormKind::layer;  ///< Of queries and keys.
  float norm_eps = 1e-5F;
  double rope_theta = 10000.0;
  bool qk_norm = true;
  /// sigmoid(gate) on the output; q_proj's rows are then per head [query D | gate D].
  /// REQUIRES: !fused_projection.
  bool output_gate = false;
  /// One c_attn with rows [Q | K | V] and c_proj, or q_proj, k_proj, v_proj and o_proj.
  bool fused_projection = true;
};

/// Causal multi-head attention with rotary positions (interleaved pairs), optional norms of queries
/// and keys before the rotation, optional output gate:
///   o_proj(softmax(rope(norm(q)) rope(norm(k))^T / sqrt(D)) v * sigmoid(gate))
///
/// All projections of a row lie side by side in one buffer, so the fused and the separate form
/// differ in their weights alone.
class AttentionBlock {
 public:
  AttentionBlock(const BlockContext& context, const AttentionOptions& options);

  /// x: [rows, embedding_dim]. Writes the branch (before the residual factor) to `branch`.
  void forward(const BlockCall& call, ConstElements x, Elements branch);
  /// forward() in two parts: all that the backward pass needs, and from that the branch.
  void forward_kept(const BlockCall& call, ConstElements x);
  void forward_output(const BlockCall& call, Elements branch) const;
  /// dbranch, dx: [rows, embedding_dim]; dx is overwritten. x as in forward().
  void backward(const BlockCall& call, ConstElements x, ConstElements dbranch, Elements dx);

 private:
  /// Where a head's row starts in a buffer.
  struct View {
    std::int64_t column = 0;
    kernels::RowLayout layout;
  };

  void add_projections(const BlockContext& context);
  void reserve(const BlockContext& context);
  void rotate(const BlockCall& call, Elements base, const View& view, bool inverse) const;
  [[nodiscard]] kernels::RowRotation rotation(const BlockCall& call) const;
  void normalise_and_rotate(const BlockCall& call);
  void attend(const BlockCall& call) const;
  void attend_backward(const BlockCall& call, ConstElements dattended) const;
  [[nodiscard]] ConstElements head_output() const;
  [[nodiscard]] View rotated_query() const;
  [[nodiscard]] View rotated_key() const;
  [[nodiscard]] Elements rotated() const;

  const kernels::KernelTable* kernels_;
  Workspace* workspace_;
  AttentionOptions options_;
  std::int64_t width_ = 0;  ///< Columns of the projection buffer.
  View query_, gate_, key_, value_;
  std::vector<LinearBlock> projections_;
  std::vector<std::int64_t> projection_columns_;
  std::optional<LinearBlock> output_;
  std::optional<HeadNormBlock> query_norm_, key_norm_;
  Workspace::Slot projection_ = 0, rotated_ = 0, attended_ = 0, gated_ = 0, lse_ = 0;
  Workspace::Slot cos_ = 0, sin_ = 0;
  Workspace::Slot dprojection_ = 0, dattended_ = 0, delta_ = 0;
};

}  // namespace train::engine
