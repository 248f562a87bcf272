#include "storage/weight_files/gguf_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "storage/files/untrusted_text.hpp"
#include "storage/weight_files/gguf_header.hpp"

namespace train::storage {
namespace {

constexpr std::size_t kGgufBufferBytes = std::size_t{1} << 20;

}  // namespace

Result<GgufFile> GgufFile::open(const std::filesystem::path& path) {
  auto file = TRAIN_TRY(InputFile::open(path));
  auto header = read_gguf_header(file);
  if (!header) {
    return Error{header.error().kind, fmt::format("{} is not a usable GGUF file: {}", path.string(),
                                                  header.error().message)};
  }
  GgufFile result(std::move(file));
  result.version_ = header->version;
  result.metadata_ = std::move(header->metadata);
  result.entries_ = std::move(header->entries);
  std::sort(result.entries_.begin(), result.entries_.end(),
            [](const GgufEntry& a, const GgufEntry& b) { return a.name < b.name; });
  return result;
}

std::optional<std::uint64_t> GgufFile::count_of(std::string_view key) const {
  if (const auto* number = value_of<std::uint64_t>(key)) {
    return *number;
  }
  const auto* number = value_of<std::int64_t>(key);
  return number != nullptr && *number >= 0 ? std::optional(static_cast<std::uint64_t>(*number))
                                           : std::nullopt;
}

const GgufEntry* GgufFile::find(std::string_view name) const {
  const auto found = std::lower_bound(
      entries_.begin(), entries_.end(), name,
      [](const GgufEntry& entry, std::string_view wanted) { return entry.name < wanted; });
  return found == entries_.end() || found->name != name ? nullptr : &*found;
}

Status GgufFile::read_fp32(const GgufEntry& entry, std::uint64_t first_element,
                           std::span<float> out) const {
  const GgufType& type = entry.type;
  if (type.dequantize == nullptr) {
    return user_error(fmt::format(
        "{}: tensor {} is of type {}, which is not read ({}); convert the file to one of these",
        file_.path().string(), shown(entry.name), type.name, readable_gguf_types()));
  }
  TRAIN_CHECK(first_element <= entry.elements_count &&
              out.size() <= entry.elements_count - first_element);
  const std::size_t wanted_blocks = out.size() / type.block_elements + 1;
  const std::size_t buffer_blocks = std::min(wanted_blocks, kGgufBufferBytes / type.block_bytes);
  std::vector<std::byte> buffer(buffer_blocks * type.block_bytes);
  while (!out.empty()) {
    const std::uint64_t block = first_element / type.block_elements;
    const auto skipped = static_cast<std::size_t>(first_element % type.block_elements);
    const bool whole = skipped == 0 && out.size() >= type.block_elements;
    const std::size_t blocks =
        whole ? std::min(out.size() / type.block_elements, buffer_blocks) : 1;
    const std::span<std::byte> bytes(buffer.data(), blocks * type.block_bytes);
    TRAIN_RETURN_IF_ERROR(file_.read(entry.begin + block * type.block_bytes, bytes));
    std::size_t count = blocks * type.block_elements;
    if (whole) {
      dequantize_blocks(type, bytes, out.first(count));
    } else {
      std::array<float, kGgufBlockLimit> values{};
      dequantize_blocks(type, bytes, std::span(values).first(count));
      count = std::min(out.size(), count - skipped);
      std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(skipped), count, out.begin());
    }
    out = out.subspan(count);
    first_element += count;
  }
  return {};
}

}  // namespace train::storage
