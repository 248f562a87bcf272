#include "checkpoint/models/gguf_model.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/check.hpp"
#include "checkpoint/models/gguf_rope.hpp"
#include "engine/model/unit_parameters.hpp"

namespace train::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Rows of interleaved pairs back to halves, head by head: row 2i + j of a head is row j D/2 + i.
void pairs_to_halves(std::span<float> matrix, std::int64_t heads, std::size_t rows) {
  const std::size_t cols = matrix.size() / rows;
  const std::size_t dim = rows / static_cast<std::size_t>(heads);
  const std::vector<float> before(matrix.begin(), matrix.end());
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t in_head = row % dim;
    const std::size_t to = row - in_head + in_head % 2 * (dim / 2) + in_head / 2;
    std::copy_n(before.begin() + static_cast<std::ptrdiff_t>(row * cols), cols,
                matrix.begin() + static_cast<std::ptrdiff_t>(to * cols));
  }
}

/// Rows [Q | K | V] to head by head: row r of part p of head h is row (3h + p) D + r.
void parts_to_heads(std::span<float> matrix, std::int64_t heads, std::size_t rows) {
  const std::size_t cols = matrix.size() / rows;
  const std::size_t dim = rows / static_cast<std::size_t>(3 * heads);
  const std::vector<float> before(matrix.begin(), matrix.end());
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t part = row / (rows / 3);
    const std::size_t head = row % (rows / 3) / dim;
    const std::size_t to = (3 * head + part) * dim + row % dim;
    std::copy_n(before.begin() + static_cast<std::ptrdiff_t>(row * cols), cols,
                matrix.begin() + static_cast<std::ptrdiff_t>(to * cols));
  }
}

void transpose(std::span<float> matrix, std::size_t rows) {
  const std::size_t cols = matrix.size() / rows;
  const std::vector<float> before(matrix.begin(), matrix.end());
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t col = 0; col < cols; ++col) {
      matrix[col * rows + row] = before[row * cols + col];
    }
  }
}

}  // namespace

Result<GgufModel> GgufModel::open(const fs::path& path) {
  auto file = storage::GgufFile::open(path);
  TRAIN_RETURN_IF_ERROR(file);
  GgufModel model(std::move(file).value());
  if (const auto parts = model.file_.count_of("split.count"); parts.value_or(1) > 1) {
    return user_error(fmt::format(
        "{}: it is one of the {} files of a model; merge them with `llama-gguf-split --merge`",
        path.string(), *parts));
  }
  const auto* name = model.file_.value_of<std::string>("general.architecture");
  model.architecture_ = find_gguf_architecture(name == nullptr ? "" : *name);
  if (model.architecture_ == nullptr) {
    return user_error(fmt::format("{}: general.architecture is \"{}\": {} are known", path.string(),
                                  name == nullptr ? "" : *name, known_gguf_architectures()));
  }
  const auto config = gguf_config(*model.architecture_, model.file_);
  TRAIN_RETURN_IF_ERROR(config);
  const std::string prefix = fmt::format("{}.attention.", *name);
  const std::uint64_t heads = model.file_.count_of(prefix + "head_count").value_or(1);
  model.heads_ = static_cast<std::int64_t>(heads);
  model.kv_heads_ =
      static_cast<std::int64_t>(model.file_.count_of(prefix + "head_count_kv").value_or(heads));
  model.config_text_ = config->dump(2) + "\n";
  for (const auto type : {storage::WeightType::f32, storage::WeightType::f16}) {
    if ((*config)["torch_dtype"] == storage::config_name(type)) {
      model.type_ = type;
    }
  }
  return model;
}

std::vector<std::int64_t> GgufModel::shape_in_file(const engine::Parameter& parameter,
                                                   GgufLayout layout) {
  std::vector<std::int64_t> shape = parameter.shape;
  if (layout == GgufLayout::transposed) {
    std::reverse(shape.begin(), shape.end());
  }
  return shape;
}

Status GgufModel::check(const engine::ModelSpec& model) const {
  const std::string path = file_.file().path().string();
  std::set<std::string, std::less<>> wanted(gguf_rope_tensors.begin(), gguf_rope_tensors.end());
  if (model.tie_embeddings) {
    wanted.insert("output.weight");  // the embedding once more
  }
  for (const engine::UnitParameters& unit : engine::describe_units(model)) {
    for (const engine::Parameter& parameter : unit.parameters) {
      const auto tensor = gguf_tensor_of(*architecture_, parameter.name);
      const storage::GgufEntry* entry = tensor ? file_.find(tensor->name) : nullptr;
      if (entry == nullptr) {
        return user_error(
            fmt::format("{}: tensor {} is missing", path, tensor ? tensor->name : parameter.name));
      }
      const std::vector<std::int64_t> shape = shape_in_file(parameter, tensor->layout);
      if (entry->shape != shape) {
        return user_error(fmt::format("{}: tensor {} has shape [{}], its metadata wants [{}]", path,
                                      tensor->name, fmt::join(entry->shape, ", "),
                                      fmt::join(shape, ", ")));
      }
      wanted.insert(tensor->name);
    }
  }
  for (const storage::GgufEntry& entry : file_.entries()) {
    if (!wanted.contains(entry.name)) {
      return user_error(
          fmt::format("{}: tensor {} belongs to nothing in such a model", path, entry.name));
    }
  }
  return {};
}

Status GgufModel::read(const std::string& parameter, std::span<float> out) const {
  const auto tensor = gguf_tensor_of(*architecture_, parameter);
  const storage::GgufEntry* entry = tensor ? file_.find(tensor->name) : nullptr;
  TRAIN_CHECK(entry != nullptr, "no tensor for {}", parameter);
  TRAIN_RETURN_IF_ERROR(file_.read_fp32(*entry, 0, out));
  const auto rows = static_cast<std::size_t>(entry->shape.front());
  switch (tensor->layout) {
    case GgufLayout::published:
      break;
    case GgufLayout::interleaved_queries:
      pairs_to_halves(out, heads_, rows);
      break;
    case GgufLayout::interleaved_keys:
      pairs_to_halves(out, kv_heads_, rows);
      break;
    case GgufLayout::transposed:
      transpose(out, rows);
      break;
    case GgufLayout::apart:
      parts_to_heads(out, heads_, rows);
      break;
    case GgufLayout::plus_one:
      std::transform(out.begin(), out.end(), out.begin(), [](float gain) { return gain - 1.0F; });
      break;
  }
  return {};
}

}  // namespace train::checkpoint
