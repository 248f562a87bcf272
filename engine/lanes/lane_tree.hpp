#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/backend.hpp"
#include "kernels/device/buffer.hpp"
#include "kernels/device/stream.hpp"

namespace train::engine {

/// Sums one vector per lane in the canonical binary tree over lane indices (split at the largest
/// power of two below n), as lanes arrive in order: a lane that completes a subtree is added to its
/// left sibling at once, so floor(log2(lanes)) + 1 buffers are enough.
///
/// Invariant EN-1: the result depends on the lanes' vectors alone, not on when or by whom they are
/// added. Threading: one owner; calls only enqueue. Ownership: owns the buffers.
class LaneTree {
 public:
  LaneTree(const kernels::KernelTable& kernels, std::int64_t elements, std::int64_t lanes,
           const std::string& name);

  /// Buffer that lane's vector has to be written to (in stream order). REQUIRES: lanes in order 0,
  /// 1, ...
  [[nodiscard]] float* leaf(std::int64_t lane);
  /// The leaf is complete: enqueues the additions that it makes possible.
  void finish_leaf(kernels::Stream& stream, std::int64_t lane);
  /// After the last lane: the sum (valid until the next leaf(0) is written). Before the first lane:
  /// where the sums will be; the address never changes.
  [[nodiscard]] float* root() const;

  [[nodiscard]] std::size_t size_bytes() const;

 private:
  const kernels::KernelTable* kernels_;
  std::int64_t elements_;
  std::int64_t lanes_;
  std::int64_t next_lane_ = 0;
  std::vector<kernels::Buffer> buffers_;
  std::vector<std::int64_t> subtree_sizes_;  ///< Of the partial sums held, oldest first.
};

/// Buffers of `elements` floats that a tree over `lanes` holds: floor(log2(lanes)) + 1.
[[nodiscard]] std::int64_t lane_tree_buffers(std::int64_t lanes);

/// The same tree over host doubles.
[[nodiscard]] double tree_sum(const double* values, std::int64_t count, std::int64_t stride = 1);

}  // namespace train::engine
