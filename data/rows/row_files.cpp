#include "data/rows/row_files.hpp"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>

#include "storage/files/input_file.hpp"

namespace train::data {
namespace {

static_assert(std::endian::native == std::endian::little, "records are mapped as they are stored");

/// Opens the files of a split and reports errors in them.
class RowFilesReader {
 public:
  RowFilesReader(const std::filesystem::path& directory, const std::string& split,
                 const RowFacts& facts)
      : directory_(directory), split_(split), facts_(facts), counts_(facts.of(split)) {}

  Result<RowFiles> run() {
    files_.token_bytes = facts_.token_bytes;
    files_.tokens_path = path(kTokenPart);
    const std::uint64_t tokens = counts_.tokens;
    TRAIN_RETURN_IF_ERROR(
        map(kTokenPart, tokens, static_cast<std::uint64_t>(facts_.token_bytes), files_.tokens));
    TRAIN_RETURN_IF_ERROR(map(kMaskPart, tokens / 8 + (tokens % 8 == 0 ? 0 : 1), 1, files_.mask));
    if (facts_.has_weights) {
      TRAIN_RETURN_IF_ERROR(map(kWeightPart, tokens, sizeof(float), files_.weights));
    }
    TRAIN_RETURN_IF_ERROR(records(kDocumentPart, counts_.documents, files_.documents));
    TRAIN_RETURN_IF_ERROR(records(kSegmentPart, counts_.segments, files_.segments));
    TRAIN_RETURN_IF_ERROR(records(kRowPart, counts_.rows, files_.rows));
    TRAIN_RETURN_IF_ERROR(check_documents());
    TRAIN_RETURN_IF_ERROR(check_rows());
    return std::move(files_);
  }

 private:
  [[nodiscard]] std::filesystem::path path(std::string_view part) const {
    return directory_ / row_file_name(split_, part);
  }
  Status map(std::string_view part, std::uint64_t count, std::uint64_t bytes_each, Mapping& to) {
    const auto file = TRAIN_TRY(storage::InputFile::open(path(part)));
    if (count > std::numeric_limits<std::uint64_t>::max() / bytes_each ||
        file.size_bytes() != count * bytes_each) {
      return user_error(fmt::format(
          "{}: {} bytes, but meta.json says {} of {} each; prepare the data again with --force",
          path(part).string(), file.size_bytes(), count, bytes_each));
    }
    to = TRAIN_TRY(file.map());
    return {};
  }
  template <class Record>
  Status records(std::string_view part, std::uint64_t count, RecordFile<Record>& to) {
    Mapping bytes;
    TRAIN_RETURN_IF_ERROR(map(part, count, sizeof(Record), bytes));
    to = RecordFile<Record>(std::move(bytes), count * sizeof(Record));
    return {};
  }
  [[nodiscard]] Error damaged(std::string_view part, std::uint64_t index) const {
    return user_error(
        fmt::format("{}: record {} does not fit the other files; prepare the data again with "
                    "--force",
                    path(part).string(), index));
  }
  [[nodiscard]] Status check_documents() const {
    const auto sources = std::max<std::uint64_t>(1, facts_.sources.size());
    for (std::uint64_t i = 0; i < files_.documents.count(); ++i) {
      const DocumentRecord document = files_.documents[i];
      if (document.length == 0 || document.length > counts_.tokens ||
          document.first_token > counts_.tokens - document.length || document.side > 2 ||
          document.source >= sources || document.trained > document.length || document.pair < -1) {
        return damaged(kDocumentPart, i);
      }
    }
    return {};
  }
  [[nodiscard]] Status check_rows() const {
    const auto length = static_cast<std::uint64_t>(facts_.row_length);
    std::uint64_t trained_tokens = 0;
    for (std::uint64_t row = 0; row < files_.rows.count(); ++row) {
      const RowRecord record = files_.rows[row];
      const std::uint64_t end = files_.segments_end(row);
      if (record.first_segment > end || end > files_.segments.count() ||
          (row == 0 && record.first_segment != 0) || !std::isfinite(record.weight_sum)) {
        return damaged(kRowPart, row);
      }
      std::uint64_t tokens = 0;
      std::uint64_t trained = 0;
      for (std::uint64_t i = record.first_segment; i < end; ++i) {
        const SegmentRecord segment = files_.segments[i];
        if (segment.document >= files_.documents.count() || segment.length == 0 ||
            std::uint64_t{segment.start} + segment.length >
                files_.documents[segment.document].length ||
            segment.trained > segment.length) {
          return damaged(kSegmentPart, i);
        }
        tokens += segment.length;
        trained += segment.trained;
      }
      if (tokens != record.tokens || trained != record.trained || tokens > length) {
        return damaged(kRowPart, row);
      }
      trained_tokens += trained;
    }
    if (trained_tokens != counts_.trained_tokens) {
      return damaged(kRowPart, files_.rows.count());
    }
    return {};
  }

  const std::filesystem::path& directory_;
  const std::string& split_;
  const RowFacts& facts_;
  const RowCounts& counts_;
  RowFiles files_;
};

}  // namespace

Result<RowFiles> RowFiles::open(const std::filesystem::path& directory, const std::string& split,
                                const RowFacts& facts) {
  return RowFilesReader(directory, split, facts).run();
}

}  // namespace train::data
