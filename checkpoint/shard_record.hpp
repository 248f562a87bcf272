#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/manifest.hpp"

namespace train::checkpoint {

/// What one rank wrote of a checkpoint: its part of the manifest.
struct ShardRecord {
  FileRecord file;
  std::vector<TensorRecord> tensors;
};

/// The record as JSON, for the way from the rank that wrote the shard to who publishes.
[[nodiscard]] std::string shard_text(const ShardRecord& shard);
/// Errors (failure): not the text of a shard.
Result<ShardRecord> parse_shard(std::string_view text);

}  // namespace train::checkpoint
