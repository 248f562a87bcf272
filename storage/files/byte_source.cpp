#include "storage/files/byte_source.hpp"

#include <fmt/format.h>

#define ZLIB_CONST
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <string>
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

/// What both compressed sources have alike: pieces of the file, until they are used up.
class PackedBytes {
 public:
  explicit PackedBytes(InputFile file) : file_(std::move(file)), piece_(source_piece_bytes) {}

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
  [[nodiscard]] std::span<const char> left() const { return left_; }
  void use(std::size_t size) { left_ = left_.subspan(size); }
  [[nodiscard]] std::uint64_t consumed() const { return file_.consumed(); }
  [[nodiscard]] Error damaged(const char* reason) const {
    return user_error(fmt::format("{}: {}; fetch or make the file again", file_.name(), reason));
  }

 private:
  PlainSource file_;
  std::vector<char> piece_;
  std::span<const char> left_;
};

class GzipSource : public ByteSource {
 public:
  explicit GzipSource(InputFile file) : bytes_(std::move(file)) {
    // 15 bits of window, and 16: a header of gzip.
    usable_ = inflateInit2(&stream_, 15 + 16) == Z_OK;
  }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;
  ~GzipSource() override { inflateEnd(&stream_); }

  Result<std::size_t> read(std::span<char> out) override {
    if (!usable_) {
      return failure("no memory to decompress with");
    }
    while (true) {
      const auto more = bytes_.refill();
      TRAIN_RETURN_IF_ERROR(more);
      if (!*more && !full_) {
        if (inside_) {
          return bytes_.damaged("the compressed data ends too early");
        }
        return std::size_t{0};
      }
      stream_.next_in = reinterpret_cast<const Bytef*>(bytes_.left().data());
      stream_.avail_in = static_cast<uInt>(bytes_.left().size());
      stream_.next_out = reinterpret_cast<Bytef*>(out.data());
      stream_.avail_out = static_cast<uInt>(std::min(out.size(), source_piece_bytes));
      const uInt room = stream_.avail_out;
      inside_ = true;
      const int code = inflate(&stream_, Z_NO_FLUSH);
      bytes_.use(bytes_.left().size() - stream_.avail_in);
      full_ = stream_.avail_out == 0 && code == Z_OK;  // There may be more of it in the stream.
      if (code == Z_STREAM_END) {
        inside_ = false;
        inflateReset(&stream_);
      } else if (code != Z_OK && code != Z_BUF_ERROR) {
        return bytes_.damaged("the compressed data is damaged");
      }
      if (room > stream_.avail_out) {
        return std::size_t{room - stream_.avail_out};
      }
    }
  }
  [[nodiscard]] std::uint64_t consumed() const override { return bytes_.consumed(); }

 private:
  PackedBytes bytes_;
  z_stream stream_ = {};
  bool usable_ = false;
  bool inside_ = false;  ///< A member has begun.
  bool full_ = false;
};

class ZstdSource : public ByteSource {
 public:
  explicit ZstdSource(InputFile file)
      : bytes_(std::move(file)), stream_(ZSTD_createDStream(), ZSTD_freeDStream) {}

  Result<std::size_t> read(std::span<char> out) override {
    if (!stream_) {
      return failure("no memory to decompress with");
    }
    while (true) {
      const auto more = bytes_.refill();
      TRAIN_RETURN_IF_ERROR(more);
      if (!*more && !full_) {
        if (inside_) {
          return bytes_.damaged("the compressed data ends too early");
        }
        return std::size_t{0};
      }
      ZSTD_inBuffer in = {bytes_.left().data(), bytes_.left().size(), 0};
      ZSTD_outBuffer to = {out.data(), out.size(), 0};
      const std::size_t code = ZSTD_decompressStream(stream_.get(), &to, &in);
      bytes_.use(in.pos);
      if (ZSTD_isError(code) != 0) {
        return bytes_.damaged("the compressed data is damaged");
      }
      inside_ = code != 0;
      full_ = inside_ && to.pos == to.size;  // There may be more of it in the stream.
      if (to.pos > 0) {
        return to.pos;
      }
    }
  }
  [[nodiscard]] std::uint64_t consumed() const override { return bytes_.consumed(); }

 private:
  PackedBytes bytes_;
  std::unique_ptr<ZSTD_DStream, std::size_t (*)(ZSTD_DStream*)> stream_;
  bool inside_ = false;  ///< A frame has begun.
  bool full_ = false;
};

}  // namespace

Result<std::unique_ptr<ByteSource>> open_byte_source(const std::filesystem::path& path) {
  auto file = InputFile::open(path);
  TRAIN_RETURN_IF_ERROR(file);
  const std::filesystem::path end = path.extension();
  if (end == ".parquet") {
    return open_parquet_source(path);
  }
  std::unique_ptr<ByteSource> source;
  if (end == ".gz") {
    source = std::make_unique<GzipSource>(std::move(*file));
  } else if (end == ".zst") {
    source = std::make_unique<ZstdSource>(std::move(*file));
  } else {
    source = std::make_unique<PlainSource>(std::move(*file));
  }
  return source;
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
