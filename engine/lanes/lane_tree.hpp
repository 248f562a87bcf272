#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/sharding/lane_schedule.hpp"
#include "kernels/backend.hpp"
#include "kernels/device/buffer.hpp"
#include "kernels/device/stream.hpp"

namespace train::engine {

/// How partial sums over lanes are joined.
enum class SumOrder : std::uint8_t {
  canonical,  ///< The binary tree over lane indices, whoever computes (determinism = "world").
  arrival,    ///< One running sum in the order of arrival (determinism = "run").
};

/// Sums one vector per lane as lanes, or whole subtrees of them, arrive from left to right: what
/// completes a node of the tree is added to its left sibling at once. Used by a rank for its own
/// lanes and by the owner of rows for the sums of all ranks.
///
/// Invariant EN-1: with SumOrder::canonical the result depends on the lanes' vectors alone, not on
/// who adds them or in which groups they arrive. Threading: one owner; calls only enqueue.
/// Ownership: owns the buffers, but for a `root` that is given.
class LaneTree {
 public:
  /// `lanes`: of the whole step. `buffers`: partial sums that can be held (lane_tree_buffers()).
  /// `root`: memory to use for the first of them, not owned; nullptr: own memory.
  LaneTree(const kernels::KernelTable& kernels, std::int64_t elements, std::int64_t lanes,
           SumOrder order, std::int64_t buffers, const std::string& name, float* root = nullptr);

  /// Where the vector of `lanes` has to be written (in stream order): a buffer of the tree, or
  /// `scratch` (if not null) where settle() adds it to what is held. REQUIRES: a subtree right of
  /// all held; settle() comes next.
  [[nodiscard]] float* place(LaneRange lanes, float* scratch) const;
  /// The vector of `lanes` is complete at `where` (which place() returned): enqueues the additions
  /// that it makes possible.
  void finalize(kernels::Stream& stream, LaneRange lanes, const float* where);
  /// A vector that lies elsewhere: like place() and settle(), copied only if nothing can be added.
  void add(kernels::Stream& stream, LaneRange lanes, const float* vector);

  /// The partial sums held, left to right.
  [[nodiscard]] std::vector<std::pair<LaneRange, const float*>> held() const;
  /// Forgets all partial sums: a new sync or step begins.
  void clear();
  /// Where the first partial sum is, and at the end the sum of all lanes; never changes.
  [[nodiscard]] float* root() const { return places_.front(); }

  [[nodiscard]] std::size_t size_bytes() const;

 private:
  [[nodiscard]] bool joins_held(LaneRange lanes) const;
  void check_arrival(LaneRange lanes) const;

  const kernels::KernelTable* kernels_;
  std::int64_t elements_;
  std::int64_t lanes_;
  SumOrder order_;
  std::vector<kernels::Buffer> buffers_;
  std::vector<float*> places_;  ///< Of partial sums: the buffers, or `root` and the buffers.
  std::vector<LaneRange> held_;
};

/// Buffers that a tree needs to take in `arrivals` (each a subtree, left to right).
[[nodiscard]] std::int64_t lane_tree_buffers(const std::vector<LaneRange>& arrivals,
                                             std::int64_t lanes, SumOrder order);

/// The canonical tree over host doubles.
[[nodiscard]] double tree_sum(const double* values, std::int64_t count, std::int64_t stride = 1);

}  // namespace train::engine
