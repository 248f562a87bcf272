#pragma once

#include <cstdint>
#include <string>

#include "engine/model/blocks/layer_unit.hpp"
#include "engine/model/blocks/linear_products.hpp"

namespace train::engine {

/// Low-rank adapter of a linear map: y += B u, u = s A x, with A [rank, inputs],
/// B [outputs, rank] and s the scale of LoraSpec (Hu et al. 2021,
/// https://arxiv.org/abs/2106.09685). Its parameters are named as PEFT's files have them:
/// "<module>.lora_A.weight".
///
/// Keeps nothing from the forward pass: u is computed again, at a small part of the map's cost.
class AdapterBlock {
 public:
  /// REQUIRES: context.lora.adapts() the map called `name`.
  AdapterBlock(const BlockContext& context, const std::string& name, std::int64_t inputs,
               std::int64_t outputs);

  void forward(const BlockCall& call, ConstElements x, Elements y, std::int64_t y_stride) const;
  /// Starts a backward pass: du = s dy B, which the other two read.
  void begin_backward(const BlockCall& call, ConstElements dy, std::int64_t dy_stride) const;
  /// dx += du A.
  void backward_input(const BlockCall& call, Elements dx) const;
  /// dA = du^T x and dB = dy^T u, overwritten; neither of what is frozen.
  void backward_weight(const BlockCall& call, ConstElements dy, std::int64_t dy_stride,
                       ConstElements x) const;
  /// y += u B_part^T, and y += s x B_part A: what it adds to LinearBlock's of those names.
  void part_forward(const BlockCall& call, const LinearPart& part, ConstElements x,
                    Elements y) const;
  void part_input(const BlockCall& call, const LinearPart& part, ConstElements x, Elements y) const;

 private:
  /// u, in scratch.
  Elements inner(const BlockCall& call, ConstElements x) const { return inner(call, x, inputs_); }
  Elements inner(const BlockCall& call, ConstElements x, std::int64_t x_stride) const;
  void scale(const BlockCall& call, Elements values) const;
  [[nodiscard]] LinearSizes sizes_a(const BlockCall& call) const;
  [[nodiscard]] LinearSizes sizes_b(const BlockCall& call) const;

  const kernels::KernelTable* kernels_;
  Workspace* workspace_;
  std::int64_t inputs_, outputs_, rank_;
  float scale_;
  ParameterPlace a_, b_;
  Workspace::Slot inner_, gradient_;
};

}  // namespace train::engine
