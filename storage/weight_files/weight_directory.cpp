#include "storage/weight_files/weight_directory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/check.hpp"
#include "base/text/ascii.hpp"
#include "storage/files/input_file.hpp"
#include "storage/weight_files/element_types.hpp"

namespace train::storage {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOneFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr const char* kConfigFile = "config.json";
constexpr std::uint64_t kLargestConfig = std::uint64_t{1} << 20;
constexpr std::uint64_t kLargestIndex = std::uint64_t{256} << 20;
constexpr std::size_t kPieceBytes = std::size_t{1} << 18;  // Fits in a core's cache.

/// True for the name of a file in the same directory.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

Error no_index(const fs::path& index, std::string_view why) {
  return user_error(fmt::format("{}: {}; it should be {{\"weight_map\": {{tensor: file}}}}",
                                index.string(), why));
}

/// File of each tensor.
Result<std::map<std::string, std::string>> parse_weight_map(const fs::path& index,
                                                            const std::string& text) {
  const auto parsed = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object() || !parsed.contains("weight_map") || !parsed["weight_map"].is_object()) {
    return no_index(index, "no index of weights");
  }
  std::map<std::string, std::string> map;
  for (const auto& [tensor, file] : parsed["weight_map"].items()) {
    if (!file.is_string() || !is_plain_name(file.get<std::string>())) {
      return no_index(index, fmt::format("tensor {} is in {}, which is no file beside it", tensor,
                                         file.dump()));
    }
    map.emplace(tensor, file.get<std::string>());
  }
  if (map.empty()) {
    return no_index(index, "it names no tensor");
  }
  return map;
}

/// Rows and columns of a block of FP8 weights, by the config.json beside them; zeros: it does not
/// say.
Result<std::array<std::int64_t, 2>> block_in_config(const fs::path& path) {
  std::array<std::int64_t, 2> block = {};
  std::error_code ignored;
  if (!fs::is_directory(path, ignored) || !fs::exists(path / kConfigFile, ignored)) {
    return block;
  }
  const auto file = TRAIN_TRY(InputFile::open(path / kConfigFile));
  const auto text = TRAIN_TRY(file.read_text(kLargestConfig));
  const auto config = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto said = config.is_object() ? config.find("quantization_config") : config.end();
  if (said == config.end() || !said->is_object()) {
    return block;
  }
  if (const auto sizes = said->find("weight_block_size");
      sizes != said->end() && sizes->is_array() && sizes->size() == 2 &&
      (*sizes)[0].is_number_integer() && (*sizes)[1].is_number_integer()) {
    block = {(*sizes)[0].get<std::int64_t>(), (*sizes)[1].get<std::int64_t>()};
  }
  return block;
}

/// Explains why a directory has no readable weights: what it holds instead, and what to do with it.
Error no_weights(const fs::path& path) {
  std::string shard;
  std::string pickled;
  bool adapter = false;
  std::error_code failed;  // A missing directory needs no explanation.
  for (fs::directory_iterator entry(path, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const std::string name = entry->path().filename().string();
    adapter = adapter || name == "adapter_config.json";
    if (name.starts_with("model-") && name.ends_with(".safetensors")) {
      shard = shard.empty() ? name : std::min(shard, name);
    }
    if (name.starts_with("pytorch_model") && name.ends_with(".bin")) {
      pickled = pickled.empty() ? name : std::min(pickled, name);
    }
  }
  const auto instead = [&](std::string_view what) {
    return user_error(fmt::format("{}: neither {} nor {} is there; {}", path.string(), kOneFile,
                                  kIndexFile, what));
  };
  if (adapter) {
    return user_error(adapter_alone(path));
  }
  if (!shard.empty()) {
    return instead(
        fmt::format("{} is, but which shards belong to the model the index says: fetch "
                    "it too",
                    shard));
  }
  if (!pickled.empty()) {
    return instead(
        fmt::format("{} is, which is not read: save the model as safetensors "
                    "(transformers: from_pretrained, then save_pretrained)",
                    pickled));
  }
  return instead("give the directory of a model");
}

}  // namespace

