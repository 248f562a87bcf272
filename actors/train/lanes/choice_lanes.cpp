#include "actors/train/lanes/choice_lanes.hpp"

#include <fmt/format.h>

#include <utility>

#include "actors/head/model_files.hpp"
#include "storage/tokenizer/formats/file_names.hpp"
#include "storage/tokens/dataset_facts.hpp"
#include "storage/tokens/kept_tokenizer.hpp"
#include "storage/tokens/prepare.hpp"

namespace train::actors {
namespace {

namespace fs = std::filesystem;

/// Tokenizer of the choices; nullopt: bytes.
Result<std::optional<storage::Tokenizer>> find_tokenizer(const configs::RunConfig& config,
                                                         const fs::path& run_root,
                                                         std::int64_t vocab_size) {
  const bool has_data = !config.data.dir.empty();
  fs::path path = has_data ? storage::kept_tokenizer(config.data.dir) : fs::path();
  for (const fs::path& model : {model_directory(run_root), fs::path(config.model.from)}) {
    path = !model.empty() && storage::holds_tokenizer(model) ? model : path;
  }
  if (!path.empty()) {
    auto tokenizer = storage::Tokenizer::load(path);
    TRAIN_RETURN_IF_ERROR(tokenizer);
    return std::optional<storage::Tokenizer>(std::move(tokenizer).value());
  }
  const auto facts =
      has_data ? storage::read_dataset_facts(config.data.dir) : storage::DatasetFacts();
  TRAIN_RETURN_IF_ERROR(facts);
  const std::string name = facts->tokenizer.value_or("");
  const bool fits =
      vocab_size >= storage::bytes_vocab_size && vocab_size < 2 * storage::bytes_vocab_size;
  if (name == "bytes" || (name.empty() && fits)) {
    return std::optional<storage::Tokenizer>();
  }
  return user_error(fmt::format(
      "eval.choices: questions are texts, and there is no tokenizer: none in {}, none kept beside "
      "the data in \"{}\"; put tokenizer.json into the first",
      model_directory(run_root).string(), config.data.dir));
}

}  // namespace

ChoiceLanes::ChoiceLanes(std::shared_ptr<const LaneSource> rest,
                         std::shared_ptr<const storage::ChoiceSet> choices)
    : rest_(std::move(rest)), choices_(std::move(choices)) {}

Status ChoiceLanes::read(const engine::LaneWork& work, const engine::LaneSlot& slot) const {
  if (work.pass.rows != engine::LaneRows::questions) {
    return rest_->read(work, slot);
  }
  choices_->read(work.lane,
                 {.tokens = slot.tokens, .targets = slot.targets, .positions = slot.positions});
  return {};
}

std::optional<engine::RowCount> ChoiceLanes::count(std::int64_t step) const {
  return rest_ ? rest_->count(step) : std::optional<engine::RowCount>();
}

std::uint64_t ChoiceLanes::training_rows() const { return rest_ ? rest_->training_rows() : 0; }

std::optional<double> ChoiceLanes::bytes_per_token() const {
  return rest_ ? rest_->bytes_per_token() : std::optional<double>();
}

Result<std::string> ChoiceLanes::fingerprint() const {
  return rest_ ? rest_->fingerprint() : Result<std::string>(std::string());
}

Result<std::shared_ptr<const storage::ChoiceSet>> open_choices(const configs::RunConfig& config,
                                                               const fs::path& run_root,
                                                               std::int64_t vocab_size) {
  if (config.eval.choices.empty() || configs::choices_interval(config.eval) == 0) {
    return std::shared_ptr<const storage::ChoiceSet>();
  }
  const auto tokenizer = find_tokenizer(config, run_root, vocab_size);
  TRAIN_RETURN_IF_ERROR(tokenizer);
  auto set = storage::ChoiceSet::open(config.eval.choices, *tokenizer,
                                      {.row_length = config.data.sequence_length,
                                       .rows_per_lane = config.batch.micro_batch,
                                       .vocab_size = vocab_size});
  TRAIN_RETURN_IF_ERROR(set);
  return std::make_shared<const storage::ChoiceSet>(std::move(set).value());
}

}  // namespace train::actors
