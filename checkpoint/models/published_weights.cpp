#include "checkpoint/models/published_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include "storage/weight_files/element_types.hpp"

namespace train::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Renaming between the files and the class that trains: a model saved without its head has no
/// prefix, nor has the first GPT-2; a multimodal model has its text half below a prefix, as has a
/// model wrapped by torch.compile or DistributedDataParallel.
struct Renaming {
  const char* dropped;
  const char* added;
};
constexpr std::array kRenamings = {Renaming{"", ""},
                                   Renaming{"transformer.", ""},
                                   Renaming{"model.", ""},
                                   Renaming{"gpt_neox.", ""},
                                   Renaming{"backbone.", ""},
                                   Renaming{"", "language_model."},
                                   Renaming{"model.", "model.language_model."},
                                   Renaming{"", "_orig_mod."},
                                   Renaming{"", "module."}};
constexpr std::array kWrappers = {"_orig_mod.", "module."};  // Prefixes unknown to transformers.
constexpr std::uint64_t kCompared = std::uint64_t{1} << 16;  // Elements per comparison.

/// True for buffers, which are not weights.
bool is_ignored(const std::string& name) {
  for (const char* end : {"rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias",
                          ".attention.bias", ".attention.masked_bias"}) {
    if (name.ends_with(end)) {
      return true;
    }
  }
  return false;
}

/// Name prefixes that cover all the spec's parameters: the module of all layers, and the modules
/// beside it.
std::set<std::string> parts_of(const engine::ModelSpec& spec) {
  std::set<std::string> parts;
  for (const std::string& name : {spec.embedding, spec.head, spec.positions}) {
    parts.insert(name.substr(0, name.rfind('.') + 1));
  }
  parts.insert(spec.final_norm.name + ".");
  for (const engine::LayerSpec& layer : spec.layers) {
    const std::size_t number = layer.prefix.rfind('.', layer.prefix.size() - 2);
    parts.insert(layer.prefix.substr(0, number + 1));
  }
  parts.erase("");
  return parts;
}

std::string changed(const std::string& name, const std::string& dropped, const std::string& added) {
  return name.starts_with(dropped) ? added + name.substr(dropped.size()) : name;
}

}  // namespace

Result<std::shared_ptr<const PublishedWeights>> PublishedWeights::open(
    const fs::path& path, const engine::ModelSpec& spec) {
  auto directory = TRAIN_TRY(storage::WeightDirectory::open(path));
  std::shared_ptr<PublishedWeights> weights(new PublishedWeights(std::move(directory), spec));
  weights->find_prefix();
  TRAIN_RETURN_IF_ERROR(weights->decide_head());
  TRAIN_RETURN_IF_ERROR(weights->check());
  return std::shared_ptr<const PublishedWeights>(std::move(weights));
}

void PublishedWeights::find_prefix() {
  // A tied matrix may be stored under the head's name only.
  for (const std::string& name : {model_.embedding, model_.head}) {
    for (const Renaming& renaming : kRenamings) {
      if (directory_.find(changed(name, renaming.dropped, renaming.added)) != nullptr) {
        dropped_ = renaming.dropped;
        added_ = renaming.added;
        if (std::count(kWrappers.begin(), kWrappers.end(), added_) > 0) {
          notes_.push_back(
              fmt::format("the names of its tensors begin with {}, which is left out "
                          "(torch.compile or DistributedDataParallel put it there)",
                          added_));
        }
        return;
      }
    }
  }
}

std::string PublishedWeights::renamed(const std::string& name) const {
  return changed(name, dropped_, added_);
}

std::string PublishedWeights::embedding_in_files() const {
  // The original program of Mamba calls it otherwise than transformers.
  constexpr std::string_view kOriginal = "backbone.embedding.weight";
  const std::string name = renamed(model_.embedding);
  return name == "backbone.embeddings.weight" && directory_.find(name) == nullptr &&
                 directory_.find(std::string(kOriginal)) != nullptr
             ? std::string(kOriginal)
             : name;
}

