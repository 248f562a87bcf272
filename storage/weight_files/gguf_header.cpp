#include "storage/weight_files/gguf_header.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>

#include "storage/files/untrusted_text.hpp"

namespace train::storage {
namespace {

constexpr std::size_t kGgufWindowBytes = std::size_t{64} << 10;
constexpr std::uint64_t kGgufStringLimit = std::uint64_t{64} << 20;
constexpr std::uint64_t kGgufNameLimit = std::uint64_t{64} << 10;
constexpr std::uint32_t kGgufRankLimit = 4;
constexpr std::uint32_t kGgufMagic = 0x4655'4747;  // "GGUF"
constexpr std::uint64_t kGgufDefaultAlignment = 32;
// Least bytes of a key with its value, and of a tensor in the table.
constexpr std::uint64_t kGgufKeyBytes = 8 + 4 + 1;
constexpr std::uint64_t kGgufTensorBytes = 8 + 4 + 4 + 8;

enum class ValueKind : std::uint32_t {
  uint8,
  int8,
  uint16,
  int16,
  uint32,
  int32,
  float32,
  boolean,
  string,
  array,
  uint64,
  int64,
  float64,
};

/// Calls `use(T{})` with the C++ type of a number in the file. False: not a number.
template <class Use>
bool with_number_type(ValueKind kind, const Use& use) {
  switch (kind) {
    case ValueKind::uint8:
      return use(std::uint8_t{}), true;
    case ValueKind::int8:
      return use(std::int8_t{}), true;
    case ValueKind::uint16:
      return use(std::uint16_t{}), true;
    case ValueKind::int16:
      return use(std::int16_t{}), true;
    case ValueKind::uint32:
      return use(std::uint32_t{}), true;
    case ValueKind::int32:
      return use(std::int32_t{}), true;
    case ValueKind::float32:
      return use(float{}), true;
    case ValueKind::uint64:
      return use(std::uint64_t{}), true;
    case ValueKind::int64:
      return use(std::int64_t{}), true;
    case ValueKind::float64:
      return use(double{}), true;
    default:
      return false;
  }
}

/// Type in GgufValue for a number of type T.
template <class T>
using WideNumber =
    std::conditional_t<std::is_floating_point_v<T>, double,
                       std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>>;

/// Reads from the file's start through a small window. After the first error every read returns
/// zero or empty, so callers check only before long loops.
class GgufCursor {
 public:
  explicit GgufCursor(const InputFile& file)
      : file_(file), end_(std::min(file.size_bytes(), kGgufHeaderLimitBytes)) {}

  template <class T>
  T number() {
    T value{};
    read(std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }

  bool boolean() {
    const auto value = number<std::uint8_t>();
    if (value > 1) {
      stop(fmt::format("a boolean is {}", value));
    }
    return value == 1;
  }

  std::string string(std::uint64_t limit_bytes) {
    const auto size = number<std::uint64_t>();
    if (size > limit_bytes || size > rest()) {
      stop(fmt::format("a string of {} bytes before byte {} of {}", size, position_, end_));
    }
    std::string text(failed() ? 0 : static_cast<std::size_t>(size), '\0');
    read(std::as_writable_bytes(std::span(text)));
    return failed() ? std::string() : text;
  }

  /// Count of items of at least `each_bytes`.
  std::uint64_t count(std::string_view what, std::uint64_t each_bytes, std::uint64_t limit) {
    const auto value = number<std::uint64_t>();
    if (value > limit || value > rest() / each_bytes) {
      stop(fmt::format("{} {} in a file of {} bytes (limit {})", value, what, file_.size_bytes(),
                       limit));
    }
    return failed() ? 0 : value;
  }

  void stop(std::string reason) {
    if (!error_) {
      error_ = failure(std::move(reason));
    }
  }
  [[nodiscard]] bool failed() const { return error_.has_value(); }
  [[nodiscard]] const Error& error() const { return *error_; }
  [[nodiscard]] std::uint64_t position() const { return position_; }

 private:
  [[nodiscard]] std::uint64_t rest() const { return end_ - position_; }

  void read(std::span<std::byte> out) {
    if (!failed() && out.size() > rest()) {
      stop(end_ < file_.size_bytes()
               ? fmt::format("metadata and tensor table of more than {} bytes", end_)
               : fmt::format("it ends at byte {}, in the middle of its table", end_));
    }
    while (!failed() && !out.empty()) {
      const std::uint64_t inside = position_ - window_begin_;
      if (inside >= window_.size()) {
        fill();
        continue;
      }
      const auto at = static_cast<std::size_t>(inside);
      const std::size_t size = std::min(out.size(), window_.size() - at);
      std::memcpy(out.data(), window_.data() + at, size);
      out = out.subspan(size);
      position_ += size;
    }
  }

  void fill() {
    window_begin_ = position_;
    window_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(kGgufWindowBytes, rest())));
    if (auto status = file_.read(position_, window_); !status) {
      error_ = status.error();
    }
  }

