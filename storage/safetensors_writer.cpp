#include "storage/safetensors_writer.hpp"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "storage/safetensors_header.hpp"

namespace train::storage {
namespace {

struct Header {
  std::string text;  ///< Padded with spaces so that the data starts at a multiple of 8.
  std::uint64_t data_bytes = 0;
};

Header header_of(std::span<const TensorHeading> tensors, const TensorMetadata& metadata) {
  nlohmann::ordered_json::object_t object;
  if (!metadata.empty()) {
    object.push_back({"__metadata__", metadata});
  }
  Header header;
  std::set<std::string_view> names;
  for (const TensorHeading& tensor : tensors) {
    TRAIN_CHECK(names.insert(tensor.name).second, "tensor {} twice", tensor.name);
    const auto size = tensor_size_bytes(tensor.dtype, tensor.shape);
    TRAIN_CHECK(size.has_value(), "tensor {}: dtype {} unknown, or its shape too large",
                tensor.name, tensor.dtype);
    const std::uint64_t end = header.data_bytes + *size;
    // Not by key, which would search all names each time.
    object.push_back({tensor.name,
                      {{"dtype", tensor.dtype},
                       {"shape", tensor.shape},
                       {"data_offsets", {header.data_bytes, end}}}});
    header.data_bytes = end;
  }
  header.text = nlohmann::ordered_json(std::move(object)).dump();
  header.text.append((8 - header.text.size() % 8) % 8, ' ');
  return header;
}

}  // namespace

Result<SafetensorsWriter> SafetensorsWriter::create(const std::filesystem::path& path,
                                                    std::span<const TensorHeading> tensors,
                                                    const TensorMetadata& metadata) {
  const Header header = header_of(tensors, metadata);
  std::array<char, kLengthBytes> length{};
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length[i] = static_cast<char>(static_cast<unsigned char>(header.text.size() >> (8 * i)));
  }
  auto file = TRAIN_TRY(AtomicFile::create(path));
  SafetensorsWriter writer(std::move(file), header.data_bytes);
  TRAIN_RETURN_IF_ERROR(writer.append(std::as_bytes(std::span(length))));
  TRAIN_RETURN_IF_ERROR(writer.append(std::as_bytes(std::span(header.text))));
  return writer;
}

Status SafetensorsWriter::append(std::span<const std::byte> bytes) {
  digest_.update(bytes);
  return file_.write(bytes);
}

Status SafetensorsWriter::write(std::span<const std::byte> bytes) {
  TRAIN_CHECK(bytes.size() <= due_bytes_, "{} bytes where {} are due", bytes.size(), due_bytes_);
  due_bytes_ -= bytes.size();
  return append(bytes);
}

Result<WrittenFile> SafetensorsWriter::commit() {
  TRAIN_CHECK(due_bytes_ == 0, "{} bytes are due", due_bytes_);
  TRAIN_RETURN_IF_ERROR(file_.commit());
  return WrittenFile{file_.size_bytes(), digest_.finish()};
}

}  // namespace train::storage
