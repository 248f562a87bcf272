#pragma once

#include <cstdint>
#include <vector>

#include "configs/optimizer_section.hpp"
#include "engine/parameter.hpp"
#include "kernels/backend.hpp"

namespace train::engine {

/// One parameter as the optimizer sees it: the rows held here.
struct OptimizerSlice {
  float* weights = nullptr;
  const float* gradient = nullptr;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  std::int64_t count = 0;
};

/// The parameters of one weight-decay group and their AdamW update.
/// Ownership: borrows all memory. Threading: one owner; calls only enqueue.
class AdamwGroup {
 public:
  AdamwGroup(const kernels::KernelTable& kernels, const configs::OptimizerSection& section,
             ParameterGroup group);
  void add(const OptimizerSlice& slice);
  /// Enqueues update number `step` (from 1). Nothing changes when gate->poisoned.
  void update(kernels::Stream& stream, std::int64_t step, double lr,
              const kernels::UpdateGate* gate) const;
  [[nodiscard]] std::int64_t element_count() const;

 private:
  const kernels::KernelTable* kernels_;
  configs::OptimizerSection section_;
  double weight_decay_;
  std::vector<OptimizerSlice> slices_;
};

}  // namespace train::engine
