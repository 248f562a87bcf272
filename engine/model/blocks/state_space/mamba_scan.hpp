#pragma once

#include <cstdint>
#include <optional>

#include "engine/model/blocks/block.hpp"
#include "engine/model/blocks/linear_and_norm.hpp"
#include "engine/model/blocks/state_space/causal_conv_block.hpp"
#include "engine/model/blocks/state_space/mamba_spec.hpp"
#include "kernels/state_space/selective_scan.hpp"

namespace train::engine {

/// MambaSpec's function between its maps in and out: what [u | z] becomes. Keeps the maps'
/// results, and of the states one for every kScanChunk rows, from which the backward pass walks
/// again; as decoding state of a text the last inputs of the convolution and the states.
class MambaScan {
 public:
  /// Where u and z lie, and in the backward pass their gradients: slots of the owner, of rows of
  /// `stride` elements. Both may be one.
  struct Inputs {
    Workspace::Slot slot = 0, gradient = 0;
    std::int64_t channels = 0, gate = 0;  ///< First columns of u and z.
    std::int64_t stride = 0;
  };
  /// Adds rates and skips; add_maps() the other parameters, after the owner's map in.
  MambaScan(const BlockContext& context, const MambaSpec& spec, const Inputs& inputs);
  void add_maps(const BlockContext& context);

  /// gated = scan(...) silu(z), [rows, inner].
  void forward(const BlockCall& call, Elements gated) const;
  /// Starts a backward pass: makes again what was not kept.
  void again_where_lean(const BlockCall& call) const;
  /// `gated` holds the gradient of forward()'s result, and then that result.
  void backward_scan(const BlockCall& call, Elements gated) const;
  /// Ends it: writes the gradient of u, as backward_scan() that of z.
  void backward_inputs(const BlockCall& call) const;

 private:
  /// A norm of columns of the selection, with or without weights.
  struct Norm {
    std::optional<HeadNormBlock> weighted;
    Workspace::Slot rstd = 0;
    std::int64_t cols = 0;
  };

  void add_norms(const BlockContext& context);
  void reserve(const BlockContext& context);
  [[nodiscard]] std::int64_t selected() const { return spec_.step_rank + 2 * spec_.states; }
  [[nodiscard]] std::int64_t bc_width() const { return 2 * spec_.states; }
  [[nodiscard]] Elements channels() const {
    return workspace_->at(inputs_.slot) + inputs_.channels;
  }
  [[nodiscard]] Elements gate() const { return workspace_->at(inputs_.slot) + inputs_.gate; }
  /// The gradient of what lies in `column`.
  [[nodiscard]] Elements gradient_at(std::int64_t column) const {
    return workspace_->at(inputs_.gradient) + column;
  }
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
  void scan(const BlockCall& call, Elements gated) const;
  void scan_backward(const BlockCall& call, Elements gated, Elements dbc) const;

  const kernels::KernelTable* kernels_;
  Workspace* workspace_;
  MambaSpec spec_;
  Inputs inputs_;
  bool keeps_states_;  ///< For a backward pass.
  std::optional<LinearBlock> select_, step_;
  std::optional<CausalConvBlock> conv_;
  ParameterPlace rates_, skip_, step_bias_;
  Norm step_norm_, b_norm_, c_norm_;
  Workspace::Slot no_weights_ = 0;  ///< Zeros: 1 + w of norms without weights.
  Workspace::Slot u_ = 0, raw_step_ = 0, raw_bc_ = 0, step_input_ = 0, bc_ = 0;
  Workspace::Slot delta_ = 0, kept_ = 0, selection_ = 0;
  Workspace::Slot last_states_ = 0;
  Workspace::Slot du_ = 0, dbc_ = 0, dstep_ = 0, partial_ = 0;
};

}  // namespace train::engine
