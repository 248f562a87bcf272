#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/blocks/block.hpp"
#include "engine/model/spec.hpp"
#include "kernels/state_space/documents.hpp"

namespace train::engine {

/// Adds a parameter of a mixer that is no linear layer. `exact`: it is read in fp32.
[[nodiscard]] ParameterPlace add_parameter(const BlockContext& context, const std::string& name,
                                           std::vector<std::int64_t> shape, Initializer init,
                                           bool exact,
                                           ParameterGroup group = ParameterGroup::no_decay);

/// Gradient of a parameter; nullptr if it is frozen.
[[nodiscard]] inline float* gradient_of(const BlockCall& call, const ParameterPlace& place) {
  return place.frozen ? nullptr : call.gradient + place.gradient;
}

/// Documents of a lane, as kernels of state spaces take them.
[[nodiscard]] kernels::DocumentRows document_rows(const Lane& lane);

/// Decoding states in `slot` of the lane's texts; none where the lane uses no cache.
[[nodiscard]] kernels::TextStates text_states(const Lane& lane, const Workspace& workspace,
                                              Workspace::Slot slot, Content content);

/// y = silu(conv(x)) of each channel along a document (kernels/state_space/causal_conv.hpp). Keeps
/// the last inputs of texts that are decoded; x and y are the caller's.
class CausalConvBlock {
 public:
  struct Options {
    std::int64_t channels = 0, taps = 0;
    bool bias = false;
    std::int64_t x_stride = 0;  ///< Elements between rows of x; those of y are adjacent.
  };

  CausalConvBlock(const BlockContext& context, const std::string& name, const Options& options);

  void forward(const BlockCall& call, ConstElements x, Elements y) const;
  /// Overwrites dx, which may be x and is laid out like it, and the gradients of the weight and the
  /// bias.
  void backward(const BlockCall& call, ConstElements x, ConstElements dy, Elements dx) const;

 private:
  [[nodiscard]] ConstElements bias(const BlockCall& call) const {
    return options_.bias ? call.weights + bias_.offset : ConstElements();
  }

  const kernels::KernelTable* kernels_;
  Workspace* workspace_;
  Options options_;
  ParameterPlace weight_, bias_;
  Workspace::Slot last_inputs_ = 0;
};

}  // namespace train::engine
