#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/rank/rank_layout.hpp"
#include "kernels/backend.hpp"

namespace train::engine {

/// Enqueues the sums of squares of the part's rows, and from them one double per node of the
/// canonical trees over each parameter's rows: a row is never split, and a node depends on its rows
/// alone, so who holds which rows does not show. `gradient`: packed as `part`; `row_sums`: scratch
/// for the rows of a segment; `nodes`: of all segments, in their order. Returns the end of those.
double* sum_squares(const kernels::KernelTable& kernels, kernels::Stream& stream,
                    const ShardGroup& group, const Part& part, const float* gradient,
                    double* row_sums, double* nodes);

/// Finishes the trees over the nodes of all ranks: rows -> parameter -> unit -> model.
/// Host memory; a pure function of plan and layout decides what lies where.
class NormTree {
 public:
  NormTree(const ShardPlan& plan, const RankLayout& layout);

  /// `values`: the exchanged blocks of all ranks (RankLayout::step_block). Writes the squared norm
  /// of each unit; returns that of all.
  double finish(const double* values, std::vector<double>& unit_squares) const;
  /// Where, in its rank's block, the nodes of `group` begin.
  [[nodiscard]] std::int64_t first_node(std::size_t group) const { return first_node_[group]; }

 private:
  struct Node {
    LaneRange rows;
    std::int64_t at = 0;  // Index in `values`.
  };
  struct ParameterNodes {
    std::size_t unit = 0;
    std::int64_t rows = 0;
    std::vector<Node> nodes;  // From the first row to the last.
  };
  void collect(const ShardPlan& plan, const RankLayout& layout);

  std::size_t units_;
  std::vector<std::int64_t> first_node_;
  std::vector<ParameterNodes> parameters_;  // Of all units, in their order.
};

}  // namespace train::engine
