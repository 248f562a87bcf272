#pragma once

#include <cstdint>
#include <string>

#include "engine/model/blocks/block.hpp"

namespace train::engine {

/// y = x W^T without bias; W is [outputs, inputs] as in torch. Keeps nothing: the caller owns x.
/// `y_stride`, `dy_stride`: elements between rows, so several layers can write one wide buffer.
class LinearBlock {
 public:
  LinearBlock(const BlockContext& context, const std::string& name, std::int64_t inputs,
              std::int64_t outputs, InitKind init);

  [[nodiscard]] std::int64_t outputs() const { return outputs_; }

  void forward(const BlockCall& call, ConstElements x, Elements y, std::int64_t y_stride) const;
  /// dx (+)= dy W.
  void backward_input(const BlockCall& call, ConstElements dy, std::int64_t dy_stride, Elements dx,
                      bool accumulate = false) const;
  /// dW = dy^T x, overwritten.
  void backward_weight(const BlockCall& call, ConstElements dy, std::int64_t dy_stride,
                       ConstElements x) const;

 private:
  const kernels::KernelTable* kernels_;
  std::int64_t inputs_;
  std::int64_t outputs_;
  std::int64_t weight_;  ///< Offset.
};

}  // namespace train::engine
