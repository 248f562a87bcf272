#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/rank/plan/rank_layout.hpp"
#include "kernels/device/stream.hpp"

namespace train::kernels {

struct KernelTable;

}  // namespace train::kernels

namespace train::engine {

/// Enqueues the sums of squares of the part's rows, and from them one double per node of the
/// canonical trees over each parameter's rows: a row is never split, and a node depends on its rows
/// alone, not on the distribution of rows. `gradient`: packed as `part`; `row_sums`: scratch
/// for all rows of the part; `nodes`: of all segments, in their order. Returns the end of those.
double* sum_squares(const kernels::KernelTable& kernels, kernels::Stream& stream,
                    const ShardGroup& group, const Part& part, const float* gradient,
                    double* row_sums, double* nodes);

/// Finishes the trees over the nodes of all ranks: rows -> parameter -> unit -> model.
/// Host memory; a pure function of plan and layout decides what lies where.
class NormTree {
 public:
  /// `of_pass`: the tree covers norms of the last pass before its gradient is joined.
  NormTree(const ShardPlan& plan, const RankLayout& layout, bool of_pass = false);

  /// `values`: the exchanged blocks of all ranks (RankLayout::step_block). Writes the squared norm
  /// of each unit; returns that of all.
  double finish(const double* values, std::vector<double>& unit_squares) const;
  /// The squared norm of each parameter, of all units in their order; 0 of what is frozen.
  [[nodiscard]] std::vector<double> parameter_squares(const double* values) const;
  /// Index of the parameter of a group among all, and unit of the parameter at `index`.
  [[nodiscard]] std::size_t index_of(std::size_t group, std::size_t parameter) const {
    return index_of_[group][parameter];
  }
  [[nodiscard]] std::size_t unit_of(std::size_t index) const { return parameters_[index].unit; }
  /// First of the group's nodes in its rank's block.
  [[nodiscard]] std::int64_t first_node(std::size_t group) const { return first_node_[group]; }

 private:
  struct Node {
    LaneRange rows;
    std::int64_t at = 0;  // Index in `values`.
  };
  struct ParameterNodes {
    std::size_t unit = 0;
    std::int64_t rows = 0;
    bool tallied = false;     // Its nodes hold expert loads, no gradient.
    std::vector<Node> nodes;  // From the first row to the last.
  };
  void collect(const ShardPlan& plan, const RankLayout& layout, bool of_pass);

  std::size_t units_;
  std::vector<std::int64_t> first_node_;
  std::vector<ParameterNodes> parameters_;          // Parameters of all units, in order.
  std::vector<std::vector<std::size_t>> index_of_;  // By group, in its order of parameters.
};

}  // namespace train::engine
