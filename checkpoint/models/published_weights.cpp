#include "checkpoint/models/published_weights.hpp"

#include <fmt/format.h>

#include <array>
#include <set>
#include <utility>

#include "engine/model/unit_parameters.hpp"
#include "storage/weight_files/element_types.hpp"

namespace train::checkpoint {
namespace {

namespace fs = std::filesystem;

/// How names in files differ from those of the class that trains: GPT-2's were first published
/// without a prefix; a model that also sees has its text half's below one.
struct Renaming {
  const char* dropped;
  const char* added;
};
constexpr std::array kRenamings = {Renaming{"", ""}, Renaming{"transformer.", ""},
                                   Renaming{"", "language_model."},
                                   Renaming{"model.", "model.language_model."}};

/// Tensors that are no weights of the text model: buffers, and the half that sees.
bool is_ignored(const std::string& name) {
  for (const char* end : {"rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias",
                          ".attention.bias", ".attention.masked_bias"}) {
    if (name.ends_with(end)) {
      return true;
    }
  }
  for (const char* part : {"vision_tower.", "multi_modal_projector."}) {
    if (name.starts_with(part) || name.starts_with(std::string("model.") + part)) {
      return true;
    }
  }
  return false;
}

std::string renamed(const std::string& name, const std::string& dropped, const std::string& added) {
  return name.starts_with(dropped) ? added + name.substr(dropped.size()) : name;
}

}  // namespace

Result<std::shared_ptr<const PublishedWeights>> PublishedWeights::open(
    const fs::path& path, const engine::ModelSpec& spec) {
  auto directory = storage::WeightDirectory::open(path);
  TRAIN_RETURN_IF_ERROR(directory);
  std::shared_ptr<PublishedWeights> weights(new PublishedWeights(std::move(directory).value()));
  weights->find_prefix(spec);
  TRAIN_RETURN_IF_ERROR(weights->check(spec));
  return std::shared_ptr<const PublishedWeights>(std::move(weights));
}

void PublishedWeights::find_prefix(const engine::ModelSpec& spec) {
  for (const Renaming& renaming : kRenamings) {
    if (directory_.find(renamed(spec.embedding, renaming.dropped, renaming.added)) != nullptr) {
      dropped_ = renaming.dropped;
      added_ = renaming.added;
      return;
    }
  }
}

std::string PublishedWeights::name_in_files(const std::string& parameter) const {
  return renamed(parameter, dropped_, added_);
}

Status PublishedWeights::check(const engine::ModelSpec& spec) const {
  std::vector<std::string> mistakes;
  std::set<std::string> wanted;
  const std::string path = directory_.path().string();
  for (const engine::UnitParameters& unit : engine::describe_units(spec)) {
    for (const engine::Parameter& parameter : unit.parameters) {
      if (parameter.adapter) {
        continue;
      }
      const std::string name = name_in_files(parameter.name);
      wanted.insert(name);
      const storage::TensorEntry* entry = directory_.find(name);
      if (entry == nullptr) {
        mistakes.push_back(fmt::format("tensor {} is missing", name));
      } else if (entry->shape != parameter.shape()) {
        mistakes.push_back(fmt::format("tensor {} has shape [{}], config.json wants [{}]", name,
                                       fmt::join(entry->shape, ", "),
                                       fmt::join(parameter.shape(), ", ")));
      } else if (!storage::weight_type(entry->dtype)) {
        mistakes.push_back(fmt::format("tensor {} is of type {}: F32, BF16 and F16 can be read",
                                       name, entry->dtype));
      }
    }
  }
  for (const std::string& name : directory_.names()) {
    // A tied head may be stored beside the embedding that it is.
    const bool tied = spec.tie_embeddings && name == name_in_files(spec.head);
    if (!wanted.contains(name) && !tied && !is_ignored(name)) {
      mistakes.push_back(
          fmt::format("tensor {} belongs to nothing in a model of config.json", name));
    }
  }
  if (mistakes.empty()) {
    return {};
  }
  const std::string more = mistakes.size() > 1
                               ? fmt::format(" (and {} more like it)", mistakes.size() - 1)
                               : std::string();
  return user_error(fmt::format("{}: {}{}", path, mistakes.front(), more));
}

Status PublishedWeights::read_rows(const engine::Parameter& parameter, std::int64_t first_row,
                                   std::int64_t /*rows*/, std::span<float> out) const {
  return directory_.read_floats(name_in_files(parameter.name),
                                static_cast<std::uint64_t>(first_row * parameter.cols), out);
}

}  // namespace train::checkpoint