std::string adapter_alone(const fs::path& path) {
  return fmt::format(
      "{}: an adapter for a model, not a model: merge it into the model that its "
      "adapter_config.json names (PEFT: merge_and_unload, then save_pretrained), and give that "
      "directory",
      path.string());
}

std::string how_to_fetch(std::string_view name) {
  const auto is_word = [](std::string_view word) {
    return !word.empty() && is_alphanumeric(word.front()) &&
           std::ranges::all_of(word, [](char letter) {
             return is_alphanumeric(letter) || letter == '-' || letter == '_' || letter == '.';
           });
  };
  const std::size_t slash = name.find('/');
  if (slash == std::string_view::npos || !is_word(name.substr(0, slash)) ||
      !is_word(name.substr(slash + 1))) {
    return std::filesystem::path(name).filename() == "SmolLM2"
               ? fmt::format(
                     "; `scripts/smollm2.sh {}` fetches it, in a package "
                     "share/actortrain/recipes/smollm2.sh",
                     name)
               : "; a published model is fetched first, by `hf download OWNER/NAME --local-dir "
                 "DIR`";
  }
  return fmt::format(
      "; a repository of that name is fetched first, by `hf download {} --local-dir {}`", name,
      name.substr(slash + 1));
}

Result<WeightDirectory> WeightDirectory::open(const fs::path& path) {
  WeightDirectory directory(path);
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) {
    TRAIN_RETURN_IF_ERROR(directory.add_file(path, {}));
  } else if (fs::exists(path / kOneFile, ignored)) {
    TRAIN_RETURN_IF_ERROR(directory.add_file(path / kOneFile, {}));
  } else if (fs::exists(path / kIndexFile, ignored)) {
    TRAIN_RETURN_IF_ERROR(directory.read_index(path / kIndexFile));
  } else {
    return no_weights(path);
  }
  TRAIN_RETURN_IF_ERROR(directory.find_quantized());
  return directory;
}

Status WeightDirectory::add_file(const fs::path& file, const Places& places) {
  auto input = TRAIN_TRY(InputFile::open(file));
  bool malformed = false;
  auto opened = SafetensorsFile::parse(std::move(input), &malformed);
  if (!opened && malformed) {  // A second attempt would not help.
    return user_error(fmt::format("{}; fetch it again", opened.error().message));
  }
  TRAIN_RETURN_IF_ERROR(opened);
  files_.push_back(std::move(opened).value());
  // Entries keep their addresses when the file object moves.
  for (const TensorEntry& entry : files_.back().entries()) {
    const Location here{files_.size() - 1, &entry};
    const auto [at, added] = tensors_.emplace(entry.name, here);
    if (added) {
      continue;
    }
    const fs::path other = files_[at->second.file].file().path();
    const auto place = places.find(entry.name);
    const std::string meant = place == places.end() ? "" : place->second;
    if (meant != file.filename() && meant != other.filename()) {
      return user_error(fmt::format("{}: tensor {} is in {} too; say in {} which one is meant",
                                    file.string(), entry.name, other.string(), kIndexFile));
    }
    at->second = meant == file.filename() ? here : at->second;
    doubled_.push_back(entry.name);
  }
  return {};
}

Status WeightDirectory::read_index(const fs::path& index) {
  const auto file = TRAIN_TRY(InputFile::open(index));
  const auto text = TRAIN_TRY(file.read_text(kLargestIndex));
  const auto map = TRAIN_TRY(parse_weight_map(index, text));
  std::set<std::string> names;
  for (const auto& [tensor, name] : map) {
    names.insert(name);
  }
  for (const std::string& name : names) {
    TRAIN_RETURN_IF_ERROR(add_file(path_ / name, map));
  }
  for (const auto& [tensor, name] : map) {
    if (!tensors_.contains(tensor)) {
      absent_.emplace(tensor, name);
    }
  }
  return {};
}