  const InputFile& file_;
  std::uint64_t end_;
  std::uint64_t position_ = 0;
  std::uint64_t window_begin_ = 0;
  std::vector<std::byte> window_;
  std::optional<Error> error_;
};

template <class T, class Read>
GgufValue read_elements(GgufCursor& cursor, std::uint64_t count, const Read& read) {
  std::vector<T> values;
  values.reserve(static_cast<std::size_t>(count));
  for (std::uint64_t i = 0; i < count && !cursor.failed(); ++i) {
    values.push_back(read());
  }
  return values;
}

/// `elements_left`: rest of the limit on all arrays.
GgufValue read_array(GgufCursor& cursor, std::uint64_t& elements_left) {
  const auto kind = static_cast<ValueKind>(cursor.number<std::uint32_t>());
  std::uint64_t each_bytes = kind == ValueKind::string ? 8 : 1;
  with_number_type(kind, [&](auto zero) { each_bytes = sizeof zero; });
  const std::uint64_t count = cursor.count("elements of an array", each_bytes, elements_left);
  elements_left -= count;
  GgufValue values = false;
  const bool numbers = with_number_type(kind, [&](auto zero) {
    using Number = decltype(zero);
    values = read_elements<WideNumber<Number>>(
        cursor, count, [&] { return WideNumber<Number>{cursor.number<Number>()}; });
  });
  if (kind == ValueKind::boolean) {
    values = read_elements<bool>(cursor, count, [&] { return cursor.boolean(); });
  } else if (kind == ValueKind::string) {
    values =
        read_elements<std::string>(cursor, count, [&] { return cursor.string(kGgufStringLimit); });
  } else if (!numbers) {
    cursor.stop(fmt::format("an array of values of kind {}", static_cast<std::uint32_t>(kind)));
  }
  return values;
}

GgufValue read_value(GgufCursor& cursor, std::uint64_t& elements_left) {
  const auto kind = static_cast<ValueKind>(cursor.number<std::uint32_t>());
  if (kind == ValueKind::boolean) {
    return cursor.boolean();
  }
  if (kind == ValueKind::string) {
    return cursor.string(kGgufStringLimit);
  }
  if (kind == ValueKind::array) {
    return read_array(cursor, elements_left);
  }
  GgufValue value = false;
  const bool number = with_number_type(kind, [&](auto zero) {
    value = WideNumber<decltype(zero)>{cursor.number<decltype(zero)>()};
  });
  if (!number) {
    cursor.stop(fmt::format("a value of kind {}", static_cast<std::uint32_t>(kind)));
  }
  return value;
}

void read_metadata(GgufCursor& cursor, std::uint64_t keys, GgufMetadata& metadata) {
  std::uint64_t elements_left = kGgufElementLimit;
  for (std::uint64_t i = 0; i < keys && !cursor.failed(); ++i) {
    std::string key = cursor.string(kGgufNameLimit);
    GgufValue value = read_value(cursor, elements_left);
    if (cursor.failed()) {
      return;
    }
    const auto [place, added] = metadata.try_emplace(std::move(key), std::move(value));
    if (!added) {
      cursor.stop(fmt::format("key {} twice", shown(place->first)));
    }
  }
}

std::uint64_t alignment_of(GgufCursor& cursor, const GgufMetadata& metadata) {
  const auto found = metadata.find("general.alignment");
  if (found == metadata.end()) {
    return kGgufDefaultAlignment;
  }
  const auto* value = std::get_if<std::uint64_t>(&found->second);
  if (value == nullptr || !std::has_single_bit(*value) ||
      *value > std::numeric_limits<std::uint32_t>::max()) {
    cursor.stop("general.alignment is not a power of two below 2^32");
    return kGgufDefaultAlignment;
  }
  return *value;
}

/// Sets elements and bytes; empty if the shape fits the type, and both fit 63 bits.
std::string size_defect(GgufEntry& entry) {
  constexpr auto limit = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  std::uint64_t count = 1;
  for (const std::int64_t dimension : entry.shape) {
    const auto factor = static_cast<std::uint64_t>(dimension);
    if (factor > limit || (factor != 0 && count > limit / factor)) {
      return "its shape is too large";
    }
    count *= factor;
  }
  // A row begins with a block.
  const std::uint64_t row =
      entry.shape.empty() ? 1 : static_cast<std::uint64_t>(entry.shape.back());
  if (row % entry.type.block_elements != 0) {
    return fmt::format("rows of {} elements, where {} has blocks of {}", row, entry.type.name,
                       entry.type.block_elements);
  }
  const std::uint64_t blocks = count / entry.type.block_elements;
  if (blocks > limit / entry.type.block_bytes) {
    return "its shape is too large";
  }
  entry.elements_count = count;
  entry.size_bytes = blocks * entry.type.block_bytes;
  return {};
}

/// `begin` still counts from the start of the tensor data.
GgufEntry read_entry(GgufCursor& cursor) {
  GgufEntry entry;
  entry.name = cursor.string(kGgufNameLimit);
  const auto rank = cursor.number<std::uint32_t>();
  if (rank > kGgufRankLimit) {
    cursor.stop(fmt::format("tensor {} has {} dimensions", shown(entry.name), rank));
    return entry;
  }
  for (std::uint32_t i = 0; i < rank; ++i) {
    entry.shape.push_back(static_cast<std::int64_t>(cursor.number<std::uint64_t>()));
  }
  std::reverse(entry.shape.begin(), entry.shape.end());
  const auto code = cursor.number<std::uint32_t>();
  entry.begin = cursor.number<std::uint64_t>();
  const GgufType* type = find_gguf_type(code);
  if (type == nullptr) {
    cursor.stop(
        fmt::format("tensor {} is of type {}, which is not known", shown(entry.name), code));
    return entry;
  }
  entry.type = *type;
  if (const std::string defect = size_defect(entry); !defect.empty()) {
    cursor.stop(fmt::format("tensor {}: {}", shown(entry.name), defect));
  }
  return entry;
}

/// Empty if the tensors, counted from `start`, are aligned, inside the file and disjoint.
std::string gguf_layout_defect(std::vector<GgufEntry>& entries, std::uint64_t start,
                               std::uint64_t alignment, std::uint64_t file_bytes) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  for (GgufEntry& entry : entries) {
    if (entry.begin % alignment != 0) {
      return fmt::format("tensor {} begins at byte {}, which is not a multiple of {}",
                         shown(entry.name), entry.begin, alignment);
    }
    if (start > file_bytes || entry.begin > file_bytes - start ||
        entry.size_bytes > file_bytes - start - entry.begin) {
      return fmt::format("tensor {} ends past the end of the file ({} bytes); copy it again",
                         shown(entry.name), file_bytes);
    }
    entry.begin += start;
    if (entry.size_bytes > 0) {
      ranges.emplace_back(entry.begin, entry.begin + entry.size_bytes);
    }
  }
  std::sort(ranges.begin(), ranges.end());
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].first < ranges[i - 1].second) {
      return fmt::format("two tensors overlap at byte {}", ranges[i].first);
    }
  }
  return {};
}

