#include "storage/safetensors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <tuple>
#include <utility>

#include "storage/files/untrusted_text.hpp"
#include "storage/safetensors_header.hpp"

namespace train::storage {
namespace {

Error not_usable(const InputFile& file, std::string_view reason) {
  return failure(
      fmt::format("{} is not a usable safetensors file: {}", file.path().string(), reason));
}

/// Empty if the entries, sorted by offset, cover [0, data_bytes) exactly once and fit their shapes.
std::string layout_defect(std::span<const TensorEntry> entries, std::uint64_t data_bytes) {
  std::uint64_t expected = 0;
  for (const TensorEntry& entry : entries) {
    const auto wanted = tensor_size_bytes(entry.dtype, entry.shape);
    if (!wanted) {
      return fmt::format("tensor {}: dtype {} unknown, or shape negative or too large",
                         shown(entry.name), shown(entry.dtype));
    }
    if (entry.begin != expected || entry.end < entry.begin || entry.end > data_bytes) {
      return fmt::format("tensor {}: bytes {} to {}, expected to begin at {} of {}: {}",
                         shown(entry.name), entry.begin, entry.end, expected, data_bytes,
                         entry.begin < expected ? "overlap" : "hole or past the end");
    }
    if (entry.end - entry.begin != *wanted) {
      return fmt::format("tensor {}: {} bytes, but its shape needs {}", shown(entry.name),
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

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path, Links links) {
  auto file = TRAIN_TRY(InputFile::open(path, links));
  return parse(std::move(file));
}

Result<SafetensorsFile> SafetensorsFile::parse(InputFile file, bool* malformed) {
  bool ignored = false;
  bool& bad_bytes = malformed != nullptr ? *malformed : ignored;
  bad_bytes = false;
  if (file.size_bytes() < kLengthBytes) {
    bad_bytes = true;
    return not_usable(file, fmt::format("{} bytes, too few for a header", file.size_bytes()));
  }
  std::array<std::byte, kLengthBytes> length{};
  TRAIN_RETURN_IF_ERROR(file.read(0, length));
  std::uint64_t header_bytes = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    header_bytes |= std::to_integer<std::uint64_t>(length[i]) << (8 * i);
  }
  if (header_bytes > kHeaderLimitBytes || header_bytes > file.size_bytes() - kLengthBytes) {
    bad_bytes = true;
    return not_usable(file, fmt::format("header of {} bytes in a file of {} (limit {})",
                                        header_bytes, file.size_bytes(), kHeaderLimitBytes));
  }
  SafetensorsFile result(std::move(file));
  result.data_start_ = kLengthBytes + header_bytes;
  TRAIN_RETURN_IF_ERROR(result.read_table(static_cast<std::size_t>(header_bytes), bad_bytes));
  return result;
}

Status SafetensorsFile::read_table(std::size_t header_bytes, bool& malformed) {
  std::string header(header_bytes, '\0');
  TRAIN_RETURN_IF_ERROR(file_.read(kLengthBytes, std::as_writable_bytes(std::span(header))));
  auto parsed = parse_safetensors_header(header);
  if (!parsed) {
    malformed = true;
    return not_usable(file_, parsed.error().message);
  }
  entries_ = std::move(parsed->entries);
  metadata_ = std::move(parsed->metadata);
  std::sort(entries_.begin(), entries_.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  if (const std::string defect = layout_defect(entries_, file_.size_bytes() - data_start_);
      !defect.empty()) {
    malformed = true;
    return not_usable(file_, defect);
  }
  by_name_.resize(entries_.size());
  std::iota(by_name_.begin(), by_name_.end(), std::uint32_t{0});
  std::sort(by_name_.begin(), by_name_.end(), [this](std::uint32_t a, std::uint32_t b) {
    return entries_[a].name < entries_[b].name;
  });
  return {};
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                      [this](std::uint32_t place, std::string_view wanted) {
                                        return entries_[place].name < wanted;
                                      });
  return found == by_name_.end() || entries_[*found].name != name ? nullptr : &entries_[*found];
}

Status SafetensorsFile::read(const TensorEntry& entry, std::uint64_t offset,
                             std::span<std::byte> out) const {
  const std::uint64_t size = entry.end - entry.begin;
  TRAIN_CHECK(offset <= size && out.size() <= size - offset);
  return file_.read(data_start_ + entry.begin + offset, out);
}

}  // namespace train::storage
