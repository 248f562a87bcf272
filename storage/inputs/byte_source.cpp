#include "storage/inputs/byte_source.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/ascii.hpp"
#include "storage/files/input_file.hpp"
#include "storage/inputs/parquet_source.hpp"
#include "storage/inputs/unpacker.hpp"

namespace train::storage {
namespace {

constexpr std::size_t kSourcePieceBytes = std::size_t{1} << 20;

/// Uncompressed file.
class PlainSource : public ByteSource {
 public:
  explicit PlainSource(InputFile file) : file_(std::move(file)) {}

  Result<std::size_t> read(std::span<char> out) override {
    const auto size =
        static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), file_.size_bytes() - offset_));
    TRAIN_RETURN_IF_ERROR(file_.read(offset_, std::as_writable_bytes(out.first(size))));
    offset_ += size;
    return size;
  }
  [[nodiscard]] std::uint64_t consumed() const override { return offset_; }
  [[nodiscard]] std::string name() const { return file_.path().string(); }

 private:
  InputFile file_;
  std::uint64_t offset_ = 0;
};

/// Compressed file, read piece by piece.
class PackedSource : public ByteSource {
 public:
  PackedSource(InputFile file, const PackedFormat& format)
      : file_(std::move(file)),
        format_(format),
        unpacker_(format.make()),
        piece_(kSourcePieceBytes) {}

  Result<std::size_t> read(std::span<char> out) override {
    while (true) {
      const auto more = TRAIN_TRY(refill());
      if (!more && !last_.has_more) {
        return last_.inside ? Result<std::size_t>(damaged("the compressed data ends too early"))
                            : std::size_t{0};
      }
      last_ = unpacker_->unpack(left_, out);
      left_ = left_.subspan(last_.used);
      if (last_.fault != nullptr) {
        return damaged(last_.fault);
      }
      if (last_.made > 0) {
        return last_.made;
      }
    }
  }
  [[nodiscard]] std::uint64_t consumed() const override { return file_.consumed(); }

 private:
  /// Reads the next piece if the last one is used up. False: end of file.
  Result<bool> refill() {
    if (!left_.empty()) {
      return true;
    }
    const auto size = TRAIN_TRY(file_.read(piece_));
    left_ = std::span<const char>(piece_).first(size);
    return size > 0;
  }
  [[nodiscard]] Error damaged(const char* reason) const {
    return user_error(fmt::format("{} ({}): {}; fetch or make the file again", file_.name(),
                                  format_.name, reason));
  }

  PlainSource file_;
  const PackedFormat& format_;
  std::unique_ptr<Unpacker> unpacker_;
  std::vector<char> piece_;
  std::span<const char> left_;  ///< Rest of the piece.
  Unpacked last_;
};

constexpr std::string_view kParquetMagic = "PAR1";
constexpr std::string_view kParquetEnding = ".parquet";
constexpr std::string_view kArrowEnding = ".arrow";
// An IPC file, and the mark of a message that every IPC stream begins with.
constexpr std::string_view kArrowFileMagic = "ARROW1";
constexpr std::string_view kArrowStreamMark = "\xff\xff\xff\xff";

/// Rejects a file named as compressed, Parquet or Arrow whose content is not: its raw bytes are
/// never wanted.
Status check_ending(const std::filesystem::path& path) {
  const std::string ending = lower_case(path.extension().string());
  const auto formats = packed_formats();
  const auto named = std::find_if(formats.begin(), formats.end(), [&](const PackedFormat& format) {
    return format.ending == ending;
  });
  if (named == formats.end() && ending != kParquetEnding && ending != kArrowEnding) {
    return {};
  }
  const std::string_view name = named != formats.end()     ? std::string_view(named->name)
                                : ending == kParquetEnding ? "Parquet"
                                                           : "Arrow";
  return user_error(fmt::format(
      "{}: is named {}, but is not {}: damaged, or another format; fetch it again, or rename it",
      path.string(), ending, name));
}

}  // namespace

Result<std::unique_ptr<ByteSource>> open_byte_source(const std::filesystem::path& path) {
  auto file = TRAIN_TRY(InputFile::open(path));
  std::string head(std::min<std::uint64_t>(kPackedHeadBytes, file.size_bytes()), '\0');
  TRAIN_RETURN_IF_ERROR(file.read(0, std::as_writable_bytes(std::span(head))));
  if (head.starts_with(kParquetMagic)) {
    return open_row_source(path, RowFormat::parquet);
  }
  if (head.starts_with(kArrowFileMagic) || head.starts_with(kArrowStreamMark)) {
    return open_row_source(path, RowFormat::arrow);
  }
  std::unique_ptr<ByteSource> source;
  if (const PackedFormat* const format = packed_format_of(head)) {
    source = std::make_unique<PackedSource>(std::move(file), *format);
    return source;
  }
  if (!head.empty()) {
    TRAIN_RETURN_IF_ERROR(check_ending(path));
  }
  source = std::make_unique<PlainSource>(std::move(file));
  return source;
}

std::string content_ending(const std::filesystem::path& path) {
  const std::string ending = lower_case(path.extension().string());
  const auto formats = packed_formats();
  const bool packed = std::any_of(formats.begin(), formats.end(), [&](const PackedFormat& format) {
    return format.ending == ending;
  });
  return packed ? lower_case(path.stem().extension().string()) : ending;
}

}  // namespace train::storage
