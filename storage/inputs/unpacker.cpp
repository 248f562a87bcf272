#include "storage/inputs/unpacker.hpp"

#include <bzlib.h>
#include <lzma.h>
#define ZLIB_CONST
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace train::storage {
namespace {

/// Bytes passed to a library at a time: some count in 32 bits.
constexpr std::size_t kUnpackedPieceBytes = std::size_t{1} << 20;
constexpr const char* kIsDamaged = "the compressed data is damaged";
constexpr const char* kNoMemory = "not enough memory to decompress it";

/// gzip: consecutive members. Zeros may follow each, as on tapes and block devices, and are skipped
/// as the program gzip does.
class GzipUnpacker : public Unpacker {
 public:
  // 15 bits of window, plus 16: a gzip header.
  GzipUnpacker() : usable_(inflateInit2(&stream_, 15 + 16) == Z_OK) {}
  GzipUnpacker(const GzipUnpacker&) = delete;
  GzipUnpacker& operator=(const GzipUnpacker&) = delete;
  ~GzipUnpacker() override { inflateEnd(&stream_); }

  Unpacked unpack(std::span<const char> in, std::span<char> out) override {
    if (!usable_) {
      return {.fault = kNoMemory};
    }
    if (behind_member_) {
      const auto* const next =
          std::find_if(in.begin().base(), in.end().base(), [](char byte) { return byte != '\0'; });
      const auto zeros = static_cast<std::size_t>(next - in.data());
      behind_member_ = zeros == in.size();
      if (zeros > 0 || in.empty()) {
        return {.used = zeros};
      }
    }
    stream_.next_in = reinterpret_cast<const Bytef*>(in.data());
    stream_.avail_in = static_cast<uInt>(in.size());
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(std::min(out.size(), kUnpackedPieceBytes));
    const uInt room = stream_.avail_out;
    const int code = inflate(&stream_, Z_NO_FLUSH);
    const bool sound = code == Z_OK || code == Z_STREAM_END || code == Z_BUF_ERROR;
    const Unpacked done{.used = in.size() - stream_.avail_in,
                        .made = room - stream_.avail_out,
                        .inside = code != Z_STREAM_END,
                        .has_more = stream_.avail_out == 0 && code == Z_OK,
                        .fault = sound                 ? nullptr
                                 : code == Z_MEM_ERROR ? kNoMemory
                                                       : kIsDamaged};
    if (code == Z_STREAM_END) {
      inflateReset(&stream_);
      behind_member_ = true;
    }
    return done;
  }

 private:
  z_stream stream_ = {};
  bool usable_ = false;
  bool behind_member_ = false;
};

/// Zstandard: consecutive frames, with any window size of the format.
class ZstdUnpacker : public Unpacker {
 public:
  ZstdUnpacker() {
    if (stream_ != nullptr) {
      ZSTD_DCtx_setParameter(stream_.get(), ZSTD_d_windowLogMax,
                             ZSTD_dParam_getBounds(ZSTD_d_windowLogMax).upperBound);
    }
  }

  Unpacked unpack(std::span<const char> in, std::span<char> out) override {
    if (stream_ == nullptr) {
      return {.fault = kNoMemory};
    }
    ZSTD_inBuffer from = {in.data(), in.size(), 0};
    ZSTD_outBuffer to = {out.data(), out.size(), 0};
    const std::size_t code = ZSTD_decompressStream(stream_.get(), &to, &from);
    const char* fault = nullptr;
    if (ZSTD_isError(code) != 0) {
      fault = ZSTD_getErrorCode(code) == ZSTD_error_memory_allocation ? kNoMemory : kIsDamaged;
    }
    return {.used = from.pos,
            .made = to.pos,
            .inside = code != 0,
            .has_more = code != 0 && to.pos == to.size,
            .fault = fault};
  }

 private:
  std::unique_ptr<ZSTD_DStream, std::size_t (*)(ZSTD_DStream*)> stream_{ZSTD_createDStream(),
                                                                        ZSTD_freeDStream};
};

/// xz: consecutive streams, with the format's padding between them.
class XzUnpacker : public Unpacker {
 public:
  XzUnpacker() : usable_(lzma_stream_decoder(&stream_, UINT64_MAX, LZMA_CONCATENATED) == LZMA_OK) {}
  XzUnpacker(const XzUnpacker&) = delete;
  XzUnpacker& operator=(const XzUnpacker&) = delete;
  ~XzUnpacker() override { lzma_end(&stream_); }

  Unpacked unpack(std::span<const char> in, std::span<char> out) override {
    if (!usable_) {
      return {.fault = kNoMemory};
    }
    stream_.next_in = reinterpret_cast<const std::uint8_t*>(in.data());
    stream_.avail_in = in.size();
    stream_.next_out = reinterpret_cast<std::uint8_t*>(out.data());
    stream_.avail_out = out.size();
    // Without input the file has ended: the library then reports whether its last stream is
    // complete.
    const lzma_ret code = lzma_code(&stream_, in.empty() ? LZMA_FINISH : LZMA_RUN);
    const bool sound = code == LZMA_OK || code == LZMA_STREAM_END || code == LZMA_BUF_ERROR;
    return {.used = in.size() - stream_.avail_in,
            .made = out.size() - stream_.avail_out,
            .inside = code != LZMA_STREAM_END,
            .has_more = code == LZMA_OK,
            .fault = sound                    ? nullptr
                     : code == LZMA_MEM_ERROR ? kNoMemory
                                              : kIsDamaged};
  }

 private:
  lzma_stream stream_ = LZMA_STREAM_INIT;
  bool usable_ = false;
};

/// bzip2: consecutive streams.
class Bzip2Unpacker : public Unpacker {
 public:
  Bzip2Unpacker() { begin(); }
  Bzip2Unpacker(const Bzip2Unpacker&) = delete;
  Bzip2Unpacker& operator=(const Bzip2Unpacker&) = delete;
  ~Bzip2Unpacker() override { BZ2_bzDecompressEnd(&stream_); }

  Unpacked unpack(std::span<const char> in, std::span<char> out) override {
    if (!usable_) {
      return {.fault = kNoMemory};
    }
    // The library does not write to its input, although the type lacks const.
    stream_.next_in = const_cast<char*>(in.data());
    stream_.avail_in = static_cast<unsigned>(in.size());
    stream_.next_out = out.data();
    stream_.avail_out = static_cast<unsigned>(std::min(out.size(), kUnpackedPieceBytes));
    const unsigned room = stream_.avail_out;
    const int code = BZ2_bzDecompress(&stream_);
    const bool sound = code == BZ_OK || code == BZ_STREAM_END;
    const Unpacked done{.used = in.size() - stream_.avail_in,
                        .made = room - stream_.avail_out,
                        .inside = code != BZ_STREAM_END,
                        .has_more = stream_.avail_out == 0 && code == BZ_OK,
                        .fault = sound                  ? nullptr
                                 : code == BZ_MEM_ERROR ? kNoMemory
                                                        : kIsDamaged};
    if (code == BZ_STREAM_END) {
      BZ2_bzDecompressEnd(&stream_);
      begin();
    }
    return done;
  }

 private:
  void begin() {
    stream_ = {};
    usable_ = BZ2_bzDecompressInit(&stream_, 0, 0) == BZ_OK;
  }

  bz_stream stream_ = {};
  bool usable_ = false;
};

template <class Kind>
std::unique_ptr<Unpacker> make_unpacker() {
  return std::make_unique<Kind>();
}

bool begins_zstd(std::string_view head) {
  // A frame, or a skippable one (0x184D2A50 to 5F), which some tools put first.
  return head.starts_with("\x28\xb5\x2f\xfd") ||
         (head.size() >= 4 && (head[0] & '\xf0') == '\x50' && head.substr(1, 3) == "\x2a\x4d\x18");
}

bool begins_bzip2(std::string_view head) {
  // Text may begin with "BZh" and a digit too, but not a block or the end of an empty stream.
  return head.size() >= 10 && head.starts_with("BZh") && head[3] >= '1' && head[3] <= '9' &&
         (head.substr(4, 6) == "1AY&SY" || head.substr(4, 6) == "\x17\x72\x45\x38\x50\x90");
}

constexpr auto kPackedFormatTable = std::to_array<PackedFormat>(
    {{"gzip", ".gz", [](std::string_view head) { return head.starts_with("\x1f\x8b\x08"); },
      make_unpacker<GzipUnpacker>},
     {"Zstandard", ".zst", begins_zstd, make_unpacker<ZstdUnpacker>},
     {"xz", ".xz",
      [](std::string_view head) {
        return head.starts_with(
            std::string_view("\xfd"
                             "7zXZ\0",
                             6));
      },
      make_unpacker<XzUnpacker>},
     {"bzip2", ".bz2", begins_bzip2, make_unpacker<Bzip2Unpacker>}});

}  // namespace

std::span<const PackedFormat> packed_formats() { return kPackedFormatTable; }

const PackedFormat* packed_format_of(std::string_view head) {
  const auto* const found =
      std::find_if(kPackedFormatTable.begin(), kPackedFormatTable.end(),
                   [&](const PackedFormat& format) { return format.begins(head); });
  return found == kPackedFormatTable.end() ? nullptr : found;
}

}  // namespace train::storage
