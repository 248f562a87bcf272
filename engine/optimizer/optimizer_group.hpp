#pragma once

#include <cstdint>
#include <vector>

#include "engine/optimizer/optimizer.hpp"
#include "engine/parameter.hpp"
#include "kernels/backend.hpp"

namespace train::engine {

/// The parameters of one weight-decay group, updated together.
/// Ownership: borrows all memory. Threading: one owner; calls only enqueue.
class OptimizerGroup {
 public:
  OptimizerGroup(const kernels::KernelTable& kernels, const Optimizer& optimizer,
                 ParameterGroup group);
  void add(const OptimizerSlice& slice);

  /// What differs from step to step.
  struct Update {
    std::int64_t step = 1;  ///< From 1.
    double lr = 0.0;
    double peak_lr = 0.0;
    const kernels::UpdateGate* gate = nullptr;
    std::byte* scratch = nullptr;
    bool diagnosed = false;
  };
  /// Enqueues an update of all slices. Nothing changes when gate->poisoned.
  void update(kernels::Stream& stream, const Update& update) const;
  [[nodiscard]] std::int64_t element_count() const;

 private:
  const kernels::KernelTable* kernels_;
  const Optimizer* optimizer_;
  bool decayed_;
  std::vector<OptimizerSlice> slices_;
};

}  // namespace train::engine
