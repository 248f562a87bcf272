#include "cli/audit/checkpoint_digests.hpp"

#include <cstddef>
#include <map>
#include <span>
#include <utility>

#include "engine/rank/weights_digest.hpp"
#include "engine/state_view.hpp"

namespace train::cli {
namespace {

using checkpoint::TensorRecord;

std::size_t row_bytes_of(const TensorRecord& record) {
  std::size_t bytes = sizeof(float);
  for (std::size_t i = 1; i < record.shape.size(); ++i) {
    bytes *= static_cast<std::size_t>(record.shape[i]);
  }
  return bytes;
}

/// Digests of tensors from pieces of their records.
class Digests {
 public:
  void add(const TensorRecord& record, std::span<const std::byte> piece) {
    if (record_ != &record) {
      record_ = &record;
      next_row_ = record.first_row;
      rest_.clear();
    }
    rest_.insert(rest_.end(), piece.begin(), piece.end());
    const std::size_t row_bytes = row_bytes_of(record);
    const auto rows = static_cast<std::int64_t>(rest_.size() / row_bytes);
    const engine::StateView view{.name = record.name,
                                 .global_shape = record.shape,
                                 .first_row = next_row_,
                                 .rows = rows,
                                 .data = rest_.data(),
                                 .size_bytes = static_cast<std::size_t>(rows) * row_bytes};
    by_name_[record.name] += engine::tensor_digests({&view, 1}, {&view.name, 1}).front();
    next_row_ += rows;
    rest_.erase(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(view.size_bytes));
  }

  /// 0 of a tensor without bytes, as of one without rows.
  [[nodiscard]] std::uint64_t of(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? 0 : found->second;
  }

 private:
  const TensorRecord* record_ = nullptr;
  std::int64_t next_row_ = 0;
  std::vector<std::byte> rest_;  ///< Of a row whose end has not come.
  std::map<std::string, std::uint64_t> by_name_;
};

}  // namespace

Result<CheckpointContent> read_content(const std::filesystem::path& directory) {
  Digests digests;
  auto found = checkpoint::verify_checkpoint(
      directory, [&](const TensorRecord& record, std::span<const std::byte> piece) {
        digests.add(record, piece);
      });
  TRAIN_RETURN_IF_ERROR(found);
  CheckpointContent content{.found = std::move(found).value(), .tensors = {}, .digests = {}};
  if (content.found.whole()) {
    for (const TensorRecord& tensor : content.found.manifest->tensors) {  // sorted by name
      if (content.tensors.empty() || content.tensors.back() != tensor.name) {
        content.tensors.push_back(tensor.name);
        content.digests.push_back(digests.of(tensor.name));
      }
    }
  }
  return content;
}

}  // namespace train::cli
