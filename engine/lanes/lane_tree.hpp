#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/sharding/radix_tree.hpp"
#include "kernels/device/buffer.hpp"
#include "kernels/device/stream.hpp"

namespace train::kernels {

struct KernelTable;

}  // namespace train::kernels

namespace train::engine {

/// Order in which partial sums over lanes are joined.
enum class SumOrder : std::uint8_t {
  canonical,  ///< A RadixTree over lane indices, on any ranks (determinism = "world").
  arrival,    ///< One running sum in the order of arrival (determinism = "run").
};

/// Sums one vector per lane as lanes, or partial sums over lanes, arrive from left to right: a
/// complete node of the tree is added at once to the sum of its left siblings. Used by a rank for
/// its own lanes and by the owner of rows for the sums of all ranks.
///
/// Invariant EN-1: with SumOrder::canonical the result depends on the lanes' vectors alone, not on
/// the ranks that add them or the groups in which they arrive. Threading: one owner; calls only
/// enqueue.
/// Ownership: owns the buffers, but for a `root` that is given.
class LaneTree {
 public:
  /// `tree`: over the lanes of a step. `buffers`: partial sums that can be held
  /// (lane_tree_buffers()).
  /// `root`: memory for the first partial sum, borrowed; nullptr: own memory.
  LaneTree(const kernels::KernelTable& kernels, std::int64_t elements, RadixTree tree,
           SumOrder order, std::int64_t buffers, const std::string& name, float* root = nullptr);

  /// Memory that the vector of `lanes` is to be written to (in stream order): a buffer of the tree,
  /// or `scratch` (if not null) if finalize() adds it to a held sum. REQUIRES: a partial sum
  /// right of all held; finalize() comes next.
  [[nodiscard]] float* place(LaneRange lanes, float* scratch) const;
  /// The vector of `lanes` is complete at `where` (which place() returned): enqueues the additions
  /// that it makes possible.
  void finalize(kernels::Stream& stream, LaneRange lanes, const float* where);
  /// Adds a vector in other memory, as place() and finalize() do; copies it only if it must wait.
  void add(kernels::Stream& stream, LaneRange lanes, const float* vector);

  /// The partial sums held, left to right.
  [[nodiscard]] std::vector<std::pair<LaneRange, const float*>> held() const;
  /// Drops all partial sums before a new sync or step.
  void clear();
  /// Memory of the first partial sum, and at the end of the sum of all lanes; never changes.
  [[nodiscard]] float* root() const { return places_.front(); }

  [[nodiscard]] std::size_t size_bytes() const;

 private:
  [[nodiscard]] bool joins_held(LaneRange lanes) const;
  void check_arrival(LaneRange lanes) const;

  const kernels::KernelTable* kernels_;
  std::int64_t elements_;
  RadixTree tree_;
  SumOrder order_;
  std::vector<kernels::Buffer> buffers_;
  std::vector<float*> places_;  ///< Partial sums: the buffers, or `root` and the buffers.
  std::vector<LaneRange> held_;
};

/// Buffers that a LaneTree needs to take in `arrivals` (each a partial sum, left to right).
[[nodiscard]] std::int64_t lane_tree_buffers(const std::vector<LaneRange>& arrivals,
                                             const RadixTree& tree, SumOrder order);

/// The binary tree over host doubles, at any radix of the lanes.
[[nodiscard]] double tree_sum(const double* values, std::int64_t count, std::int64_t stride = 1);

}  // namespace train::engine