/// Empty if all names are distinct.
std::string gguf_name_defect(std::span<const GgufEntry> entries) {
  std::vector<std::string_view> names;
  for (const GgufEntry& entry : entries) {
    names.push_back(entry.name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  return twice == names.end() ? std::string() : fmt::format("tensor {} twice", shown(*twice));
}

/// Version; stops the cursor if it is unsupported.
std::uint32_t read_version(GgufCursor& cursor) {
  const auto magic = cursor.number<std::uint32_t>();
  const auto version = cursor.number<std::uint32_t>();
  if (cursor.failed() || magic != kGgufMagic) {
    cursor.stop("it does not begin with GGUF");
  } else if (version != 0 && (version & 0xffff) == 0) {
    cursor.stop("it is big-endian; convert it for a little-endian machine");
  } else if (version != 2 && version != 3) {
    cursor.stop(fmt::format("it is of version {}; versions 2 and 3 are read", version));
  }
  return version;
}

}  // namespace

Result<GgufHeader> read_gguf_header(const InputFile& file) {
  GgufHeader header;
  GgufCursor cursor(file);
  header.version = read_version(cursor);
  const std::uint64_t tensors = cursor.count("tensors", kGgufTensorBytes, kGgufTensorLimit);
  const std::uint64_t keys = cursor.count("keys", kGgufKeyBytes, kGgufKeyLimit);
  read_metadata(cursor, keys, header.metadata);
  for (std::uint64_t i = 0; i < tensors && !cursor.failed(); ++i) {
    header.entries.push_back(read_entry(cursor));
  }
  const std::uint64_t alignment = alignment_of(cursor, header.metadata);
  const std::uint64_t start = (cursor.position() + alignment - 1) / alignment * alignment;
  if (!cursor.failed()) {
    std::string defect = gguf_name_defect(header.entries);
    if (defect.empty()) {
      defect = gguf_layout_defect(header.entries, start, alignment, file.size_bytes());
    }
    if (!defect.empty()) {
      cursor.stop(std::move(defect));
    }
  }
  if (cursor.failed()) {
    return cursor.error();
  }
  return header;
}

}  // namespace train::storage
