#include "storage/inputs/binary_content.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "storage/inputs/unpacker.hpp"
#include "storage/text/utf8.hpp"

namespace train::storage {
namespace {

constexpr const char* kUnpackFirst = "unpack it first";
constexpr const char* kGiveRows = "give its rows as lines of JSON, or as Parquet";
constexpr const char* kGiveText = "give its text";
constexpr const char* kToUtf8 = "convert it to UTF-8 first (`iconv -f UTF-16 -t UTF-8`)";

struct BinaryKind {
  std::string_view magic;
  const char* name;
  const char* advice;
};

/// One kind per line. A signature comes before those that are its prefix.
constexpr auto kBinaryKinds = std::to_array<BinaryKind>({
    {{"PK\x03\x04", 4}, "a ZIP archive", kUnpackFirst},
    {{"7z\xbc\xaf\x27\x1c", 6}, "a 7z archive", kUnpackFirst},
    {{"Rar!\x1a", 5}, "a RAR archive", kUnpackFirst},
    {{"\x04\x22\x4d\x18", 4}, "compressed by lz4", kUnpackFirst},
    {{"\x1f\x9d", 2}, "compressed by compress", kUnpackFirst},
    {{"PAR1", 4}, "Parquet within a compressed file", kUnpackFirst},
    {{"ARROW1", 6}, "an Arrow file", kGiveRows},
    {{"Obj\x01", 4}, "an Avro file", kGiveRows},
    {{"ORC\x08", 4}, "an ORC file", kGiveRows},
    {{"\x89HDF", 4}, "an HDF5 file", kGiveRows},
    {{"SQLite format 3\0", 16}, "a database of SQLite", kGiveRows},
    {{"\x93NUMPY", 6}, "a NumPy array", "token ids belong in data.dir as train.npy and val.npy"},
    {{"\x80\x03", 2}, "a pickle of Python", kGiveRows},
    {{"\x80\x04\x95", 3}, "a pickle of Python", kGiveRows},
    {{"\x80\x05\x95", 3}, "a pickle of Python", kGiveRows},
    {{"GGUF", 4}, "a GGUF model", kGiveText},
    {{"%PDF-", 5}, "a PDF document", kGiveText},
    {{"\x7f"
      "ELF",
      4},
     "a program",
     kGiveText},
    {{"\x89PNG", 4}, "a picture", kGiveText},
    {{"\xff\xd8\xff", 3}, "a picture", kGiveText},
    {{"\xff\xfe\0\0", 4}, "UTF-32", "convert it to UTF-8 first (`iconv -f UTF-32 -t UTF-8`)"},
    {{"\0\0\xfe\xff", 4}, "UTF-32", "convert it to UTF-8 first (`iconv -f UTF-32 -t UTF-8`)"},
    {{"\xff\xfe", 2}, "UTF-16", kToUtf8},
    {{"\xfe\xff", 2}, "UTF-16", kToUtf8},
});

constexpr std::size_t kTarMagicOffset = 257;

/// Arrow streams begin with the bytes of -1, as ids may too: the length of a message must follow,
/// whose first table lists the places of its members.
bool is_arrow_stream(std::string_view head) {
  constexpr std::size_t message_at = 8;
  constexpr std::uint64_t message_most = std::uint64_t{1} << 28;
  constexpr std::uint64_t members_most = 64;
  const auto number = [&](std::uint64_t at, std::size_t width) {
    std::uint64_t value = 0;
    for (std::size_t i = width; i-- > 0 && at + width <= head.size();) {
      value = (value << 8U) | static_cast<unsigned char>(head[at + i]);
    }
    return value;
  };
  if (!head.starts_with("\xff\xff\xff\xff") || head.size() < message_at + 4) {
    return false;
  }
  const std::uint64_t length = number(4, 4);
  const std::uint64_t table = message_at + number(message_at, 4);
  const std::uint64_t back = number(table, 4);
  if (length == 0 || length % 8 != 0 || length > message_most || table > length ||
      back > table - message_at) {
    return false;
  }
  const std::uint64_t places_bytes = number(table - back, 2);
  return places_bytes >= 4 && places_bytes % 2 == 0 && places_bytes <= members_most;
}

/// For ASCII text every second byte is 0, and no other.
bool is_wide_text(std::string_view head, std::size_t zeros_at) {
  constexpr std::size_t looked_at = 64;
  constexpr std::size_t least = 16;
  head = head.substr(0, std::min(head.size(), looked_at));
  for (std::size_t i = 0; i < head.size(); ++i) {
    if ((head[i] == '\0') != (i % 2 == zeros_at)) {
      return false;
    }
  }
  return head.size() >= least;
}

bool is_text_control(unsigned char byte) {
  return (byte >= 0x08 && byte <= 0x0d) || byte == 0x1b;  // Backspace to carriage return; escape.
}

}  // namespace

std::string binary_content(std::string_view head, std::size_t shortest) {
  for (const BinaryKind& kind : kBinaryKinds) {
    if (kind.magic.size() >= shortest && head.starts_with(kind.magic)) {
      return fmt::format("{}; {}", kind.name, kind.advice);
    }
  }
  if (is_arrow_stream(head)) {
    return fmt::format("an Arrow stream; {}", kGiveRows);
  }
  if (shortest == 1 && is_wide_text(head, 1)) {
    return "UTF-16; convert it to UTF-8 first (`iconv -f UTF-16LE -t UTF-8`)";
  }
  if (shortest == 1 && is_wide_text(head, 0)) {
    return "UTF-16; convert it to UTF-8 first (`iconv -f UTF-16BE -t UTF-8`)";
  }
  if (head.size() > kTarMagicOffset && head.substr(kTarMagicOffset).starts_with("ustar")) {
    return fmt::format("a tar archive; {}", kUnpackFirst);
  }
  if (const PackedFormat* const format = packed_format_of(head)) {
    return fmt::format("compressed twice, by {} within; {}", format->name, kUnpackFirst);
  }
  return {};
}

double unreadable_share(std::string_view head) {
  // A sequence cut off by the end, shorter than a character, is not invalid.
  std::size_t end = head.size();
  for (int back = 0; back < 3 && end > 0 && continues(head[end - 1]); ++back) {
    --end;
  }
  end -= end > 0 && static_cast<unsigned char>(head[end - 1]) >= 0xc0 ? 1 : 0;
  std::uint64_t breaks = 0;
  const std::string repaired = repaired_utf8(head.substr(0, end), breaks);
  std::uint64_t characters = 0;
  for (const char letter : repaired) {
    const auto byte = static_cast<unsigned char>(letter);
    characters += continues(letter) ? 0 : 1;
    breaks += (byte < 0x20 || byte == 0x7f) && !is_text_control(byte) ? 1 : 0;
  }
  return characters == 0 ? 0.0 : static_cast<double>(breaks) / static_cast<double>(characters);
}

}  // namespace train::storage
