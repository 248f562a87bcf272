#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>

#include "base/check.hpp"
#include "base/process/descriptor.hpp"
#include "base/result.hpp"
#include "data/rows/row_facts.hpp"
#include "data/rows/row_format.hpp"

namespace train::data {

/// Mapped file of records. Threading: const calls are thread-safe.
template <class Record>
class RecordFile {
 public:
  RecordFile() = default;
  RecordFile(Mapping bytes, std::uint64_t size_bytes)
      : bytes_(std::move(bytes)), count_(size_bytes / sizeof(Record)) {}

  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] Record operator[](std::uint64_t index) const {
    TRAIN_CHECK(index < count_, "record {} of {}", index, count_);
    Record record;
    std::memcpy(&record, bytes_.get() + index * sizeof(Record), sizeof(Record));
    return record;
  }

 private:
  Mapping bytes_;
  std::uint64_t count_ = 0;
};

/// Mapped files of one split. All indices in them were checked on opening.
struct RowFiles {
  std::filesystem::path tokens_path;
  Mapping tokens;
  Mapping mask;
  Mapping weights;  ///< Null: all weights are 1.
  RecordFile<DocumentRecord> documents;
  RecordFile<SegmentRecord> segments;
  RecordFile<RowRecord> rows;
  std::int64_t token_bytes = 4;

  /// REQUIRES: `at` less than the number of the split's tokens.
  [[nodiscard]] std::uint32_t token(std::uint64_t at) const {
    std::uint32_t value = 0;
    std::memcpy(&value, tokens.get() + at * static_cast<std::uint64_t>(token_bytes),
                static_cast<std::size_t>(token_bytes));
    return value;
  }
  [[nodiscard]] bool trained(std::uint64_t at) const {
    return (std::to_integer<unsigned>(mask.get()[at / 8]) >> (at % 8) & 1U) != 0;
  }
  [[nodiscard]] float weight(std::uint64_t at) const {
    float value = 1.0F;
    if (weights) {
      std::memcpy(&value, weights.get() + at * sizeof value, sizeof value);
    }
    return value;
  }
  [[nodiscard]] std::uint64_t segments_end(std::uint64_t row) const {
    return row + 1 < rows.count() ? rows[row + 1].first_segment : segments.count();
  }

  /// Errors (user): a file that is missing, of another size than in meta.json, or with an index out
  /// of range; names the file.
  static Result<RowFiles> open(const std::filesystem::path& directory, const std::string& split,
                               const RowFacts& facts);
};

}  // namespace train::data
