#include "engine/rank/exec/totals/norm_tree.hpp"

#include <algorithm>

#include "base/check.hpp"
#include "engine/lanes/lane_tree.hpp"
#include "kernels/backend.hpp"
#include "kernels/optimizer/global_norm.hpp"

namespace train::engine {

namespace {

/// The canonical tree over `rows`, down to the nodes that are given.
template <class Nodes>
double join(const Nodes& nodes, std::size_t& next, LaneRange rows, const double* values) {
  TRAIN_CHECK(next < nodes.size() && rows.count > 0, "rows {}..{} have no node", rows.first,
              rows.end());
  if (nodes[next].rows == rows) {
    return values[nodes[next++].at];
  }
  const std::int64_t left = left_count(rows.count);
  const double left_sum = join(nodes, next, {rows.first, left}, values);
  return left_sum + join(nodes, next, {rows.first + left, rows.count - left}, values);
}

}  // namespace

double* sum_squares(const kernels::KernelTable& kernels, kernels::Stream& stream,
                    const ShardGroup& group, const Part& part, const float* gradient,
                    double* row_sums, double* nodes) {
  kernels::RowSquareSumsParams squares;
  kernels::TreeSumParams trees;
  for (const Segment& segment : part.segments) {
    const Parameter& parameter = group.parameters[segment.parameter];
    squares.tensors.push_back({.x = gradient + segment.packed_offset,
                               .row_sums = row_sums,
                               .rows = segment.rows,
                               .cols = parameter.cols()});
    for (const LaneRange node : norm_nodes(segment, parameter)) {
      trees.sums.push_back({.values = row_sums + (node.first - segment.first_row),
                            .out = nodes++,
                            .count = node.count});
    }
    row_sums += segment.rows;
  }
  kernels.row_square_sums(stream, squares);
  kernels.tree_sum(stream, trees);
  return nodes;
}

NormTree::NormTree(const ShardPlan& plan, const RankLayout& layout, bool of_pass)
    : units_(plan.unit_count()) {
  collect(plan, layout, of_pass);
  for (ParameterNodes& parameter : parameters_) {
    std::sort(parameter.nodes.begin(), parameter.nodes.end(),
              [](const Node& a, const Node& b) { return a.rows.first < b.rows.first; });
  }
}

void NormTree::collect(const ShardPlan& plan, const RankLayout& layout, bool of_pass) {
  std::vector<std::size_t> first_of_unit = {0};
  for (std::size_t unit = 0; unit < units_; ++unit) {
    for (const Parameter& parameter : plan.units()[unit].parameters) {
      parameters_.push_back(
          {.unit = unit, .rows = parameter.rows(), .tallied = parameter.tallied, .nodes = {}});
    }
    first_of_unit.push_back(parameters_.size());
  }
  // A group's parameters are those of its units, one unit after the other.
  index_of_.resize(plan.groups().size());
  for (std::size_t group = 0; group < plan.groups().size(); ++group) {
    for (const std::size_t unit : plan.groups()[group].units) {
      for (std::size_t i = first_of_unit[unit]; i < first_of_unit[unit + 1]; ++i) {
        index_of_[group].push_back(i);
      }
    }
  }
  for (std::int64_t rank = 0; rank < layout.ranks(); ++rank) {
    std::int64_t at = of_pass ? layout.pass_norm_block(rank) : layout.step_block(rank);
    for (std::size_t group = 0; group < plan.groups().size(); ++group) {
      if (rank == layout.rank()) {
        first_node_.push_back(at - layout.step_block(rank));
      }
      const Part part = layout.reduce_part(group, rank);
      for (const Segment& segment : part.segments) {
        ParameterNodes& nodes = parameters_[index_of_[group][segment.parameter]];
        for (const LaneRange rows :
             norm_nodes(segment, plan.groups()[group].parameters[segment.parameter])) {
          nodes.nodes.push_back({.rows = rows, .at = at++});
        }
      }
    }
  }
}

std::vector<double> NormTree::parameter_squares(const double* values) const {
  std::vector<double> squares;
  for (const ParameterNodes& parameter : parameters_) {
    if (parameter.nodes.empty() || parameter.tallied) {  // Empty: frozen.
      squares.push_back(0.0);
      continue;
    }
    std::size_t next = 0;
    squares.push_back(join(parameter.nodes, next, {0, parameter.rows}, values));
    TRAIN_CHECK(next == parameter.nodes.size(), "{} of {} nodes", next, parameter.nodes.size());
  }
  return squares;
}

double NormTree::finish(const double* values, std::vector<double>& unit_squares) const {
  std::vector<std::vector<double>> squares(units_);
  const std::vector<double> all = parameter_squares(values);
  for (std::size_t i = 0; i < all.size(); ++i) {
    squares[parameters_[i].unit].push_back(all[i]);
  }
  unit_squares.clear();
  for (const std::vector<double>& unit : squares) {
    unit_squares.push_back(tree_sum(unit.data(), static_cast<std::int64_t>(unit.size())));
  }
  return tree_sum(unit_squares.data(), static_cast<std::int64_t>(units_));
}

}  // namespace train::engine
