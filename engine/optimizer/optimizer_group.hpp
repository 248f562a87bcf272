#pragma once

#include <cstdint>
#include <vector>

#include "engine/lanes/lane_tree.hpp"
#include "engine/optimizer/optimizer.hpp"
#include "engine/parameter.hpp"
#include "engine/rank/exact_sum.hpp"
#include "engine/rank/host_device_buffer.hpp"
#include "kernels/backend.hpp"

namespace train::engine {

/// The parameters of one weight-decay group, updated together.
/// Ownership: borrows all memory. Threading: one owner; calls only enqueue.
class OptimizerGroup {
 public:
  OptimizerGroup(const kernels::KernelTable& kernels, const Optimizer& optimizer,
                 ParameterGroup group);
  /// Slices may share the memory of their row sums. `counted`: rows of the slice, from 0, that
  /// enter Update::sums.
  void add(const OptimizerSlice& slice, LaneRange counted = {});

  /// What differs from step to step.
  struct Update {
    std::int64_t step = 1;  ///< From 1.
    double lr = 0.0;
    double peak_lr = 0.0;
    const kernels::UpdateGuard* guard = nullptr;
    std::byte* scratch = nullptr;
    bool diagnosed = false;  ///< Make row sums.
    /// When diagnosed, written on the stream: the sum of each over all counted rows. Meaningless
    /// when guard->non-finite. nullptr: nobody asks.
    std::vector<ExactSum>* sums = nullptr;
    /// Where the slices' row sums lie; nullptr: in memory that the host reads.
    const HostDeviceBuffer* row_sums = nullptr;
  };
  /// Enqueues an update of all slices. Nothing changes when guard->non-finite.
  void update(kernels::Stream& stream, const Update& update) const;
  [[nodiscard]] std::int64_t element_count() const;

 private:
  struct Entry {
    OptimizerSlice slice;
    LaneRange counted;
  };
  void add_up(kernels::Stream& stream, const Entry& entry, const Update& update) const;

  const kernels::KernelTable* kernels_;
  const Optimizer* optimizer_;
  bool decayed_;
  std::vector<Entry> entries_;
};

}  // namespace train::engine
