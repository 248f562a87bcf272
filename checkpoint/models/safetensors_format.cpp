#include "checkpoint/models/safetensors_format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "storage/safetensors.hpp"
#include "storage/safetensors_writer.hpp"

namespace train::checkpoint {
namespace {

/// Few enough to stay in a core's cache until they are written.
constexpr std::size_t kConvertedElements = std::size_t{1} << 16;

class SafetensorsOut final : public ExportFile {
 public:
  explicit SafetensorsOut(storage::SafetensorsWriter writer) : writer_(std::move(writer)) {}
  Status write(std::span<const std::byte> bytes) override { return writer_.write(bytes); }
  Status commit() override {
    const auto written = writer_.commit();
    return written ? Status() : written.error();
  }

 private:
  storage::SafetensorsWriter writer_;
};

class SafetensorsIn final : public WrittenTensors {
 public:
  SafetensorsIn(storage::SafetensorsFile file, ExportType type)
      : file_(std::move(file)), type_(type) {}
  [[nodiscard]] std::size_t count() const override { return file_.entries().size(); }
  [[nodiscard]] bool has(const ExportTensor& tensor) const override {
    const storage::TensorEntry* entry = file_.find(tensor.name);
    return entry != nullptr && entry->dtype == storage::stored_name(tensor.type.value_or(type_)) &&
           entry->shape == tensor.shape;
  }
  Status read(const ExportTensor& tensor, std::uint64_t offset,
              std::span<std::byte> out) const override {
    return file_.read(*file_.find(tensor.name), offset, out);
  }

 private:
  storage::SafetensorsFile file_;
  ExportType type_;
};

class SafetensorsFormat final : public ExportFormat {
 public:
  explicit SafetensorsFormat(ExportType type) : type_(type) {}

  [[nodiscard]] std::string_view extension() const override { return ".safetensors"; }
  [[nodiscard]] Status check(const ExportTensor& /*tensor*/) const override { return {}; }
  [[nodiscard]] std::uint64_t stored_bytes(const ExportTensor& tensor) const override {
    return element_count(tensor) * storage::size_of(type_of(tensor));
  }
  Result<std::unique_ptr<ExportFile>> create(const ExportPlace& place) const override {
    std::vector<storage::TensorHeading> headings;
    for (const ExportTensor& tensor : place.tensors) {
      headings.push_back({tensor.name, tensor.shape, storage::stored_name(type_of(tensor))});
    }
    auto writer =
        TRAIN_TRY(storage::SafetensorsWriter::create(place.path, headings, {{"format", "pt"}}));
    return std::unique_ptr<ExportFile>(std::make_unique<SafetensorsOut>(std::move(writer)));
  }
  Result<std::unique_ptr<WrittenTensors>> open(const std::filesystem::path& path) const override {
    auto file = TRAIN_TRY(storage::SafetensorsFile::open(path));
    return std::unique_ptr<WrittenTensors>(std::make_unique<SafetensorsIn>(std::move(file), type_));
  }
  Status encode(const ExportTensor& tensor, std::span<const float> elements,
                const Take& take) const override;
  [[nodiscard]] Index index(const std::string& base, std::span<const ExportPlace> places,
                            std::uint64_t tensor_bytes) const override;

 private:
  [[nodiscard]] ExportType type_of(const ExportTensor& tensor) const {
    return tensor.type.value_or(type_);
  }

  ExportType type_;
};

Status SafetensorsFormat::encode(const ExportTensor& tensor, std::span<const float> elements,
                                 const Take& take) const {
  const ExportType type = type_of(tensor);
  std::vector<std::byte> bytes;
  while (!elements.empty()) {
    const auto piece = elements.first(std::min(elements.size(), kConvertedElements));
    elements = elements.subspan(piece.size());
    if (type == ExportType::f32) {
      TRAIN_RETURN_IF_ERROR(take(std::as_bytes(piece)));
      continue;
    }
    bytes.resize(piece.size() * storage::size_of(type));
    if (!storage::from_floats(type, piece, bytes)) {
      return user_error(
          fmt::format("tensor {} has a value that is too large for {}; give --dtype "
                      "bf16 or fp32",
                      tensor.name, storage::config_name(type)));
    }
    TRAIN_RETURN_IF_ERROR(take(bytes));
  }
  return {};
}

ExportFormat::Index SafetensorsFormat::index(const std::string& base,
                                             std::span<const ExportPlace> places,
                                             std::uint64_t tensor_bytes) const {
  nlohmann::ordered_json index;
  index["metadata"] = {{"total_size", tensor_bytes}};
  std::map<std::string, std::string> place_of;
  for (const ExportPlace& place : places) {
    for (const ExportTensor& tensor : place.tensors) {
      place_of[tensor.name] = place.path.filename().string();
    }
  }
  index["weight_map"] = place_of;
  return {base + ".safetensors.index.json", index.dump(2) + "\n"};
}

}  // namespace

std::shared_ptr<const ExportFormat> safetensors_format(ExportType type) {
  return std::make_shared<SafetensorsFormat>(type);
}

}  // namespace train::checkpoint