Status WeightDirectory::find_quantized() {
  const auto find = [this](const std::string& name) { return find_stored(name); };
  const bool has_numbers = std::ranges::any_of(
      tensors_, [](const auto& tensor) { return !weight_type(tensor.second.entry->dtype); });
  const auto block =
      has_numbers ? TRAIN_TRY(block_in_config(path_)) : std::array<std::int64_t, 2>{};
  for (const auto& [name, location] : tensors_) {
    auto found = quantized_tensor(*location.entry, find, block);
    if (!found) {
      unreadable_.emplace(name, std::move(found).error().message);
    } else if (!found->entry.name.empty() &&
               (found->entry.name == name || !tensors_.contains(found->entry.name))) {
      std::string whole = found->entry.name;
      quantized_.emplace(std::move(whole), std::move(found).value());
    }
  }
  for (const auto& [name, tensor] : quantized_) {
    for (const std::string& part : {tensor.numbers, tensor.scales}) {
      if (auto moved = tensors_.extract(part)) {
        parts_.insert(std::move(moved));
      }
    }
    tensors_.emplace(name, Location{parts_.at(tensor.numbers).file, &tensor.entry});
  }
  return {};
}

const TensorEntry* WeightDirectory::find_stored(std::string_view name) const {
  for (const Tensors* tensors : {&parts_, &tensors_}) {
    if (const auto found = tensors->find(name); found != tensors->end()) {
      return found->second.entry;
    }
  }
  return nullptr;
}

Status WeightDirectory::read_stored(std::string_view name, std::uint64_t offset,
                                    std::span<std::byte> out) const {
  const Location& location = parts_.find(name)->second;
  return files_[location.file].read(*location.entry, offset, out);
}

std::string WeightDirectory::unreadable(std::string_view name) const {
  if (const auto reason = unreadable_.find(name); reason != unreadable_.end()) {
    return reason->second;
  }
  const TensorEntry* entry = find(name);
  TRAIN_CHECK(entry != nullptr, "no tensor {}", name);
  return weight_type(entry->dtype)
             ? std::string()
             : fmt::format(
                   "tensor {} is of type {}: F32, BF16, F16 and, with their scales, FP8 "
                   "(weight_scale_inv) and MXFP4 can be read",
                   name, entry->dtype);
}

std::vector<std::string> WeightDirectory::names() const {
  std::vector<std::string> all;
  all.reserve(tensors_.size());
  for (const auto& [name, location] : tensors_) {
    all.push_back(name);
  }
  return all;
}

const TensorEntry* WeightDirectory::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : found->second.entry;
}

std::uint64_t WeightDirectory::tensor_bytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [name, location] : tensors_) {
    bytes += location.entry->end - location.entry->begin;
  }
  return bytes;
}

Status WeightDirectory::read_floats(std::string_view name, std::uint64_t first,
                                    std::span<float> out) const {
  const auto found = tensors_.find(name);
  TRAIN_CHECK(found != tensors_.end(), "no tensor {}", name);
  const TensorEntry& entry = *found->second.entry;
  if (const auto quantized = quantized_.find(name); quantized != quantized_.end()) {
    return read_quantized(
        quantized->second, [this](const std::string& part) { return find_stored(part); },
        [this](const std::string& part, std::uint64_t offset, std::span<std::byte> bytes) {
          return read_stored(part, offset, bytes);
        },
        first, out);
  }
  const auto type = weight_type(entry.dtype);
  if (!type) {
    return user_error(fmt::format("{}: {}", path_.string(), unreadable(name)));
  }
  const SafetensorsFile& file = files_[found->second.file];
  const std::size_t size = size_of(*type);
  std::uint64_t offset = first * size;
  file.expect_read(entry, offset, out.size() * size);
  if (*type == WeightType::f32) {
    return file.read(entry, offset, std::as_writable_bytes(out));
  }
  std::vector<std::byte> piece(std::min(out.size() * size, kPieceBytes));
  while (!out.empty()) {
    const std::size_t count = std::min(out.size(), piece.size() / size);
    const std::span<std::byte> bytes(piece.data(), count * size);
    TRAIN_RETURN_IF_ERROR(file.read(entry, offset, bytes));
    to_floats(*type, bytes, out.first(count));
    offset += bytes.size();
    out = out.subspan(count);
  }
  return {};
}

}  // namespace train::storage
