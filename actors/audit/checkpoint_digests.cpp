#include "actors/audit/checkpoint_digests.hpp"

#include <algorithm>
#include <cstddef>

#include "checkpoint/reader.hpp"
#include "engine/state_view.hpp"
#include "engine/weights_digest.hpp"

namespace train::actors {
namespace {

constexpr std::int64_t kBatchBytes = std::int64_t{8} << 20;

/// Collects rows, then reads and digests them together.
class Reading {
 public:
  Reading(const std::filesystem::path& directory, const checkpoint::Manifest& manifest)
      : directory_(directory),
        manifest_(manifest),
        names_(tensor_names(manifest)),
        digests_(names_.size()) {}

  Status add(const checkpoint::TensorRecord& tensor) {
    std::int64_t row_bytes = sizeof(float);
    for (std::size_t i = 1; i < tensor.shape.size(); ++i) {
      row_bytes *= tensor.shape[i];
    }
    const std::int64_t most =
        std::max<std::int64_t>(kBatchBytes / std::max<std::int64_t>(row_bytes, 1), 1);
    for (std::int64_t done = 0; done < tensor.rows; done += most) {
      const std::int64_t rows = std::min(most, tensor.rows - done);
      views_.push_back({.name = tensor.name,
                        .global_shape = tensor.shape,
                        .first_row = tensor.first_row + done,
                        .rows = rows,
                        .data = nullptr,
                        .size_bytes = static_cast<std::size_t>(rows * row_bytes)});
      collected_ += rows * row_bytes;
      if (collected_ >= kBatchBytes) {
        TRAIN_RETURN_IF_ERROR(flush());
      }
    }
    return {};
  }

  Status flush() {
    bytes_.resize(static_cast<std::size_t>(collected_));
    std::byte* next = bytes_.data();
    for (engine::StateView& view : views_) {
      view.data = next;
      next += view.size_bytes;
    }
    TRAIN_RETURN_IF_ERROR(
        checkpoint::restore(directory_, manifest_, views_, checkpoint::Restore::subset));
    const auto part = engine::tensor_digests(views_, names_);
    for (std::size_t i = 0; i < part.size(); ++i) {
      digests_[i] += part[i];
    }
    views_.clear();
    collected_ = 0;
    return {};
  }

  [[nodiscard]] const std::vector<std::uint64_t>& digests() const { return digests_; }

 private:
  const std::filesystem::path& directory_;
  const checkpoint::Manifest& manifest_;
  std::vector<std::string> names_;
  std::vector<std::uint64_t> digests_;
  std::vector<engine::StateView> views_;
  std::vector<std::byte> bytes_;
  std::int64_t collected_ = 0;
};

}  // namespace

std::vector<std::string> tensor_names(const checkpoint::Manifest& manifest) {
  std::vector<std::string> names;
  for (const checkpoint::TensorRecord& tensor : manifest.tensors) {  // sorted by name
    if (names.empty() || names.back() != tensor.name) {
      names.push_back(tensor.name);
    }
  }
  return names;
}

Result<std::vector<std::uint64_t>> tensor_digests(const std::filesystem::path& directory,
                                                  const checkpoint::Manifest& manifest) {
  Reading reading(directory, manifest);
  for (const checkpoint::TensorRecord& tensor : manifest.tensors) {
    TRAIN_RETURN_IF_ERROR(reading.add(tensor));
  }
  TRAIN_RETURN_IF_ERROR(reading.flush());
  return reading.digests();
}

}  // namespace train::actors
