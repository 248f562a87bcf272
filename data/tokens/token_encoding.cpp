#include "data/tokens/token_encoding.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

#include "storage/files/input_file.hpp"
#include "storage/inputs/binary_content.hpp"
#include "storage/inputs/unpacker.hpp"

namespace train::data {
namespace {

namespace fs = std::filesystem;

/// Little-endian number in a file.
std::uint64_t number_at(std::span<const std::byte> bytes, std::size_t at, std::size_t width) {
  std::uint64_t value = 0;
  for (std::size_t i = width; i-- > 0;) {
    value = (value << 8U) | std::to_integer<std::uint64_t>(bytes[at + i]);
  }
  return value;
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Error token_error(const TokenFile& file, const std::string& text) {
  return user_error(fmt::format("{}: {}", file.path.string(), text));
}

// llm.c and modded-nanogpt: 256 words of 32 bits (magic, version, tokens), then the ids.

constexpr std::size_t kLlmcHeaderBytes = 1024;

struct LlmcKind {
  std::uint64_t magic;
  std::uint64_t version;
  std::int64_t token_bytes;
};
constexpr auto kLlmcKinds = std::to_array<LlmcKind>({{20240520, 1, 2}, {20240801, 7, 4}});

/// Magic numbers of its files are dates.
constexpr std::uint64_t kLlmcFirstDay = 20'240'000;
constexpr std::uint64_t kLlmcLastDay = 20'991'231;

/// True if a file begins with any kind of llm.c header: a magic number never occurs as first id.
/// Programs that read these files check only magic and version.
bool has_llmc_header(const TokenFile& file) {
  if (file.bytes.size() < 12) {
    return false;
  }
  const std::uint64_t magic = number_at(file.bytes, 0, 4);
  const std::uint64_t version = number_at(file.bytes, 4, 4);
  const auto rest = file.bytes.subspan(12, std::min(kLlmcHeaderBytes, file.bytes.size()) - 12);
  const bool is_known = std::any_of(
      kLlmcKinds.begin(), kLlmcKinds.end(),
      [&](const LlmcKind& kind) { return kind.magic == magic && kind.version == version; });
  // Other kinds have a few more numbers: at most a quarter is non-zero.
  const auto said =
      std::count_if(rest.begin(), rest.end(), [](std::byte byte) { return byte != std::byte{0}; });
  return is_known || (magic >= kLlmcFirstDay && magic <= kLlmcLastDay && version < 100 &&
                      rest.size() > 64 && 4 * static_cast<std::size_t>(said) < rest.size());
}

Result<TokenEncoding> read_llmc(const TokenFile& file) {
  const std::uint64_t magic = number_at(file.bytes, 0, 4);
  const auto* const found = std::find_if(kLlmcKinds.begin(), kLlmcKinds.end(),
                                         [&](const LlmcKind& each) { return each.magic == magic; });
  if (found == kLlmcKinds.end()) {
    return token_error(file, fmt::format("has an llm.c header with the number {}, but token files "
                                         "have 20240520 or 20240801; give the token files",
                                         magic));
  }
  if (file.bytes.size() < kLlmcHeaderBytes) {
    return token_error(file, "its header (llm.c's) is cut off; copy it again");
  }
  const LlmcKind& kind = *found;
  const std::uint64_t version = number_at(file.bytes, 4, 4);
  const std::uint64_t said = number_at(file.bytes, 8, 4);
  const std::uint64_t data_bytes = file.bytes.size() - kLlmcHeaderBytes;
  const auto width = static_cast<std::uint64_t>(kind.token_bytes);
  if (version != kind.version) {
    return token_error(file, fmt::format("has an llm.c header of version {}, but only {} is "
                                         "supported; write it again with a current version",
                                         version, kind.version));
  }
  // For more than 2^32 tokens the header holds the lower half.
  if (data_bytes % width != 0 || (data_bytes / width) % (std::uint64_t{1} << 32U) != said) {
    return token_error(
        file, fmt::format("its header (llm.c's) says {} tokens of {} bytes, but {} bytes "
                          "follow it: the file is truncated, or files were joined; write it again",
                          said, width, data_bytes));
  }
  return TokenEncoding{kLlmcHeaderBytes, data_bytes / width, kind.token_bytes};
}

// NumPy: the header is the text of a Python dictionary.

constexpr std::string_view kNumpyMagic = "\x93NUMPY";

/// Value of `key` in the header, up to `end`.
std::string_view numpy_value(std::string_view header, std::string_view key, std::string_view end) {
  const std::size_t at = header.find(key);
  if (at == std::string_view::npos) {
    return {};
  }
  header.remove_prefix(at + key.size());
  header.remove_prefix(std::min(header.find_first_not_of(": '"), header.size()));
  return header.substr(0, header.find(end));
}

Result<TokenEncoding> read_numpy(const TokenFile& file) {
  if (file.path.extension() != ".npy") {
    return token_error(file, "is a NumPy array; name it .npy, and it is read as one");
  }
  const bool is_long = file.bytes.size() > 12 && file.bytes[6] != std::byte{1};
  const std::size_t length_bytes = is_long ? 4 : 2;
  const std::size_t begin = 8 + length_bytes;
  const std::uint64_t length =
      file.bytes.size() < begin ? 0 : number_at(file.bytes, 8, length_bytes);
  if (length == 0 || length > file.bytes.size() - begin) {
    return token_error(file, "its header (NumPy's) is truncated; write it again");
  }
  const std::string_view header = text_of(file.bytes.subspan(begin, length));
  const std::string_view type = numpy_value(header, "'descr'", "'");
  const std::string_view shape = numpy_value(header, "'shape'", ")");
  const bool is_order = type.starts_with('<') || (type.starts_with('|') && type.ends_with('1'));
  const std::string_view kind = type.substr(std::min<std::size_t>(1, type.size()));
  constexpr std::string_view widths = "1248";
  if (!is_order || kind.size() != 2 || (kind[0] != 'u' && kind[0] != 'i') ||
      widths.find(kind[1]) == std::string_view::npos) {
    return token_error(file, fmt::format("holds elements of type \"{}\", but ids must be "
                                         "little-endian integers; save it with `.astype('<u4')`",
                                         type));
  }
  if (std::count(shape.begin(), shape.end(), ',') != 1 || !shape.ends_with(',')) {
    return token_error(file, fmt::format("has the shape {}), but ids must be one-dimensional; save "
                                         "it with `.reshape(-1)`, without padding",
                                         shape));
  }
  const auto width = static_cast<std::int64_t>(kind[1] - '0');
  const std::uint64_t first = begin + length;
  const std::uint64_t tokens = (file.bytes.size() - first) / static_cast<std::uint64_t>(width);
  const std::string said(shape.substr(1, shape.size() - 2));
  if (said != std::to_string(tokens) ||
      (file.bytes.size() - first) % static_cast<std::uint64_t>(width) != 0) {
    return token_error(file, fmt::format("its header (NumPy's) says {} elements, but {} bytes "
                                         "of {} each follow it: cut short, or put together; copy "
                                         "it again",
                                         said, file.bytes.size() - first, width));
  }
  return TokenEncoding{first, tokens, width};
}

// Megatron: an index beside the ids, with their type and the length and place of every document.

constexpr std::string_view kMegatronMagic = std::string_view("MMIDIDX\0\0", 9);
constexpr std::size_t kMegatronHeaderBytes = 34;  // Magic, version, type, sequences, documents.
/// Bytes per token by type code; 0: not ids.
constexpr std::array<std::int64_t, 9> kMegatronWidths = {0, 1, 1, 2, 4, 8, 0, 0, 2};

Result<TokenEncoding> read_megatron(const TokenFile& file, const fs::path& index_path) {
  const auto wrong = [&](const std::string& text) {
    return user_error(fmt::format("{}: {}", index_path.string(), text));
  };
  const auto index = TRAIN_TRY(storage::InputFile::open(index_path));
  const auto mapping = TRAIN_TRY(index.map());
  const std::span<const std::byte> bytes(mapping.get(), index.size_bytes());
  if (bytes.size() < kMegatronHeaderBytes || !text_of(bytes).starts_with(kMegatronMagic) ||
      number_at(bytes, 9, 8) != 1) {
    return wrong(
        "is not a Megatron index of version 1, but has the name of one next to a token file; "
        "remove it if it does not belong to that file, or write both again");
  }
  const auto code = std::to_integer<std::size_t>(bytes[17]);
  const std::int64_t width = code < kMegatronWidths.size() ? kMegatronWidths[code] : 0;
  if (width == 0) {
    return wrong(
        fmt::format("says type {}, which is not a type of ids; prepare the text again", code));
  }
  const std::uint64_t sequences = number_at(bytes, 18, 8);
  const std::uint64_t documents = number_at(bytes, 26, 8);
  const std::uint64_t room = bytes.size() - kMegatronHeaderBytes;
  if (sequences > room / 12 || documents > room / 8 || sequences * 12 + documents * 8 > room) {
    return wrong("is cut short; copy it again");
  }
  std::uint64_t next = 0;
  for (std::uint64_t i = 0; i < sequences; ++i) {
    const std::uint64_t at = kMegatronHeaderBytes + 4 * sequences + 8 * i;
    if (number_at(bytes, at, 8) != next) {
      return wrong(
          fmt::format("sequence {} does not begin where the previous one ends: sequences must "
                      "be in the order of the file; write both files again",
                      i));
    }
    next += number_at(bytes, kMegatronHeaderBytes + 4 * i, 4) * static_cast<std::uint64_t>(width);
  }
  if (next != file.bytes.size()) {
    return wrong(fmt::format("says {} bytes of tokens, but {} has {}; copy both again", next,
                             file.path.filename().string(), file.bytes.size()));
  }
  return TokenEncoding{0, next / static_cast<std::uint64_t>(width), width};
}

// Plain ids.

/// Words examined at each end.
constexpr std::size_t kSampleWords = std::size_t{1} << 15;
/// Fewer words are inconclusive.
constexpr std::size_t kSampleWordsLeast = 64;
/// Vocabularies have fewer ids than this times 65536.
constexpr std::uint64_t kHighHalfMost = 4;

/// Words from both ends of a file, aligned to multiples of `group`.
std::vector<std::uint64_t> sampled_words(std::span<const std::byte> bytes, std::size_t width,
                                         std::size_t group) {
  const std::size_t count = bytes.size() / width / group * group;
  std::vector<std::uint64_t> words;
  for (std::size_t i = 0; i < count; ++i) {
    if (i == kSampleWords && count > 2 * kSampleWords) {
      i = count - kSampleWords;
    }
    words.push_back(number_at(bytes, i * width, width));
  }
  return words;
}

/// True if the words are lower and upper halves of ids twice as wide: all upper ones are small, or
/// those of -1, and most lower ones are non-zero. If the words are ids of the vocabulary (0:
/// unknown) and the wide numbers are not, the words count.
bool are_halves(std::span<const std::uint64_t> words, std::uint64_t all_ones,
                std::int64_t vocab_size) {
  bool ids_below = false;
  bool zeros_above = true;
  bool halves_fit = true;
  bool wholes_fit = true;
  const std::uint64_t vocab =
      vocab_size > 0 ? static_cast<std::uint64_t>(vocab_size) : ~std::uint64_t{0};
  std::size_t said = 0;
  for (std::size_t i = 0; i + 1 < words.size(); i += 2) {
    const bool is_negative = words[i + 1] == all_ones && words[i] > all_ones - 1024;
    if (!is_negative && words[i + 1] > kHighHalfMost) {
      return false;
    }
    halves_fit = halves_fit && words[i] < vocab && words[i + 1] < vocab;
    wholes_fit = wholes_fit && words[i + 1] * (all_ones + 1) + words[i] < vocab;
    ids_below = ids_below || words[i] > kHighHalfMost;
    zeros_above = zeros_above && words[i + 1] == 0;
    said += words[i] != 0 ? 1 : 0;
  }
  return (ids_below || zeros_above) && (wholes_fit || !halves_fit) && 8 * said >= words.size() &&
         words.size() >= kSampleWordsLeast;
}

/// True if the words are floats that hold ids: integers, not all of them 0 or 1.
template <class Float>
bool are_floats(std::span<const std::uint64_t> words) {
  constexpr double id_most = 1 << 20;
  bool says = false;
  for (const std::uint64_t word : words) {
    const auto bits =
        static_cast<std::conditional_t<sizeof(Float) == 4, std::uint32_t, std::uint64_t>>(word);
    const auto value = static_cast<double>(std::bit_cast<Float>(bits));
    if (!(value >= 0 && value < id_most) || value != std::floor(value)) {
      return false;
    }
    says = says || value > 1;
  }
  return says && words.size() >= kSampleWordsLeast / 2;
}

/// Width of big-endian ids of which the words are halves, if they are.
int swapped_bytes(std::span<const std::uint64_t> words) {
  for (const std::size_t group : {4U, 2U}) {
    bool zeros_first = true;
    for (std::size_t i = 0; i < words.size(); ++i) {
      zeros_first = zeros_first && (i % group == group - 1 || words[i] == 0);
    }
    if (zeros_first) {
      return static_cast<int>(2 * group);
    }
  }
  return 2;
}

bool is_swapped(const TokenFile& file, std::span<const std::uint64_t> words) {
  const auto vocab = static_cast<std::uint64_t>(file.vocab_size);
  const auto swapped = [](std::uint64_t word) { return ((word & 0xffU) << 8U) | (word >> 8U); };
  return vocab > 0 && words.size() >= kSampleWordsLeast &&
         std::any_of(words.begin(), words.end(), [&](auto word) { return word >= vocab; }) &&
         std::all_of(words.begin(), words.end(), [&](auto word) { return swapped(word) < vocab; });
}

bool is_printable(std::string_view head) {
  return head.size() >= 2 * kSampleWordsLeast &&
         std::all_of(head.begin(), head.end(), [](char letter) {
           return (letter >= ' ' && letter <= '~') || letter == '\n' || letter == '\t' ||
                  letter == '\r';
         });
}

/// Error: the ids are stored as floats.
Status check_floats(const TokenFile& file) {
  const bool is_double = are_floats<double>(sampled_words(file.bytes, 8, 1));
  if (!is_double && !are_floats<float>(sampled_words(file.bytes, 4, 1))) {
    return {};
  }
  const int bytes = is_double ? 8 : 4;
  return token_error(
      file, fmt::format("holds floats of {} bits that are whole numbers, not integers; write them "
                        "with `np.fromfile(FILE, '<f{}').astype('<u2').tofile(OUT)`",
                        8 * bytes, bytes));
}

/// Advice for ids that look like another width but are of this one.
std::string if_they_are(std::int64_t width) {
  return fmt::format(
      "if they are uint{} all the same, give them with that type in the place of this file: "
      "`np.save('train.npy', np.fromfile(FILE, '<u{}'))`",
      8 * width, width);
}

/// Error: the bytes show that they are not ids of that width.
Status check_plain(const TokenFile& file, std::int64_t width) {
  constexpr std::size_t head_bytes = 4096;
  const std::string_view head = text_of(file.bytes.first(std::min(head_bytes, file.bytes.size())));
  if (const storage::PackedFormat* const format = storage::packed_format_of(head)) {
    return token_error(file,
                       fmt::format("is compressed by {}, and tokens are read in place; unpack "
                                   "it first",
                                   format->name));
  }
  if (const std::string binary = storage::binary_content(head, /*shortest=*/4); !binary.empty()) {
    return token_error(file, fmt::format("is {}", binary));
  }
  if (is_printable(head)) {
    return token_error(file, "is text, not ids; tokenize it with `actortrain data prepare`");
  }
  TRAIN_RETURN_IF_ERROR(check_floats(file));
  const auto words = sampled_words(file.bytes, 2, 4);
  if (width == 2 && are_halves(words, 0xffff, file.vocab_size)) {
    std::vector<std::uint64_t> wide = sampled_words(file.bytes, 4, 2);
    return token_error(
        file, are_halves(wide, 0xffffffff, file.vocab_size)
                  ? "holds ids of 64 bits: of every four uint16 three are 0; write them as uint32 "
                    "(`np.fromfile(FILE, '<i8').astype('<u4').tofile(OUT)`) and say "
                    "\"dtype\": \"uint32\" in meta.json, or, " +
                        if_they_are(width)
                  : "holds ids of 32 bits: every second uint16 is 0, or nearly; say {\"dtype\": "
                    "\"uint32\"} in meta.json beside it, or, " +
                        if_they_are(width));
  }
  if (width == 4 && are_halves(sampled_words(file.bytes, 4, 2), 0xffffffff, file.vocab_size)) {
    return token_error(file,
                       "holds ids of 64 bits: every second uint32 is 0; write them as uint32 "
                       "(`np.fromfile(FILE, '<i8').astype('<u4').tofile(OUT)`), or, " +
                           if_they_are(width));
  }
  if (width == 2 && is_swapped(file, words)) {
    const int bytes = swapped_bytes(words);
    return token_error(
        file,
        fmt::format("holds big-endian ids: with swapped bytes they are within the vocabulary, "
                    "as stored they are not; write them as little-endian with "
                    "`np.fromfile(FILE, '>u{}').astype('<u2').tofile(OUT)`",
                    bytes));
  }
  return {};
}

Result<TokenEncoding> read_plain(const TokenFile& file) {
  const std::int64_t width = file.said_bytes.value_or(2);
  if (!file.is_ours) {
    TRAIN_RETURN_IF_ERROR(check_plain(file, width));
  }
  const auto unsigned_width = static_cast<std::uint64_t>(width);
  if (file.bytes.size() % unsigned_width != 0) {
    return token_error(
        file, fmt::format("{} bytes is not a multiple of {} (uint{} tokens): cut short, or of "
                          "another dtype; prepare it again or set dtype in meta.json",
                          file.bytes.size(), width, 8 * width));
  }
  return TokenEncoding{0, file.bytes.size() / unsigned_width, width};
}

}  // namespace

Result<TokenEncoding> token_encoding_of(const TokenFile& file) {
  if (file.is_ours) {
    return read_plain(file);
  }
  if (text_of(file.bytes).starts_with(kNumpyMagic)) {
    return read_numpy(file);
  }
  if (file.path.extension() == ".npy") {
    return token_error(file, "is named .npy, but is not a NumPy array; save it with `np.save`");
  }
  if (has_llmc_header(file)) {
    return read_llmc(file);
  }
  const fs::path index = fs::path(file.path).replace_extension(".idx");
  std::error_code ignored;  // A file that cannot be examined counts as missing.
  if (fs::exists(index, ignored)) {
    return read_megatron(file, index);
  }
  return read_plain(file);
}

}  // namespace train::data
