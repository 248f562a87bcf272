#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

// Files of a split in a row directory. All numbers are little-endian; data/README.md gives them
// as NumPy types.
namespace train::data {

/// `format` in meta.json, and the version of the layout below.
inline constexpr std::string_view kRowFormatName = "rows";
inline constexpr std::int64_t kRowFormatVersion = 1;

/// Document: a conversation, a prompt with its completion, one side of a pair, or a text.
struct DocumentRecord {
  std::uint64_t first_token = 0;  ///< In the split's tokens.
  std::int64_t pair = -1;         ///< See RowDocument::pair.
  std::uint32_t length = 0;       ///< Tokens; at least 1.
  std::uint32_t trained = 0;      ///< Number of trained targets.
  std::uint32_t source = 0;       ///< Index into `sources` of meta.json.
  std::uint32_t side = 0;         ///< See RowDocument::side.

  bool operator==(const DocumentRecord&) const = default;
};

/// Part of a document in one row: the whole document unless it was cut.
struct SegmentRecord {
  std::uint64_t document = 0;
  std::uint32_t start = 0;    ///< First token of the part, within the document.
  std::uint32_t length = 0;   ///< Tokens; at least 1.
  std::uint32_t trained = 0;  ///< Targets that are trained.
  std::uint32_t unused = 0;

  bool operator==(const SegmentRecord&) const = default;
};

/// Row: its segments are contiguous in the segment file, up to those of the next row.
struct RowRecord {
  std::uint64_t first_segment = 0;
  std::uint32_t tokens = 0;   ///< Tokens of all its segments; at most the row's length.
  std::uint32_t trained = 0;  ///< Trained targets of all its segments.
  double weight_sum = 0.0;    ///< Sum of the trained targets' weights.

  bool operator==(const RowRecord&) const = default;
};

static_assert(sizeof(DocumentRecord) == 32 && std::is_trivially_copyable_v<DocumentRecord>);
static_assert(sizeof(SegmentRecord) == 24 && std::is_trivially_copyable_v<SegmentRecord>);
static_assert(sizeof(RowRecord) == 24 && std::is_trivially_copyable_v<RowRecord>);

/// `<split>.<part>`: ids of all documents, concatenated; one bit per token (lowest bit of a byte
/// first), set if the token is a trained target; one float per token, in weighted data; the
/// records.
inline constexpr std::string_view kTokenPart = "tokens";
inline constexpr std::string_view kMaskPart = "mask";
inline constexpr std::string_view kWeightPart = "weights";
inline constexpr std::string_view kDocumentPart = "documents";
inline constexpr std::string_view kSegmentPart = "segments";
inline constexpr std::string_view kRowPart = "rows";
inline constexpr std::array<std::string_view, 6> kRowParts = {
    kTokenPart, kMaskPart, kWeightPart, kDocumentPart, kSegmentPart, kRowPart};
inline constexpr std::array<std::string_view, 2> kRowSplits = {"train", "val"};

[[nodiscard]] inline std::string row_file_name(std::string_view split, std::string_view part) {
  return std::string(split) + "." + std::string(part);
}

}  // namespace train::data
