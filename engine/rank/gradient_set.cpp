#include "engine/rank/gradient_set.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/check.hpp"

namespace train::engine {
namespace {

std::int64_t count_of(const GradientShard& shard) { return shard.rows * shard.cols; }

}  // namespace

GradientSet::GradientSet(const kernels::KernelTable& kernels, std::vector<GradientShard> shards,
                         std::vector<std::string> unit_names)
    : kernels_(&kernels), shards_(std::move(shards)), unit_names_(std::move(unit_names)) {
  for (const GradientShard& shard : shards_) {
    TRAIN_CHECK(shard.unit < unit_names_.size() && (shard.rows == 0 || shard.data != nullptr),
                "gradient shard {}", shard.name);
  }
}

Result<std::vector<std::size_t>> GradientSet::select(const std::string& selector) const {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < shards_.size(); ++i) {
    if (matches(selector, shards_[i].name) || matches(selector, unit_names_[shards_[i].unit])) {
      found.push_back(i);
    }
  }
  if (found.empty()) {
    return user_error(fmt::format(
        "the gradient selector \"{}\" matches no parameter and no unit; units are called \"{}\", "
        "\"{}\", parameters \"{}\"",
        selector, unit_names_.front(), unit_names_.back(), shards_.front().name));
  }
  return found;
}

Status GradientSet::freeze(kernels::Stream& stream, const std::string& selector) {
  const auto found = select(selector);
  if (!found) {
    return found.error();
  }
  for (const std::size_t i : *found) {
    kernels_->fill(stream, {.out = shards_[i].data, .value = 0.0F, .count = count_of(shards_[i])});
  }
  return {};
}

Status GradientSet::scale(kernels::Stream& stream, const std::string& selector, float factor) {
  const auto found = select(selector);
  if (!found) {
    return found.error();
  }
  for (const std::size_t i : *found) {
    kernels_->scale_add(stream, {.y = shards_[i].data,
                                 .x = nullptr,
                                 .alpha = factor,
                                 .beta = 0.0F,
                                 .count = count_of(shards_[i])});
  }
  return {};
}

Result<SavedGradients> GradientSet::save(kernels::Stream& stream, const std::string& selector) {
  const auto found = select(selector);
  if (!found) {
    return found.error();
  }
  SavedGradients saved;
  for (const std::size_t i : *found) {
    const GradientShard& shard = shards_[i];
    const std::int64_t size_bytes = count_of(shard) * static_cast<std::int64_t>(sizeof(float));
    kernels::Buffer copy(static_cast<std::size_t>(size_bytes), "saved gradient of " + shard.name,
                         kernels_->device->memory);
    kernels_->copy(stream, {.out = copy.data(), .in = shard.data, .size_bytes = size_bytes});
    saved.shards_.push_back(i);
    saved.buffers_.push_back(std::move(copy));
  }
  return saved;
}

void GradientSet::add_saved(kernels::Stream& stream, const SavedGradients& saved, float factor) {
  for (std::size_t i = 0; i < saved.shards_.size(); ++i) {
    const GradientShard& shard = shards_.at(saved.shards_[i]);
    kernels_->scale_add(stream, {.y = shard.data,
                                 .x = saved.buffers_[i].as<float>(),
                                 .alpha = 1.0F,
                                 .beta = factor,
                                 .count = count_of(shard)});
  }
}

void GradientSet::keep_same_sign(kernels::Stream& stream, const SavedGradients& saved) {
  for (std::size_t i = 0; i < saved.shards_.size(); ++i) {
    const GradientShard& shard = shards_.at(saved.shards_[i]);
    kernels_->mask_sign(
        stream,
        {.g = shard.data, .other = saved.buffers_[i].as<float>(), .count = count_of(shard)});
  }
}

}  // namespace train::engine
