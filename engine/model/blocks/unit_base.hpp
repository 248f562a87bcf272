#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/blocks/block.hpp"
#include "engine/model/blocks/layer_unit.hpp"

namespace train::engine {

/// What every unit of a Model has: a name, its parameters, its output in the workspace.
class UnitBase : public LayerUnit {
 public:
  [[nodiscard]] const std::string& name() const override { return name_; }
  [[nodiscard]] const std::vector<Parameter>& parameters() const override {
    return parameters_.parameters();
  }
  [[nodiscard]] std::int64_t element_count() const override { return parameters_.element_count(); }

  void count_nonfinite_output(kernels::Stream& stream, const Lane& lane,
                              std::int64_t* nonfinite) override {
    kernels_->count_nonfinite(stream, {.x = workspace_->at(output_),
                                       .count = lane.rows() * embedding_dim_,
                                       .nonfinite = nonfinite,
                                       .dtype = workspace_->dtype()});
  }

  /// Slot of the unit's output activations, [rows, embedding_dim].
  [[nodiscard]] Workspace::Slot output() const { return output_; }

 protected:
  UnitBase(std::string name, const kernels::KernelTable& kernels, Workspace& workspace,
           std::int64_t embedding_dim)
      : name_(std::move(name)),
        kernels_(&kernels),
        workspace_(&workspace),
        embedding_dim_(embedding_dim) {}

  /// The residual stream's gradient, [rows, embedding_dim], handed from unit to unit.
  [[nodiscard]] static Workspace::Slot share_residual_gradient(Workspace& workspace,
                                                               std::int64_t embedding_dim) {
    return workspace.share_backward("residual gradient", workspace.rows() * embedding_dim);
  }

  std::string name_;
  const kernels::KernelTable* kernels_;
  Workspace* workspace_;
  std::int64_t embedding_dim_;
  ParameterList parameters_;
  Workspace::Slot output_ = 0;
};

}  // namespace train::engine