std::string PublishedWeights::name_in_files(const std::string& name) const {
  if (name != model_.embedding) {
    return renamed(name);
  }
  return head_only_ ? renamed(model_.head) : embedding_in_files();
}

Status PublishedWeights::decide_head() {
  const std::string head = renamed(model_.head);
  if (!model_.tie_embeddings || directory_.find(head) == nullptr) {
    return {};
  }
  if (directory_.find(embedding_in_files()) == nullptr) {
    head_only_ = true;
    notes_.push_back(fmt::format("{} is used as the embedding too, which is missing", head));
    return {};
  }
  const auto same = TRAIN_TRY(head_is_embedding());
  if (!same) {
    model_.tie_embeddings = false;
    notes_.push_back(
        fmt::format("{} is another matrix than the embedding, though config.json ties them "
                    "(tie_word_embeddings): the head is that matrix, as in transformers",
                    head));
  }
  return {};
}

Result<bool> PublishedWeights::head_is_embedding() const {
  const std::string names[] = {renamed(model_.head), embedding_in_files()};
  const storage::TensorEntry* entries[] = {directory_.find(names[0]), directory_.find(names[1])};
  if (entries[0]->shape != entries[1]->shape) {
    return false;
  }
  std::uint64_t left = 1;
  for (const std::int64_t dimension : entries[0]->shape) {
    left *= static_cast<std::uint64_t>(dimension);
  }
  std::vector<float> values[2];
  for (std::uint64_t first = 0; left > 0; first += values[0].size()) {
    for (std::size_t i = 0; i < 2; ++i) {
      values[i].resize(std::min(left, kCompared));
      TRAIN_RETURN_IF_ERROR(directory_.read_floats(names[i], first, values[i]));
    }
    if (values[0] != values[1]) {
      return false;
    }
    left -= values[0].size();
  }
  return true;
}

std::string PublishedWeights::missing(const std::string& name) const {
  if (const auto listed = directory_.absent().find(name); listed != directory_.absent().end()) {
    return fmt::format("tensor {} is not in {}, where model.safetensors.index.json has it", name,
                       listed->second);
  }
  const bool head = name == renamed(model_.head);
  return fmt::format(
      "tensor {} is missing{}", name,
      head ? "; if the head shares the embedding, set \"tie_word_embeddings\": true in config.json"
           : "");
}

bool PublishedWeights::in_own_part(const std::string& name) const {
  const std::set<std::string> parts = parts_of(model_);
  return std::any_of(parts.begin(), parts.end(),
                     [&](const std::string& part) { return name.starts_with(renamed(part)); });
}

bool PublishedWeights::keep(const std::string& name) {
  const std::string usual = changed(name, added_, dropped_);
  const bool kept = std::ranges::any_of(
      model_.kept, [&](const std::string& prefix) { return usual.starts_with(prefix); });
  if (kept) {
    kept_.push_back(*directory_.find(name));
    kept_.back().name = usual;
  }
  return kept;
}

void PublishedWeights::note_surplus(const std::vector<std::string>& surplus) {
  if (!surplus.empty()) {
    notes_.push_back(
        fmt::format("{} tensors of parts that the model does not have are left out, the first {}",
                    surplus.size(), surplus.front()));
  }
  if (!kept_.empty()) {
    notes_.push_back(fmt::format(
        "{} tensors of layers that predict further tokens are not trained; exports keep them, the "
        "first {}",
        kept_.size(), kept_.front().name));
  }
  if (const auto& doubled = directory_.doubled(); !doubled.empty()) {
    notes_.push_back(
        fmt::format("{} tensors are in two files, of which the one that "
                    "model.safetensors.index.json names is read, the first {}",
                    doubled.size(), doubled.front()));
  }
  if (const auto& absent = directory_.absent(); !absent.empty()) {
    notes_.push_back(
        fmt::format("model.safetensors.index.json lists {} tensors that are not there and that the "
                    "model does without, the first {}",
                    absent.size(), absent.begin()->first));
  }
}

