#include "checkpoint/models/gguf_format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <iterator>
#include <optional>
#include <utility>

#include "base/check.hpp"
#include "base/process/core_shares.hpp"
#include "storage/weight_files/gguf_encoding.hpp"
#include "storage/weight_files/gguf_file.hpp"

namespace train::checkpoint {
namespace {

using storage::GgufType;

constexpr std::size_t kQuantisedElements = std::size_t{1} << 22;  // A multiple of any block.

struct KindNames {
  GgufKind kind;
  std::string_view name;
  std::string_view type;  ///< Type of matrices; of q4_k_m the most common one.
};
constexpr std::array kKinds = {
    KindNames{GgufKind::f32, "f32", "F32"}, KindNames{GgufKind::f16, "f16", "F16"},
    KindNames{GgufKind::bf16, "bf16", "BF16"}, KindNames{GgufKind::q8_0, "q8_0", "Q8_0"},
    KindNames{GgufKind::q4_k_m, "q4_k_m", "Q4_K"}};

/// Number behind "blk." in a tensor's name.
std::optional<std::int64_t> block_number(std::string_view name) {
  constexpr std::string_view prefix = "blk.";
  std::int64_t layer = 0;
  if (!name.starts_with(prefix)) {
    return std::nullopt;
  }
  const char* end = name.data() + name.size();
  return std::from_chars(name.data() + prefix.size(), end, layer).ec == std::errc()
             ? std::optional(layer)
             : std::nullopt;
}

bool has_part(std::string_view name, std::string_view part) {
  return name.find(part) != std::string_view::npos;
}

/// Layers to which llama.cpp gives more bits: the first and the last eighth, and every third.
bool has_more_bits(std::int64_t layer, std::int64_t layers) {
  const std::int64_t eighth = layers / 8;
  return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

/// True of the values of attention, alone or beside queries and keys.
bool has_values(std::string_view name) {
  return has_part(name, ".attn_v.") || has_part(name, ".attn_qkv.");
}

/// Type of attention's values, which llama.cpp counts over the layers that have them.
std::string_view type_of_values(std::int64_t layer, const GgufExport& settings) {
  const auto& attending = settings.attending;
  const auto place = std::lower_bound(attending.begin(), attending.end(), layer);
  const bool more = attending.empty()
                        ? has_more_bits(layer, settings.layers)
                        : has_more_bits(place - attending.begin(), std::ssize(attending));
  return more ? "Q6_K" : settings.large ? "Q5_K" : "Q4_K";
}

/// Type of a matrix in llama.cpp's mixture Q4_K_M.
std::string_view mixed_type(std::string_view name, const GgufExport& settings) {
  constexpr std::int64_t many_experts = 8;  // Mixtral's, for which attention has more bits.
  const std::int64_t layer = block_number(name).value_or(0);
  const bool more = has_more_bits(layer, settings.layers);
  if (name == "output.weight" || (settings.tied && name == "token_embd.weight")) {
    return "Q6_K";
  }
  if (has_values(name)) {
    return settings.experts == many_experts ? "Q8_0" : type_of_values(layer, settings);
  }
  if (has_part(name, ".attn_k.") && settings.experts == many_experts) {
    return "Q8_0";
  }
  if (has_part(name, ".attn_output.") && settings.experts == many_experts) {
    return "Q5_K";
  }
  return has_part(name, ".ffn_down") && more ? "Q6_K" : "Q4_K";
}

/// Tensors that llama.cpp takes in F32 alone.
bool is_plain(const ExportTensor& tensor) {
  return tensor.shape.size() < 2 || tensor.name.ends_with("_norm.weight") ||
         has_part(tensor.name, "ffn_gate_inp") || has_part(tensor.name, ".ssm_conv1d.") ||
         tensor.name.starts_with("position_embd.") || !tensor.name.ends_with(".weight");
}

/// encode_blocks() on all cores; the bytes are those of one. False: a value that the type cannot
/// hold.
bool encode_on_cores(const GgufType& type, std::span<const float> values,
                     std::span<std::byte> bytes) {
  std::atomic<bool> fits{true};
  on_cores(values.size() / type.block_elements, [&](std::size_t begin, std::size_t end) {
    const std::size_t count = end - begin;
    if (!storage::encode_blocks(
            type, values.subspan(begin * type.block_elements, count * type.block_elements),
            bytes.subspan(begin * type.block_bytes, count * type.block_bytes))) {
      fits = false;
    }
  });
  return fits;
}

class GgufOut final : public ExportFile {
 public:
  explicit GgufOut(storage::GgufWriter writer) : writer_(std::move(writer)) {}
  Status write(std::span<const std::byte> bytes) override { return writer_.write(bytes); }
  Status commit() override { return writer_.commit(); }

 private:
  storage::GgufWriter writer_;
};

class GgufIn final : public WrittenTensors {
 public:
  GgufIn(storage::GgufFile file, const GgufExport& settings)
      : file_(std::move(file)), settings_(settings) {}
  [[nodiscard]] std::size_t count() const override { return file_.entries().size(); }
  [[nodiscard]] bool has(const ExportTensor& tensor) const override {
    const storage::GgufEntry* entry = file_.find(tensor.name);
    return entry != nullptr && entry->type.code == gguf_type_of(tensor, settings_).code &&
           entry->shape == tensor.shape;
  }
  Status read(const ExportTensor& tensor, std::uint64_t offset,
              std::span<std::byte> out) const override {
    return file_.file().read(file_.find(tensor.name)->begin + offset, out);
  }

 private:
  storage::GgufFile file_;
  const GgufExport& settings_;  ///< The format's, which outlives this.
};

class GgufFormat final : public ExportFormat {
 public:
  explicit GgufFormat(GgufExport settings) : settings_(std::move(settings)) {}

  [[nodiscard]] std::string_view extension() const override { return ".gguf"; }
  [[nodiscard]] Status check(const ExportTensor& tensor) const override {
    const GgufType& type = gguf_type_of(tensor, settings_);
    const std::int64_t row = tensor.shape.back();
    if (row % type.block_elements == 0) {
      return {};
    }
    return user_error(
        fmt::format("tensor {} has rows of {} elements, and {} needs a multiple of {}; give "
                    "--dtype bf16{}",
                    tensor.name, row, type.name, type.block_elements,
                    settings_.kind == GgufKind::q4_k_m ? " or q8_0" : ""));
  }
  [[nodiscard]] std::uint64_t stored_bytes(const ExportTensor& tensor) const override {
    return storage::gguf_size_bytes(heading_of(tensor));
  }
  Result<std::unique_ptr<ExportFile>> create(const ExportPlace& place) const override;
  Result<std::unique_ptr<WrittenTensors>> open(const std::filesystem::path& path) const override {
    auto file = TRAIN_TRY(storage::GgufFile::open(path));
    return std::unique_ptr<WrittenTensors>(std::make_unique<GgufIn>(std::move(file), settings_));
  }
  Status encode(const ExportTensor& tensor, std::span<const float> elements,
                const Take& take) const override;

 private:
  [[nodiscard]] storage::GgufHeading heading_of(const ExportTensor& tensor) const {
    return {tensor.name, tensor.shape, &gguf_type_of(tensor, settings_)};
  }

  GgufExport settings_;
};

/// The first of several files has the metadata of all, as llama.cpp's own splits.
Result<std::unique_ptr<ExportFile>> GgufFormat::create(const ExportPlace& place) const {
  std::vector<storage::GgufField> fields;
  if (place.index == 0) {
    fields = settings_.metadata;
  }
  if (place.count > 1) {
    fields.push_back({"split.no", static_cast<std::uint16_t>(place.index)});
    fields.push_back({"split.count", static_cast<std::uint16_t>(place.count)});
    fields.push_back({"split.tensors.count", static_cast<std::int32_t>(place.all_tensors)});
  }
  std::vector<storage::GgufHeading> headings;
  for (const ExportTensor& tensor : place.tensors) {
    headings.push_back(heading_of(tensor));
  }
  auto writer = TRAIN_TRY(storage::GgufWriter::create(place.path, fields, headings));
  return std::unique_ptr<ExportFile>(std::make_unique<GgufOut>(std::move(writer)));
}

Status GgufFormat::encode(const ExportTensor& tensor, std::span<const float> elements,
                          const Take& take) const {
  const GgufType& type = gguf_type_of(tensor, settings_);
  std::vector<std::byte> bytes;
  while (!elements.empty()) {
    const auto piece = elements.first(std::min(elements.size(), kQuantisedElements));
    bytes.resize(piece.size() / type.block_elements * type.block_bytes);
    if (!encode_on_cores(type, piece, bytes)) {
      return user_error(fmt::format(
          "tensor {} has a value that is not finite or too large for {}; give --dtype bf16",
          tensor.name, type.name));
    }
    TRAIN_RETURN_IF_ERROR(take(bytes));
    elements = elements.subspan(piece.size());
  }
  return {};
}

}  // namespace

std::string_view name_of(GgufKind kind) { return kKinds.at(static_cast<std::size_t>(kind)).name; }

const GgufType& gguf_type_of(const ExportTensor& tensor, const GgufExport& settings) {
  const std::string_view name = is_plain(tensor) ? "F32"
                                : settings.kind == GgufKind::q4_k_m
                                    ? mixed_type(tensor.name, settings)
                                    : kKinds.at(static_cast<std::size_t>(settings.kind)).type;
  const GgufType* type = storage::find_writable_gguf_type(name);
  TRAIN_CHECK(type != nullptr, "type {}", name);
  return *type;
}

std::vector<std::int64_t> attending_layers(std::span<const ExportTensor> tensors) {
  std::vector<std::int64_t> layers;
  for (const ExportTensor& tensor : tensors) {
    const auto layer = block_number(tensor.name);
    if (layer && has_values(tensor.name) && tensor.shape.size() > 1) {
      layers.push_back(*layer);
    }
  }
  std::sort(layers.begin(), layers.end());
  return layers;
}

std::shared_ptr<const ExportFormat> gguf_format(GgufExport settings) {
  return std::make_shared<GgufFormat>(std::move(settings));
}

}  // namespace train::checkpoint
