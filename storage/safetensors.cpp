#include "storage/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "storage/safetensors_header.hpp"

namespace train::storage {
namespace {

constexpr std::size_t length_bytes = 8;

Error malformed(const MappedFile& file, std::string_view reason) {
  return failure(
      fmt::format("{} is not a usable safetensors file: {}", file.path().string(), reason));
}

/// Empty if the entries, sorted by offset, cover [0, data_bytes) exactly once and fit their shapes.
std::string layout_defect(std::span<const TensorEntry> entries, std::uint64_t data_bytes) {
  std::uint64_t expected = 0;
  for (const TensorEntry& entry : entries) {
    const auto wanted = tensor_size_bytes(entry.dtype, entry.shape);
    if (!wanted) {
      return fmt::format("tensor \"{}\": dtype \"{}\" unknown, or shape negative or too large",
                         entry.name, entry.dtype);
    }
    if (entry.begin != expected || entry.end < entry.begin || entry.end > data_bytes) {
      return fmt::format("tensor \"{}\": bytes {} to {}, where {} was due of {}: {}", entry.name,
                         entry.begin, entry.end, expected, data_bytes,
                         entry.begin < expected ? "overlap" : "hole or past the end");
    }
    if (entry.end - entry.begin != *wanted) {
      return fmt::format("tensor \"{}\": {} bytes, but its shape needs {}", entry.name,
                         entry.end - entry.begin, *wanted);
    }
    expected = entry.end;
  }
  if (expected != data_bytes) {
    return fmt::format("tensors end at byte {} of {}", expected, data_bytes);
  }
  return {};
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  auto file = MappedFile::open(path);
  if (!file) {
    return file.error();
  }
  return parse(std::move(*file));
}

Result<SafetensorsFile> SafetensorsFile::parse(MappedFile file) {
  const std::span<const std::byte> bytes = file.bytes();
  if (bytes.size() < length_bytes) {
    return malformed(file, fmt::format("{} bytes, too few for a header", bytes.size()));
  }
  std::uint64_t header_bytes = 0;
  for (std::size_t i = 0; i < length_bytes; ++i) {
    header_bytes |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  }
  if (header_bytes > header_limit_bytes || header_bytes > bytes.size() - length_bytes) {
    return malformed(file, fmt::format("header of {} bytes in a file of {} (limit {})",
                                       header_bytes, bytes.size(), header_limit_bytes));
  }
  const auto header = bytes.subspan(length_bytes, header_bytes);
  auto parsed =
      parse_safetensors_header({reinterpret_cast<const char*>(header.data()), header.size()});
  if (!parsed) {
    return malformed(file, parsed.error().message);
  }
  SafetensorsFile result(std::move(file));
  result.data_start_ = length_bytes + header_bytes;
  result.entries_ = std::move(parsed->entries);
  result.metadata_ = std::move(parsed->metadata);
  std::sort(result.entries_.begin(), result.entries_.end(),
            [](const TensorEntry& a, const TensorEntry& b) {
              return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
            });
  if (const std::string defect =
          layout_defect(result.entries_, result.file_.bytes().size() - result.data_start_);
      !defect.empty()) {
    return malformed(result.file_, defect);
  }
  return result;
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [name](const TensorEntry& entry) { return entry.name == name; });
  return found == entries_.end() ? nullptr : &*found;
}

std::span<const std::byte> SafetensorsFile::bytes(const TensorEntry& entry) const {
  return file_.bytes().subspan(data_start_ + entry.begin, entry.end - entry.begin);
}

}  // namespace train::storage
