#include "engine/lanes/lane_tree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "kernels/activation/elementwise.hpp"
#include "kernels/backend.hpp"

namespace train::engine {
namespace {

bool joins(SumOrder order, const RadixTree& tree, LaneRange left, LaneRange right) {
  return order == SumOrder::arrival || tree.joins(left, right);
}

/// Takes in `arrival` as a tree does: joins what can be joined, from the right.
void push(std::vector<LaneRange>& held, SumOrder order, const RadixTree& tree, LaneRange arrival) {
  held.push_back(arrival);
  while (held.size() > 1 && joins(order, tree, held[held.size() - 2], held.back())) {
    held[held.size() - 2].count += held.back().count;
    held.pop_back();
  }
}

}  // namespace

LaneTree::LaneTree(const kernels::KernelTable& kernels, std::int64_t elements, RadixTree tree,
                   SumOrder order, std::int64_t buffers, const std::string& name, float* root)
    : kernels_(&kernels), elements_(elements), tree_(std::move(tree)), order_(order) {
  TRAIN_CHECK(elements > 0 && tree_.leaves() > 0 && buffers > 0,
              "{} elements, {} lanes, {} buffers", elements, tree_.leaves(), buffers);
  for (std::int64_t i = 0; i < buffers; ++i) {
    if (i == 0 && root != nullptr) {
      places_.push_back(root);
      continue;
    }
    places_.push_back(buffers_
                          .emplace_back(static_cast<std::size_t>(elements) * sizeof(float),
                                        fmt::format("{} partial {}", name, i),
                                        kernels.device->memory)
                          .as<float>());
  }
}

bool LaneTree::joins_held(LaneRange lanes) const {
  return !held_.empty() && joins(order_, tree_, held_.back(), lanes);
}

void LaneTree::check_arrival(LaneRange lanes) const {
  TRAIN_CHECK(order_ == SumOrder::arrival || tree_.is_partial_sum(lanes),
              "lanes {}..{} of {} are no partial sum", lanes.first, lanes.end(), tree_.leaves());
  TRAIN_CHECK(held_.empty() || held_.back().end() <= lanes.first || order_ == SumOrder::arrival,
              "lanes {}..{} come after {}..{}", lanes.first, lanes.end(), held_.back().first,
              held_.back().end());
}

float* LaneTree::place(LaneRange lanes, float* scratch) const {
  check_arrival(lanes);
  if (joins_held(lanes) && scratch != nullptr) {
    return scratch;
  }
  TRAIN_CHECK(held_.size() < places_.size(), "lanes {}..{}: {} partial sums are held", lanes.first,
              lanes.end(), held_.size());
  return places_[held_.size()];
}

void LaneTree::finalize(kernels::Stream& stream, LaneRange lanes, const float* where) {
  check_arrival(lanes);
  const std::size_t before = held_.size();
  TRAIN_CHECK(joins_held(lanes) || where == places_[before],
              "lanes {}..{} are not where they were placed", lanes.first, lanes.end());
  push(held_, order_, tree_, lanes);
  const float* right = where;
  for (std::size_t left = before; left-- > held_.size() - 1;) {
    float* sum = places_[left];
    kernels_->tree_add(stream, {.left = sum, .right = right, .out = sum, .count = elements_});
    right = sum;
  }
}

void LaneTree::add(kernels::Stream& stream, LaneRange lanes, const float* vector) {
  const float* where = vector;
  if (!joins_held(lanes)) {
    float* buffer = place(lanes, nullptr);
    kernels_->copy(stream, {.out = buffer,
                            .in = vector,
                            .size_bytes = elements_ * static_cast<std::int64_t>(sizeof(float))});
    where = buffer;
  }
  finalize(stream, lanes, where);
}

std::vector<std::pair<LaneRange, const float*>> LaneTree::held() const {
  std::vector<std::pair<LaneRange, const float*>> sums;
  for (std::size_t i = 0; i < held_.size(); ++i) {
    sums.emplace_back(held_[i], places_[i]);
  }
  return sums;
}

void LaneTree::clear() { held_.clear(); }

std::size_t LaneTree::size_bytes() const {
  return places_.size() * static_cast<std::size_t>(elements_) * sizeof(float);
}

std::int64_t lane_tree_buffers(const std::vector<LaneRange>& arrivals, const RadixTree& tree,
                               SumOrder order) {
  std::vector<LaneRange> held;
  std::size_t most = 0;
  for (const LaneRange arrival : arrivals) {
    const bool added = !held.empty() && joins(order, tree, held.back(), arrival);
    most = std::max(most, held.size() + (added ? 0 : 1));
    push(held, order, tree, arrival);
  }
  return static_cast<std::int64_t>(most);
}

double tree_sum(const double* values, std::int64_t count, std::int64_t stride) {
  if (count <= 1) {
    return count == 1 ? values[0] : 0.0;
  }
  const std::int64_t left = left_count(count);
  return tree_sum(values, left, stride) + tree_sum(values + left * stride, count - left, stride);
}

}  // namespace train::engine
