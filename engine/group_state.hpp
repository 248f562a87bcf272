#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/model/initial_weights.hpp"
#include "engine/rank_engine_layout.hpp"
#include "engine/state_view.hpp"
#include "kernels/backend.hpp"
#include "kernels/device/buffer.hpp"

namespace train::engine {

/// What a rank keeps of one group between steps: fp32 masters and AdamW moments of its state part,
/// and weights for the layers: whole where they are resident, else the shard that gathers send.
///
/// With fp32 compute the masters are those weights. With bf16 compute the weights are masters
/// rounded to bf16: fp32 values where they are whole, two bytes each in the shard.
/// Ownership: owns its memory, borrows the layout. Threading: one owner.
class GroupState {
 public:
  /// `group` and `layout` must outlive this.
  GroupState(const kernels::KernelTable& kernels, const ShardGroup& group,
             const GroupLayout& layout, bool compute_bf16);

  /// Weights from the seed, moments zero. Blocking; on several threads.
  void initialise(const ModelShape& shape, const InitOptions& options);

  /// A row that this rank keeps, REQUIRES: it is in the state part.
  [[nodiscard]] float* master(std::size_t parameter, std::int64_t row) const;
  [[nodiscard]] float* exp_avg(std::size_t parameter, std::int64_t row) const;
  [[nodiscard]] float* exp_avg_sq(std::size_t parameter, std::int64_t row) const;

  /// Compute weights of the whole group, flat; nullptr unless they are resident.
  [[nodiscard]] float* whole() const { return whole_.as<float>(); }
  /// The packed state part as gathers send it: fp32 or bf16.
  [[nodiscard]] const std::byte* shard() const;

  /// Enqueues what makes compute weights of masters; nothing with fp32 compute. `rounding`: scratch
  /// of RankLayout::rounding_elements() elements.
  void settle(kernels::Stream& stream, const kernels::Buffer& rounding) const;
  /// Enqueues the rounding of all whole compute weights, also of rows whose masters are elsewhere.
  void round_whole(kernels::Stream& stream, const kernels::Buffer& rounding) const;

  /// Appends views of the rows of `part` (weights and moments), which lies in the state part.
  void append_views(const Part& part, std::vector<StateView>& views) const;
  /// Appends views of resident compute weights of which this rank keeps no masters.
  void append_foreign_views(std::vector<StateView>& views) const;

  [[nodiscard]] std::size_t weights_bytes() const;
  [[nodiscard]] std::size_t moments_bytes() const;

 private:
  [[nodiscard]] std::int64_t packed(std::size_t parameter, std::int64_t row) const;

  const kernels::KernelTable* kernels_;
  const ShardGroup* group_;
  const GroupLayout* layout_;
  bool compute_bf16_;
  std::vector<std::size_t> segment_of_;  // By parameter; segments.size(): no row here.
  kernels::Buffer whole_, masters_, shard_bf16_, exp_avg_, exp_avg_sq_;
};

}  // namespace train::engine
