#include "checkpoint/shard_record.hpp"

#include <fmt/format.h>

#include <utility>

#include "checkpoint/blocks.hpp"
#include "checkpoint/index/record_text.hpp"
#include "storage/files/untrusted_text.hpp"

namespace train::checkpoint {

std::string shard_text(const ShardRecord& shard) {
  std::string text = fmt::format("{{\"files\": [{}], \"tensors\": [", record_text(shard.file));
  for (const TensorRecord& tensor : shard.tensors) {
    text += fmt::format("{}{}", &tensor == shard.tensors.data() ? "" : ", ", record_text(tensor));
  }
  return text + "]}";
}

Result<ShardRecord> parse_shard(std::string_view text) {
  RecordsFound found = read_records(text, {});
  if (found.defect.empty() && found.files.size() != 1) {
    found.defect = fmt::format("{} files, not one", found.files.size());
  }
  for (const TensorRecord& tensor : found.tensors) {
    if (found.defect.empty()) {
      found.defect = tensor.file == found.files.front().name
                         ? blocks_defect(tensor)
                         : fmt::format("tensor {} is in another file", storage::shown(tensor.name));
    }
  }
  if (!found.defect.empty()) {
    return failure(fmt::format("not the record of a checkpoint's shard: {}", found.defect));
  }
  return ShardRecord{.file = std::move(found.files.front()), .tensors = std::move(found.tensors)};
}

}  // namespace train::checkpoint
