#pragma once

#include <cstdint>
#include <optional>

#include "engine/model/blocks/layer_unit.hpp"
#include "engine/model/elements.hpp"
#include "engine/model/spec.hpp"
#include "kernels/row_layout.hpp"

namespace train::engine {

/// Rotary positions of heads: one of the model's ropes, whose table all blocks share. Without one
/// nothing is rotated.
class RotationBlock {
 public:
  /// `rope`: index into ModelSpec::ropes.
  RotationBlock(const BlockContext& context, std::optional<std::size_t> rope,
                const ModelSpec& model);

  /// Before the first use in a pass: computes the table, once for the life of the workspace.
  void fill_table(const BlockCall& call) const;
  /// Rotates the first elements of `heads` heads of each row of the lane, in place; `inverse`:
  /// back.
  void apply(const BlockCall& call, Elements x, kernels::RowLayout layout, std::int64_t heads,
             bool inverse) const;
  /// The rotation for a norm's kernel, by a row's place in its lane alone.
  [[nodiscard]] kernels::RowRotation by_place(const BlockCall& call) const;
  [[nodiscard]] const std::optional<RopeSpec>& rope() const { return rope_; }

 private:
  const kernels::KernelTable* kernels_;
  Workspace* workspace_;
  std::optional<RopeSpec> rope_;
  Workspace::Slot cos_ = 0, sin_ = 0;
};

}  // namespace train::engine
