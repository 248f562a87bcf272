#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/format/manifest.hpp"

namespace train::checkpoint {

/// How a tensor differs between two checkpoints.
struct TensorDifference {
  std::string name;
  std::string defect;          ///< It is in one of them only, or of another shape; else empty:
  std::int64_t elements = 0;   ///< Of the tensor.
  std::int64_t differing = 0;  ///< Elements whose bits differ.
  double max_abs = 0.0;        ///< Largest |a - b|; NaN if one of a differing pair is.
};

/// A key of the configuration that the two do not share.
struct KeyDifference {
  std::string key;  ///< "parallel.ranks"
  std::string a;    ///< As the file writes it; empty: not there.
  std::string b;
};

struct CheckpointDifference {
  std::int64_t tensors = 0;                 ///< Compared.
  std::vector<TensorDifference> differing;  ///< By name.
  std::vector<KeyDifference> keys;          ///< By key.

  [[nodiscard]] bool same_bits() const { return differing.empty(); }
};

/// Compares the tensors of two checkpoints, however each is sharded, with memory for some MiB.
/// Digests are checked on the way. Blocks. Errors (failure): damage.
Result<CheckpointDifference> compare_checkpoints(const std::filesystem::path& directory_a,
                                                 const Manifest& a,
                                                 const std::filesystem::path& directory_b,
                                                 const Manifest& b);

/// Keys whose values differ between two texts of resolved configurations. Pure.
[[nodiscard]] std::vector<KeyDifference> compare_configs(const std::string& a,
                                                         const std::string& b);

}  // namespace train::checkpoint
