#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/blocks/block.hpp"
#include "engine/model/blocks/linear_and_norm.hpp"
#include "engine/model/blocks/state_space/causal_conv_block.hpp"
#include "engine/model/spec.hpp"
#include "kernels/state_space/selective_scan.hpp"

namespace train::engine {

/// Norms of what a scan is given: none (Mamba), RMS norms without weights (FalconMamba), with them.
enum class ScanNorms : std::uint8_t { none, plain, weighted };

/// Mamba's mixer (Gu & Dao 2023, https://arxiv.org/abs/2312.00752):
///   [u | z] = in x,  u = silu(conv(u)),  [r | B | C] = norms(select u),
///   out(scan(u, step r, B, C) silu(z)),
/// as kernels/state_space has convolution and scan.
struct MambaSpec final : BlockSpec {
  std::int64_t inner = 0;      ///< Channels.
  std::int64_t states = 16;    ///< State size of each channel.
  std::int64_t step_rank = 0;  ///< Width of r.
  std::int64_t taps = 4;       ///< Width of the convolution.
  bool bias = false;           ///< Adds one to the maps in and out.
  bool conv_bias = true;
  ScanNorms norms = ScanNorms::none;
  float norm_eps = 1e-6F;
  Initializer step_init = {}, step_bias_init = Initializer::step(1e-3, 0.1, 1e-4);
  std::string in = "mixer.in_proj", conv = "mixer.conv1d", select = "mixer.x_proj";
  std::string step = "mixer.dt_proj", out = "mixer.out_proj";
  std::string rates = "mixer.A_log", skip = "mixer.D";   ///< Whole names.
  std::string step_norm = {}, b_norm = {}, c_norm = {};  ///< Names of weighted norms.

  [[nodiscard]] std::unique_ptr<Block> make(const BlockContext& context,
                                            const ModelSpec& model) const override;
  [[nodiscard]] std::string_view role() const override { return "attention"; }
  [[nodiscard]] std::string_view title() const override { return "Mamba"; }
  [[nodiscard]] std::string sizes() const override;
  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] std::string mistake() const override;
  [[nodiscard]] double score_flops(std::int64_t seq_len) const override;
  [[nodiscard]] std::vector<TensorRule> tensor_rules(const ModelSpec& model,
                                                     const BranchSpec& branch,
                                                     Dialect dialect) const override;
};

/// MambaSpec's form. Keeps the maps' results, and of the states one for every kScanChunk rows, from
/// which the backward pass walks again; as decoding state of a text the last inputs of the
/// convolution and the states.
class MambaBlock final : public Block {
 public:
  MambaBlock(const BlockContext& context, const MambaSpec& spec, const ModelSpec& model);

  void forward_kept(const BlockCall& call, ConstElements x) override;
  void forward_output(const BlockCall& call, Elements branch) override;
  void backward(const BlockCall& call, ConstElements x, ConstElements dbranch,
                Elements dx) override;

 private:
  /// A norm of columns of the selection, with or without weights.
  struct Norm {
    std::optional<HeadNormBlock> weighted;
    Workspace::Slot rstd = 0;
    std::int64_t cols = 0;
  };

  void add_parameters(const BlockContext& context);
  void add_norms(const BlockContext& context);
  void reserve(const BlockContext& context);
  [[nodiscard]] std::int64_t selected() const { return spec_.step_rank + 2 * spec_.states; }
  [[nodiscard]] std::int64_t bc_width() const { return 2 * spec_.states; }
  [[nodiscard]] Elements gate() const { return workspace_->at(inputs_) + spec_.inner; }
  [[nodiscard]] kernels::ScanInputs scan_inputs(const BlockCall& call) const;

  void normalise(const BlockCall& call, const Norm& norm, ConstElements x, Elements y,
                 std::int64_t stride) const;
  void normalise_backward(const BlockCall& call, const Norm& norm, ConstElements x, Elements dy,
                          std::int64_t stride) const;
  void convolve(const BlockCall& call) const;
  void select(const BlockCall& call) const;
  /// r, B and C as the scan reads them, from what the selection gave.
  void normalise_selection(const BlockCall& call) const;
  void selection_backward(const BlockCall& call, Elements dbc) const;
  void scan(const BlockCall& call) const;
  void scan_backward(const BlockCall& call, Elements dbc) const;

  const kernels::KernelTable* kernels_;
  Workspace* workspace_;
  MambaSpec spec_;
  std::int64_t embedding_dim_;
  bool keeps_states_;  ///< For a backward pass.
  std::optional<LinearBlock> in_, select_, step_, out_;
  std::optional<CausalConvBlock> conv_;
  ParameterPlace rates_, skip_, step_bias_;
  Norm step_norm_, b_norm_, c_norm_;
  Workspace::Slot no_weights_ = 0;  ///< Zeros: 1 + w of norms without weights.
  Workspace::Slot inputs_ = 0, u_ = 0, raw_step_ = 0, raw_bc_ = 0, step_input_ = 0, bc_ = 0;
  Workspace::Slot delta_ = 0, kept_ = 0, gated_ = 0, selection_ = 0;
  Workspace::Slot last_states_ = 0;
  Workspace::Slot du_ = 0, dbc_ = 0, dstep_ = 0, partial_ = 0;
};

}  // namespace train::engine
