#include "checkpoint/shard_record.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace train::checkpoint {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(FileRecord, name, size_bytes, digest)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(TensorRecord, name, dtype, shape, file, first_row, rows, digest)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(ShardRecord, file, tensors)

std::string shard_text(const ShardRecord& shard) { return nlohmann::json(shard).dump(); }

Result<ShardRecord> parse_shard(std::string_view text) {
  try {
    return nlohmann::json::parse(text).get<ShardRecord>();
  } catch (const nlohmann::json::exception& error) {
    return failure(fmt::format("not the record of a checkpoint's shard: {}", error.what()));
  }
}

}  // namespace train::checkpoint
