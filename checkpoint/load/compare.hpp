#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/format/manifest.hpp"

namespace train::checkpoint {

/// Difference of a tensor between two checkpoints.
struct TensorDifference {
  std::string name;
  std::string defect;         ///< Set if it is in only one of them, or of another shape; otherwise:
  std::int64_t elements = 0;  ///< Elements of the tensor.
  std::int64_t differing = 0;  ///< Elements whose bits differ.
  double max_abs = 0.0;        ///< Largest |a - b|; NaN if a differing pair contains one.
};

/// Configuration key with different values.
struct KeyDifference {
  std::string key;  ///< "parallel.ranks"
  std::string a;    ///< As in the file; empty: not set.
  std::string b;
};

struct CheckpointDifference {
  std::int64_t tensors = 0;                 ///< Tensors compared.
  std::vector<TensorDifference> differing;  ///< By name.
  std::vector<KeyDifference> keys;          ///< By key.

  [[nodiscard]] bool same_bits() const { return differing.empty(); }
};

/// Compares the tensors of two checkpoints, whatever their sharding, using some MiB of memory.
/// Digests are verified on the way. Blocks. Errors (failure): damage.
Result<CheckpointDifference> compare_checkpoints(const std::filesystem::path& directory_a,
                                                 const Manifest& a,
                                                 const std::filesystem::path& directory_b,
                                                 const Manifest& b);

/// Keys whose values differ between two resolved configurations, given as text. Pure.
[[nodiscard]] std::vector<KeyDifference> compare_configs(const std::string& a,
                                                         const std::string& b);

}  // namespace train::checkpoint
