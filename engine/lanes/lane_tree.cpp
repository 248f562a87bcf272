#include "engine/lanes/lane_tree.hpp"

#include <fmt/format.h>

#include <bit>

#include "engine/base/check.hpp"

namespace train::engine {

LaneTree::LaneTree(const kernels::KernelTable& kernels, std::int64_t elements, std::int64_t lanes,
                   const std::string& name)
    : kernels_(&kernels), elements_(elements), lanes_(lanes) {
  TRAIN_CHECK(elements > 0 && lanes > 0, "{} elements, {} lanes", elements, lanes);
  for (std::int64_t i = 0; i < lane_tree_buffers(lanes); ++i) {
    buffers_.emplace_back(static_cast<std::size_t>(elements) * sizeof(float),
                          fmt::format("{} partial {}", name, i));
  }
}

float* LaneTree::leaf(std::int64_t lane) {
  if (lane == 0 && next_lane_ == lanes_) {
    next_lane_ = 0;
    subtree_sizes_.clear();
  }
  TRAIN_CHECK(lane == next_lane_ && lane < lanes_, "lane {}, expected {}", lane, next_lane_);
  return buffers_[subtree_sizes_.size()].as<float>();
}

void LaneTree::finish_leaf(kernels::Stream& stream, std::int64_t lane) {
  TRAIN_CHECK(lane == next_lane_ && lane < lanes_, "lane {}, expected {}", lane, next_lane_);
  ++next_lane_;
  subtree_sizes_.push_back(1);
  // Whole subtrees of equal size are siblings. After the last lane what is left is joined from the
  // right: the sizes fall from left to right, so that is the split at the largest power of two.
  const auto joins = [&] {
    const std::size_t held = subtree_sizes_.size();
    return held > 1 &&
           (subtree_sizes_[held - 2] == subtree_sizes_[held - 1] || next_lane_ == lanes_);
  };
  while (joins()) {
    const std::size_t right = subtree_sizes_.size() - 1;
    kernels_->tree_add(stream, {.left = buffers_[right - 1].as<float>(),
                                .right = buffers_[right].as<float>(),
                                .count = elements_});
    subtree_sizes_[right - 1] += subtree_sizes_[right];
    subtree_sizes_.pop_back();
  }
}

float* LaneTree::root() const {
  TRAIN_CHECK(next_lane_ == lanes_ || next_lane_ == 0, "{} of {} lanes", next_lane_, lanes_);
  return buffers_.front().as<float>();
}

std::size_t LaneTree::size_bytes() const {
  return buffers_.size() * static_cast<std::size_t>(elements_) * sizeof(float);
}

std::int64_t lane_tree_buffers(std::int64_t lanes) {
  return std::bit_width(static_cast<std::uint64_t>(lanes));
}

double tree_sum(const double* values, std::int64_t count, std::int64_t stride) {
  if (count <= 1) {
    return count == 1 ? values[0] : 0.0;
  }
  const auto left =
      static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(count - 1)));
  return tree_sum(values, left, stride) + tree_sum(values + left * stride, count - left, stride);
}

}  // namespace train::engine
