#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "engine/model/initial_weights.hpp"
#include "engine/optimizer/optimizer.hpp"
#include "engine/rank/plan/rank_layout.hpp"
#include "engine/state_view.hpp"
#include "kernels/device/buffer.hpp"

namespace train::kernels {

struct KernelTable;

}  // namespace train::kernels

namespace train::engine {

/// Initial weights that cannot be read; caught where an engine is made.
class WeightsUnreadable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// State of one group on a rank between steps: fp32 masters and optimizer state of the trained
/// rows of the rank's state part, and weights for the layers: whole where they are resident, else
/// the shard that gathers send.
///
/// With fp32 compute the masters are those weights. With bf16 compute the weights are masters
/// rounded to bf16: two bytes each in the shard, and whole ones too where the kernels know bf16,
/// else fp32 values. Frozen rows have those weights alone.
/// Ownership: owns its memory, borrows the layout. Threading: one owner.
class GroupState {
 public:
  /// `group`, `layout` and `optimizer` must outlive this.
  GroupState(const kernels::KernelTable& kernels, const ShardGroup& group,
             const GroupLayout& layout, const Optimizer& optimizer, ComputeWeights compute,
             Offload offload);

  /// Weights from the seed; the optimizer's state is zero. Blocking; on several threads.
  void initialise(const ModelSpec& model, const InitOptions& options);

  /// A trained row that this rank keeps, REQUIRES: it is in the state part.
  [[nodiscard]] float* master(std::size_t parameter, std::int64_t row) const;
  /// The row in bf16, where the kernels know bf16 and such a copy is kept; else nullptr.
  [[nodiscard]] std::uint16_t* rounded(std::size_t parameter, std::int64_t row) const;
  /// The most exact values of a row that this rank keeps, trained or frozen.
  [[nodiscard]] Elements weight(std::size_t parameter, std::int64_t row) const;
  /// Rows of the parameter's optimizer state tensors, in the optimizer's order.
  [[nodiscard]] std::array<float*, kMostStates> states(std::size_t parameter,
                                                       std::int64_t row) const;

  /// Enqueues that `out`, flat, becomes the bf16 weights of the whole group. REQUIRES:
  /// GroupLayout::made.
  void make_weights(kernels::Stream& stream, std::uint16_t* out) const;
  /// Compute weights of the whole group, flat; nullptr unless they are resident, and not made.
  [[nodiscard]] Elements whole() const;
  /// Compute weights of the whole group as fp32, where memory holds them as fp32.
  [[nodiscard]] float* whole_floats() const { return whole_.as<float>(); }
  /// The packed rows as gathers send them: fp32 or bf16.
  [[nodiscard]] const std::byte* shard() const;

  /// Enqueues what makes compute weights of masters; nothing with fp32 compute. `rounding`: scratch
  /// of RankLayout::rounding_elements() elements. `is_rounded`: an update has written rounded().
  void finalize(kernels::Stream& stream, const kernels::Buffer& rounding,
                bool is_rounded = false) const;
  /// Enqueues the rounding of all whole compute weights, also of rows whose masters are elsewhere.
  void round_whole(kernels::Stream& stream, const kernels::Buffer& rounding) const;

  /// Appends views of the rows of `part` (weights and, if trained, optimizer state), which lies in
  /// the state part.
  void append_views(const Part& part, std::vector<StateView>& views) const;
  /// Appends views of resident compute weights of which this rank keeps no masters.
  void append_foreign_views(std::vector<StateView>& views) const;
  /// Appends views of no row, of tensors of which nothing is kept here: they are the model's too.
  void append_empty_views(std::vector<StateView>& views) const;

  [[nodiscard]] std::size_t weights_bytes() const;
  [[nodiscard]] std::size_t optimizer_bytes() const;
  /// Bytes of weights and optimizer state in memory of kind Device::offload.
  [[nodiscard]] std::size_t offloaded_bytes() const;

 private:
  [[nodiscard]] bool keeps_whole() const { return layout_->resident && !layout_->made; }
  /// Rounds the rows that are here into `out`, which is flat.
  void pack_masters(kernels::Stream& stream, std::uint16_t* out) const;
  void make_states(kernels::MemoryKind kind);
  /// Copies masters of what is exact to flat weights, or to the shard that gathers send.
  void copy_exact(kernels::Stream& stream, Elements flat) const;
  /// Rounds the masters into the shard that gathers send.
  void pack_shard(kernels::Stream& stream) const;
  /// initialise() of bf16 weights: the host rounds all of them, and keeps the masters' rows.
  void initialise_bf16(const ModelSpec& model, const InitOptions& options);
  /// initialise() of a shard's frozen rows, which have no masters.
  void initialise_frozen_shard(const ModelSpec& model, const InitOptions& options);
  [[nodiscard]] const Part& masters() const { return master_part(*layout_, compute_); }
  /// The segment of `part` that holds the row. REQUIRES: there is one.
  [[nodiscard]] const Segment& segment_with(const Part& part, std::size_t parameter,
                                            std::int64_t row) const;

  const kernels::KernelTable* kernels_;
  const ShardGroup* group_;
  const GroupLayout* layout_;
  const Optimizer* optimizer_;
  ComputeWeights compute_;
  Offload offload_;
  bool has_exact_;
  kernels::Buffer whole_, masters_, shard_bf16_;
  /// By index of a state tensor: the tensors of all parameters that have one of this index, packed
  /// like the state part. state_at_: first element of each segment there.
  std::array<kernels::Buffer, kMostStates> states_;
  std::array<std::vector<std::int64_t>, kMostStates> state_at_;
};

}  // namespace train::engine
