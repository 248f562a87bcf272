#include "checkpoint/models/gguf_model.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "base/check.hpp"
#include "checkpoint/models/gguf_architectures.hpp"
#include "checkpoint/models/gguf_rope.hpp"

namespace train::checkpoint {
namespace {

constexpr std::string_view kStackEnd = "_exps.";  // Ends the names of tensors of all experts.

/// Shape without the leading axes of one place, which such files may leave out.
std::span<const std::int64_t> essential(std::span<const std::int64_t> shape) {
  while (shape.size() > 1 && shape.front() == 1) {
    shape = shape.subspan(1);
  }
  return shape;
}

/// Files from before April 2024 have a tensor for each expert, "blk.0.ffn_gate.3.weight": the part
/// of one in the stack of all, as it is in such a file.
engine::TensorPart unstacked(engine::TensorPart part) {
  const std::int64_t elements = std::accumulate(part.shape.begin() + 1, part.shape.end(),
                                                std::int64_t{1}, std::multiplies<>());
  const std::size_t end = part.name.find(kStackEnd);
  part.name.replace(end, kStackEnd.size(), fmt::format(".{}.", part.stored / elements));
  part.stored %= elements;
  part.shape.erase(part.shape.begin());
  return part;
}

/// Files from before May 2025 have the up-projection of latent attention as it was published: the
/// name of that tensor, where `part` is one of the two that newer files have.
std::string joined_name(const std::string& part) {
  for (const std::string_view half : {"attn_k_b.weight", "attn_v_b.weight"}) {
    if (part.ends_with(half)) {
      return part.substr(0, part.size() - half.size()) + "attn_kv_b.weight";
    }
  }
  return {};
}

/// Number of the layer in "blk.46.attn_norm.weight"; of another name nothing.
std::optional<std::uint64_t> layer_of(std::string_view name) {
  constexpr std::string_view kBegin = "blk.";
  std::uint64_t layer = 0;
  if (!name.starts_with(kBegin)) {
    return std::nullopt;
  }
  name.remove_prefix(kBegin.size());
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  return error == std::errc() ? std::optional(layer) : std::nullopt;
}

}  // namespace

namespace fs = std::filesystem;

Result<GgufModel> GgufModel::open(const fs::path& path) {
  auto file = TRAIN_TRY(storage::GgufFile::open(path));
  GgufModel model(std::move(file));
  if (const auto parts = model.file_.count_of("split.count"); parts.value_or(1) > 1) {
    return user_error(fmt::format(
        "{}: it is one of the {} files of a model; merge them with `llama-gguf-split --merge`",
        path.string(), *parts));
  }
  const auto config = TRAIN_TRY(gguf_config(model.file_));
  model.config_text_ = config.dump(2) + "\n";
  for (const auto type : {storage::WeightType::f32, storage::WeightType::f16}) {
    if (config["torch_dtype"] == storage::config_name(type)) {
      model.type_ = type;
    }
  }
  return model;
}

Status GgufModel::check(const engine::ModelSpec& model) {
  std::vector<engine::MappedParameter> map = tensor_map(model, engine::Dialect::gguf);
  const std::string path = file_.file().path().string();
  std::set<std::string, std::less<>> wanted(kGgufRopeTensors.begin(), kGgufRopeTensors.end());
  if (model.tie_embeddings) {
    wanted.insert("output.weight");  // Copy of the embedding.
  }
  for (engine::MappedParameter& mapped : map) {
    if (mapped.parts.empty()) {
      return user_error(fmt::format("{}: tensor {} is missing", path, mapped.parameter.name));
    }
    if (const std::string joined = joined_name(mapped.parts.front().name);
        file_.find(mapped.parts.front().name) == nullptr && file_.find(joined) != nullptr) {
      const engine::TensorRule whole{.parameter = mapped.parameter.name, .stored = joined};
      mapped.parts = engine::parts_of(mapped.parameter, {&whole, 1});
    }
    for (engine::TensorPart& part : mapped.parts) {
      const storage::GgufEntry* entry = file_.find(part.name);
      if (entry == nullptr && part.name.find(kStackEnd) != std::string::npos) {
        engine::TensorPart one = unstacked(part);
        entry = file_.find(one.name);
        part = entry == nullptr ? part : std::move(one);
      }
      if (entry == nullptr) {
        return user_error(fmt::format("{}: tensor {} is missing", path, part.name));
      }
      if (!std::ranges::equal(essential(entry->shape), essential(part.shape))) {
        return user_error(fmt::format("{}: tensor {} has shape [{}], but its metadata says [{}]",
                                      path, part.name, fmt::join(entry->shape, ", "),
                                      fmt::join(part.shape, ", ")));
      }
      wanted.insert(part.name);
    }
  }
  const bool has_further = further_layers() > 0;
  for (const storage::GgufEntry& entry : file_.entries()) {
    const bool further = has_further && layer_of(entry.name).value_or(0) >= model.layers.size();
    if (!further && !wanted.contains(entry.name)) {
      return user_error(fmt::format("{}: tensor {} is not part of such a model", path, entry.name));
    }
  }
  map_.clear();
  for (engine::MappedParameter& mapped : map) {
    std::string name = mapped.parameter.name;
    map_.emplace(std::move(name), std::move(mapped));
  }
  return {};
}

std::uint64_t GgufModel::further_layers() const {
  const auto* architecture = file_.value_of<std::string>("general.architecture");
  return file_.count_of(fmt::format("{}.{}", *architecture, kGgufFurtherLayers)).value_or(0);
}

Status GgufModel::read_rows(const engine::Parameter& parameter, std::int64_t first_row,
                            std::int64_t rows, std::span<float> out) const {
  const auto read = [this](const std::string& name, std::int64_t first, std::span<float> values) {
    return file_.read_fp32(*file_.find(name), static_cast<std::uint64_t>(first), values);
  };
  const auto mapped = map_.find(parameter.name);
  TRAIN_CHECK(mapped != map_.end(), "no tensor for {}", parameter.name);
  return engine::read_rows(mapped->second, first_row, rows, read, out);
}

}  // namespace train::checkpoint