/// Describes the mistake of a tensor; empty if it is present and matches.
std::string PublishedWeights::mistake_of(const engine::TensorPart& part) const {
  const std::string name = name_in_files(part.name);
  const storage::TensorEntry* entry = directory_.find(name);
  if (entry == nullptr) {
    return missing(name);
  }
  if (entry->shape != part.shape) {
    return fmt::format("tensor {} has shape [{}], but config.json says [{}]", name,
                       fmt::join(entry->shape, ", "), fmt::join(part.shape, ", "));
  }
  return directory_.unreadable(name);
}

/// Dialect::stacked if a tensor is there that only this dialect has.
engine::Dialect PublishedWeights::dialect() const {
  for (const engine::MappedParameter& mapped : tensor_map(model_, engine::Dialect::stacked)) {
    for (const engine::TensorPart& part : mapped.parts) {
      if (part.name != mapped.parameter.name && directory_.find(renamed(part.name)) != nullptr) {
        return engine::Dialect::stacked;
      }
    }
  }
  return engine::Dialect::hf;
}

Status PublishedWeights::check() {
  std::vector<std::string> mistakes;
  std::set<std::string> wanted;
  const std::string path = directory_.path().string();
  for (engine::MappedParameter& mapped : tensor_map(model_, dialect())) {
    for (const engine::TensorPart& part : mapped.parts) {
      const bool first = wanted.insert(name_in_files(part.name)).second;
      if (std::string mistake = mistake_of(part); first && !mistake.empty()) {
        mistakes.push_back(std::move(mistake));
      }
    }
    map_.emplace(mapped.parameter.name, std::move(mapped));
  }
  std::vector<std::string> surplus;
  for (const std::string& name : directory_.names()) {
    // A tied head may be stored in addition to its embedding.
    const bool tied = model_.tie_embeddings && name == renamed(model_.head);
    if (wanted.contains(name) || tied || is_ignored(name) || keep(name)) {
      continue;
    }
    if (in_own_part(name)) {
      mistakes.push_back(
          fmt::format("tensor {} is not part of the model that config.json describes", name));
    } else {
      surplus.push_back(name);
    }
  }
  if (mistakes.empty()) {
    note_surplus(surplus);
    return {};
  }
  const std::string more = mistakes.size() > 1
                               ? fmt::format(" (and {} more like it)", mistakes.size() - 1)
                               : std::string();
  return user_error(
      fmt::format("{}: {}{}; config.json and weights must be of one model: fetch both again", path,
                  mistakes.front(), more));
}

Status PublishedWeights::read_rows(const engine::Parameter& parameter, std::int64_t first_row,
                                   std::int64_t rows, std::span<float> out) const {
  const auto read = [this](const std::string& tensor, std::int64_t first,
                           std::span<float> values) -> Status {
    const std::string name = name_in_files(tensor);
    TRAIN_RETURN_IF_ERROR(directory_.read_floats(name, static_cast<std::uint64_t>(first), values));
    const auto at = std::find_if(values.begin(), values.end(),
                                 [](float value) { return !std::isfinite(value); });
    if (at != values.end()) {
      return user_error(fmt::format(
          "{}: tensor {} has {} at element {}: the training that made it diverged, or the file is "
          "damaged; fetch it again, or use an earlier checkpoint",
          directory_.path().string(), name, *at, first + std::distance(values.begin(), at)));
    }
    return {};
  };
  const auto mapped = map_.find(parameter.name);
  return mapped == map_.end() ? read(parameter.name, first_row * parameter.cols(), out)
                              : engine::read_rows(mapped->second, first_row, rows, read, out);
}

}  // namespace train::checkpoint
