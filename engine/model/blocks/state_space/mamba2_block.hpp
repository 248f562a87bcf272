#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/model/blocks/block.hpp"
#include "engine/model/blocks/linear_and_norm.hpp"
#include "engine/model/blocks/state_space/causal_conv_block.hpp"
#include "engine/model/blocks/state_space/scan_spec.hpp"
#include "engine/model/spec.hpp"
#include "kernels/state_space/head_scan.hpp"

namespace train::engine {

/// Mamba-2's mixer (Dao & Gu 2024, https://arxiv.org/abs/2405.21060):
///   [z | x B C | steps] = in x,  [x | B | C] = silu(conv(x B C)),
///   out(norm(scan(x, steps, B, C) silu(z))),
/// as kernels/state_space has convolution, scan of heads and gated norm.
struct Mamba2Spec final : ScanSpec {
  std::int64_t heads = 0, width = 0;  ///< Channels: heads of that width.
  std::int64_t groups = 1;            ///< Heads of a group share B and C, and a norm.
  std::int64_t states = 128;          ///< State size of each channel.
  float norm_eps = 1e-5F;
  float least_step = 0.0F, most_step = std::numeric_limits<float>::infinity();
  std::string norm = "mixer.norm";
  std::string step_bias = "mixer.dt_bias";  ///< The whole name.

  [[nodiscard]] std::int64_t inner() const { return heads * width; }
  /// Columns of x, B and C.
  [[nodiscard]] std::int64_t conv_width() const { return inner() + 2 * groups * states; }

  [[nodiscard]] std::unique_ptr<Block> make(const BlockContext& context,
                                            const ModelSpec& model) const override;
  [[nodiscard]] std::string_view title() const override { return "Mamba-2"; }
  [[nodiscard]] std::string sizes() const override;
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] std::string mistake() const override;
  [[nodiscard]] double score_flops(std::int64_t seq_len) const override;
  [[nodiscard]] std::vector<TensorRule> tensor_rules(const ModelSpec& model,
                                                     const BranchSpec& branch,
                                                     Dialect dialect) const override;
};

/// Mamba2Spec's form. Keeps the projection and what the scan gives, and of the states one for every
/// kHeadChunk rows, from which the backward pass walks again; as decoding state of a text the last
/// inputs of the convolution and the states.
class Mamba2Block final : public Block {
 public:
  Mamba2Block(const BlockContext& context, const Mamba2Spec& spec, const ModelSpec& model);

  void forward_kept(const BlockCall& call, ConstElements x) override;
  void forward_output(const BlockCall& call, Elements branch) override;
  void backward(const BlockCall& call, ConstElements x, ConstElements dbranch,
                Elements dx) override;

 private:
  void add_parameters(const BlockContext& context);
  void reserve(const BlockContext& context);
  /// Columns of the projection: z, what is convolved, steps.
  [[nodiscard]] std::int64_t projected() const {
    return spec_.inner() + spec_.conv_width() + spec_.heads;
  }
  [[nodiscard]] Elements gates() const { return workspace_->at(projected_); }
  [[nodiscard]] Elements conv_inputs() const { return gates() + spec_.inner(); }
  [[nodiscard]] Elements steps() const { return conv_inputs() + spec_.conv_width(); }
  [[nodiscard]] kernels::HeadScanInputs scan_inputs(const BlockCall& call) const;
  void convolve(const BlockCall& call) const;
  void normalise(const BlockCall& call) const;
  void normalise_backward(const BlockCall& call) const;
  void scan_backward(const BlockCall& call) const;

  const kernels::KernelTable* kernels_;
  Workspace* workspace_;
  Mamba2Spec spec_;
  std::int64_t embedding_dim_;
  bool keeps_states_;  ///< For a backward pass.
  std::optional<LinearBlock> in_, out_;
  std::optional<CausalConvBlock> conv_;
  ParameterPlace rates_, skip_, step_bias_, norm_;
  Workspace::Slot projected_ = 0, convolved_ = 0, scanned_ = 0, kept_ = 0, rstd_ = 0, normed_ = 0;
  Workspace::Slot last_states_ = 0;
  Workspace::Slot dconvolved_ = 0, partial_ = 0;
};

}  // namespace train::engine
