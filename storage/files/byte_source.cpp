#include "storage/files/byte_source.hpp"

#include <fmt/format.h>

#define ZLIB_CONST
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "storage/files/input_file.hpp"
#include "storage/files/parquet_source.hpp"

namespace train::storage {
namespace {

constexpr std::size_t source_piece_bytes = std::size_t{1} << 20;

/// A file as it is.
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

/// What one call of a library did.
struct Unpacked {
  std::size_t used = 0;   ///< Bytes of the input.
  std::size_t made = 0;   ///< Bytes of the output.
  bool inside = false;    ///< A member or frame has begun, and not ended.
  bool has_more = false;  ///< There may be output that needs no more input.
  bool is_damaged = false;
};

/// gzip: members, one after the other.
class GzipUnpacker {
 public:
  GzipUnpacker() {
    // 15 bits of window, and 16: a header of gzip.
    usable_ = inflateInit2(&stream_, 15 + 16) == Z_OK;
  }
  GzipUnpacker(const GzipUnpacker&) = delete;
  GzipUnpacker& operator=(const GzipUnpacker&) = delete;
  ~GzipUnpacker() { inflateEnd(&stream_); }

  [[nodiscard]] bool usable() const { return usable_; }

  Unpacked unpack(std::span<const char> in, std::span<char> out) {
    stream_.next_in = reinterpret_cast<const Bytef*>(in.data());
    stream_.avail_in = static_cast<uInt>(in.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(std::min(out.size(), source_piece_bytes));
    const uInt room = stream_.avail_out;
    const int code = inflate(&stream_, Z_NO_FLUSH);
    const Unpacked done{.used = in.size() - stream_.avail_in,
                        .made = room - stream_.avail_out,
                        .inside = code != Z_STREAM_END,
                        .has_more = stream_.avail_out == 0 && code == Z_OK,
                        .is_damaged = code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR};
    if (code == Z_STREAM_END) {
      inflateReset(&stream_);
    }
    return done;
  }

 private:
  z_stream stream_ = {};
  bool usable_ = false;
};

/// Zstandard: frames, one after the other.
class ZstdUnpacker {
 public:
  [[nodiscard]] bool usable() const { return stream_ != nullptr; }

  Unpacked unpack(std::span<const char> in, std::span<char> out) {
    ZSTD_inBuffer from = {in.data(), in.size(), 0};
    ZSTD_outBuffer to = {out.data(), out.size(), 0};
    const std::size_t code = ZSTD_decompressStream(stream_.get(), &to, &from);
    return {.used = from.pos,
            .made = to.pos,
            .inside = code != 0,
            .has_more = code != 0 && to.pos == to.size,
            .is_damaged = ZSTD_isError(code) != 0};
  }

 private:
  std::unique_ptr<ZSTD_DStream, std::size_t (*)(ZSTD_DStream*)> stream_{ZSTD_createDStream(),
                                                                        ZSTD_freeDStream};
};

/// A compressed file, piece by piece.
template <class Unpacker>
class PackedSource : public ByteSource {
 public:
  explicit PackedSource(InputFile file) : file_(std::move(file)), piece_(source_piece_bytes) {}

  Result<std::size_t> read(std::span<char> out) override {
    if (!unpacker_.usable()) {
      return failure("no memory to decompress with");
    }
    while (true) {
      const auto more = refill();
      TRAIN_RETURN_IF_ERROR(more);
      if (!*more && !last_.has_more) {
        return last_.inside ? Result<std::size_t>(damaged("the compressed data ends too early"))
                            : std::size_t{0};
      }
      last_ = unpacker_.unpack(left_, out);
      left_ = left_.subspan(last_.used);
      if (last_.is_damaged) {
        return damaged("the compressed data is damaged");
      }
      if (last_.made > 0) {
        return last_.made;
      }
    }
  }
  [[nodiscard]] std::uint64_t consumed() const override { return file_.consumed(); }

 private:
  /// The next piece, if the last one is used up. False: the file is at its end.
  Result<bool> refill() {
    if (!left_.empty()) {
      return true;
    }
    const auto size = file_.read(piece_);
    TRAIN_RETURN_IF_ERROR(size);
    left_ = std::span<const char>(piece_).first(*size);
    return *size > 0;
  }
  [[nodiscard]] Error damaged(const char* reason) const {
    return user_error(fmt::format("{}: {}; fetch or make the file again", file_.name(), reason));
  }

  PlainSource file_;
  std::vector<char> piece_;
  std::span<const char> left_;  ///< Of the piece.
  Unpacker unpacker_;
  Unpacked last_;
};

template <class Source>
Result<std::unique_ptr<ByteSource>> open_as(const std::filesystem::path& path) {
  auto file = InputFile::open(path);
  TRAIN_RETURN_IF_ERROR(file);
  return std::unique_ptr<ByteSource>(std::make_unique<Source>(std::move(*file)));
}

/// How files of one ending are read.
struct InputFormat {
  std::string_view ending;
  enum class Content : std::uint8_t {
    by_name,     ///< What the name says without this ending.
    json_lines,  ///< Always that.
  } content;
  Result<std::unique_ptr<ByteSource>> (*open)(const std::filesystem::path& path);
};

/// All that are not read as they are, a line each.
constexpr auto input_formats = std::to_array<InputFormat>(
    {{".gz", InputFormat::Content::by_name, open_as<PackedSource<GzipUnpacker>>},
     {".zst", InputFormat::Content::by_name, open_as<PackedSource<ZstdUnpacker>>},
     {".parquet", InputFormat::Content::json_lines, open_parquet_source}});

const InputFormat* format_of(const std::filesystem::path& path) {
  const auto* const found =
      std::find_if(input_formats.begin(), input_formats.end(),
                   [&](const InputFormat& format) { return path.extension() == format.ending; });
  return found == input_formats.end() ? nullptr : found;
}

}  // namespace

Result<std::unique_ptr<ByteSource>> open_byte_source(const std::filesystem::path& path) {
  const InputFormat* format = format_of(path);
  return format == nullptr ? open_as<PlainSource>(path) : format->open(path);
}

bool holds_json_lines(const std::filesystem::path& path) {
  const InputFormat* format = format_of(path);
  if (format != nullptr && format->content == InputFormat::Content::json_lines) {
    return true;
  }
  return (format == nullptr ? path : path.stem()).extension() == ".jsonl";
}

Status read_source_lines(ByteSource& source, std::size_t limit_bytes,
                         const std::function<Status(const SourceLine&)>& take) {
  std::vector<char> piece(source_piece_bytes);
  std::string line;  // What came before this piece.
  SourceLine next;
  const auto append = [&](std::string_view text) {
    next.too_long = next.too_long || line.size() + text.size() > limit_bytes;
    next.too_long ? line.clear() : static_cast<void>(line.append(text));
  };
  const auto finish = [&]() -> Status {
    next.text = line;
    TRAIN_RETURN_IF_ERROR(take(next));
    line.clear();
    next = {.text = {}, .number = next.number + 1};
    return {};
  };
  while (true) {
    const auto size = source.read(piece);
    TRAIN_RETURN_IF_ERROR(size);
    if (*size == 0) {
      return line.empty() && !next.too_long ? Status{} : finish();
    }
    std::string_view left(piece.data(), *size);
    while (true) {
      const std::size_t end = left.find('\n');
      append(left.substr(0, end));
      if (end == std::string_view::npos) {
        break;
      }
      TRAIN_RETURN_IF_ERROR(finish());
      left.remove_prefix(end + 1);
    }
  }
}

}  // namespace train::storage
