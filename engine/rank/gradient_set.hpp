#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "engine/sharding/shard_plan.hpp"
#include "kernels/backend.hpp"
#include "kernels/device/buffer.hpp"
#include "kernels/device/stream.hpp"

namespace train::engine {

/// This rank's rows of one parameter's reduced gradient; no rank's rows overlap another's.
struct GradientShard {
  std::string name;  ///< Of the parameter.
  std::size_t unit = 0;
  std::int64_t first_row = 0;  ///< In the whole parameter.
  std::int64_t rows = 0;       ///< Held here; may be 0.
  std::int64_t cols = 1;
  float* data = nullptr;  ///< [rows, cols].
};

/// Copies of gradient shards, kept by an objective from one reduction to a later one.
class SavedGradients {
 public:
  [[nodiscard]] bool empty() const { return buffers_.empty(); }

 private:
  friend class GradientSet;
  std::vector<std::size_t> shards_;
  std::vector<kernels::Buffer> buffers_;
};

/// The gradients of a step after their reduction, by name, on the rank that owns their rows: what
/// an objective may read, measure, mask, copy and combine before the optimizer sees it. Every call
/// acts on all ranks' rows when every rank makes it, and gives the same bits at any plan.
///
/// A selector is a shell pattern of parameter names or unit names ("transformer.h.3.*", "block 3").
/// Threading: one owner; calls enqueue on the compute stream. Errors: user_error when a selector
/// matches no parameter: never a silent zero.
class GradientSet {
 public:
  GradientSet(const kernels::KernelTable& kernels, std::vector<GradientShard> shards,
              std::vector<std::string> unit_names);

  [[nodiscard]] const std::vector<GradientShard>& shards() const { return shards_; }
  /// Indices in shards() of what `selector` matches, on every rank alike.
  [[nodiscard]] Result<std::vector<std::size_t>> select(const std::string& selector) const;

  /// g = 0: what is frozen has no gradient and no part in the norm.
  Status freeze(kernels::Stream& stream, const std::string& selector);
  /// g = factor * g.
  Status scale(kernels::Stream& stream, const std::string& selector, float factor);
  /// A copy of g as it is at this point of the stream.
  [[nodiscard]] Result<SavedGradients> save(kernels::Stream& stream, const std::string& selector);
  /// g = g + factor * saved, where it was saved.
  void add_saved(kernels::Stream& stream, const SavedGradients& saved, float factor);
  /// g = 0 where its sign is not that of the saved gradient (a zero has no sign and goes).
  void keep_same_sign(kernels::Stream& stream, const SavedGradients& saved);

 private:
  const kernels::KernelTable* kernels_;
  std::vector<GradientShard> shards_;
  std::vector<std::string> unit_names_;
};

}  // namespace train::engine
