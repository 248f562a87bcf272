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
#include "engine/model/spec.hpp"
#include "kernels/row_layout.hpp"

namespace train::kernels {

struct KeyValueCache;

}  // namespace train::kernels

namespace train::engine {

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
struct AttentionSpec final : BlockSpec {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  ///< Divides heads.
  std::int64_t head_dim = 0;
  ProjectionLayout layout = ProjectionLayout::separate;
  bool projection_bias = false, output_bias = false;
  HeadNorm head_norm = HeadNorm::none;
  NormSpec norm = {};                    ///< Norm of queries and keys; its name is unused.
  std::optional<std::size_t> rope = {};  ///< Index into ModelSpec::ropes.
  float scale = 0.0F;                    ///< Scale of q k^T; 0: 1 / sqrt(head_dim).
  float softcap = 0.0F;                  ///< c in c tanh(s / c); 0: none (Gemma 2).
  std::int64_t window = 0;               ///< Keys that a query sees, itself included; 0: all.
  float clip = 0.0F;  ///< Bound of queries, keys (after their norms), values; 0: none (OLMoE).
  bool output_gate = false;          ///< DSTAR: q's rows are per head [query D | gate D].
  std::string query = {};            ///< Query matrix, or the one matrix of other layouts.
  std::string key = {}, value = {};  ///< ProjectionLayout::separate only.
  std::string output = {};
  std::string query_norm = {}, key_norm = {};
  std::string sinks = {};  ///< [heads], a score more of each head's softmax (GPT-OSS); empty: none.
  bool pairs_in_gguf = false;  ///< GGUF has rows of queries and keys in rotary pairs (Llama).

  [[nodiscard]] std::unique_ptr<Block> make(const BlockContext& context,
                                            const ModelSpec& model) const override;
  [[nodiscard]] std::string_view role() const override { return "attention"; }
  [[nodiscard]] std::string_view title() const override { return "attention"; }
  [[nodiscard]] std::string sizes() const override;
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] std::string mistake() const override;
  [[nodiscard]] double score_flops(std::int64_t seq_len) const override;
  [[nodiscard]] std::vector<TensorRule> tensor_rules(const ModelSpec& model,
                                                     const BranchSpec& branch,
                                                     Dialect dialect) const override;
  [[nodiscard]] std::optional<DecodingState> decoding_state(CacheForm form) const override;
  [[nodiscard]] std::int64_t widest_head() const override { return head_dim; }
};

/// Causal attention with grouped keys and values, optional norms of queries and keys, rotary
/// positions, a window, a cap of the scores and an output gate:
///   output(softmax(cap(scale rope(norm(q)) rope(norm(k))^T)) v * sigmoid(gate))
/// With a clip norm(q), norm(k) and v are clamped to [-clip, clip].
///
/// All projections of a row lie side by side in one buffer, so the forms of ProjectionLayout differ
/// in their weights and in where a head's columns begin.
class AttentionBlock final : public Block {
 public:
  /// `model`: its ropes and dimensions; must outlive this.
  AttentionBlock(const BlockContext& context, const AttentionSpec& spec, const ModelSpec& model);

  void forward_kept(const BlockCall& call, ConstElements x) override;
  void forward_output(const BlockCall& call, Elements branch) override;
  void backward(const BlockCall& call, ConstElements x, ConstElements dbranch,
                Elements dx) override;

 private:
  /// Position of a head's row in a buffer.
  struct View {
    std::int64_t column = 0;
    kernels::RowLayout layout;
    std::int64_t heads = 0;
  };

  [[nodiscard]] const float* sinks(const BlockCall& call) const;
  void add_projections(const BlockContext& context);
  void add_norms(const BlockContext& context);
  void reserve(const BlockContext& context);
  /// True if the norms' kernel also applies rope; only by a row's place in its lane.
  [[nodiscard]] bool norm_rotates(const BlockCall& call) const;
  void rotate(const BlockCall& call, Elements base, const View& view, bool inverse) const;
  [[nodiscard]] kernels::RowRotation rotation(const BlockCall& call) const;
  void normalise(const BlockCall& call) const;
  void clip(const BlockCall& call) const;
  /// Clears the gradient of clipped elements. Writes over rotated().
  void clip_backward(const BlockCall& call, Elements dprojection) const;
  void normalise_and_rotate(const BlockCall& call);
  void attend(const BlockCall& call) const;
  /// Params of attention over a lane, forward and backward, but for what one of them alone has.
  template <class Params>
  [[nodiscard]] Params lane_params(const BlockCall& call) const;
  void attend_to_lane(const BlockCall& call) const;
  [[nodiscard]] kernels::KeyValueCache cache() const;
  void keep_keys(const BlockCall& call) const;
  void attend_cached(const BlockCall& call) const;
  void attend_backward(const BlockCall& call, ConstElements dattended) const;
  void normalise_backward(const BlockCall& call, Elements dprojection) const;
  void project_backward(const BlockCall& call, ConstElements x, ConstElements dprojection,
                        Elements dx) const;
  [[nodiscard]] ConstElements head_output() const;
  [[nodiscard]] View rotated_query() const;
  [[nodiscard]] View rotated_key() const;
  [[nodiscard]] Elements rotated() const;
  [[nodiscard]] std::int64_t rotated_width() const;
  /// Values as attention reads them: in values(), by values_view().
  [[nodiscard]] View values_view() const;
  [[nodiscard]] Elements values() const;
  [[nodiscard]] bool clips() const { return spec_.clip > 0.0F; }
  [[nodiscard]] bool has_norms() const { return spec_.head_norm != HeadNorm::none; }
  /// Row layout of a norm: a row is one head, or all heads.
  [[nodiscard]] kernels::RowLayout norm_layout(const View& view) const;

  const kernels::KernelTable* kernels_;
  Workspace* workspace_;
  AttentionSpec spec_;
  RotationBlock rotation_;
  std::int64_t embedding_dim_;
  bool transposed_;
  /// The norms' kernel can also rotate its output: interleaved pairs of whole heads.
  bool norm_rotates_ = false;
  float scale_ = 1.0F;
  std::int64_t query_dim_ = 0, kv_dim_ = 0;  ///< Columns of all heads.
  std::int64_t width_ = 0;                   ///< Columns of the projection buffer.
  View query_, gate_, key_, value_;
  std::vector<LinearBlock> projections_;
  std::vector<std::int64_t> projection_columns_;
  /// Several in one product. The gradient of their input is a sum of theirs, and one product only
  /// where the device joins those.
  std::optional<LinearBlock> all_projections_;
  std::optional<LinearBlock> output_;
  std::optional<HeadNormBlock> query_norm_, key_norm_;
  std::optional<ParameterPlace> sinks_;
  Workspace::Slot projection_ = 0, rotated_ = 0, attended_ = 0, gated_ = 0, lse_ = 0;
  std::int64_t cache_capacity_ = 0;  ///< Slots of each text.
  Workspace::Slot cached_keys_ = 0, cached_values_ = 0;
  Workspace::Slot dprojection_ = 0, dattended_ = 0, delta_ = 0;
};

}  // namespace train::engine
