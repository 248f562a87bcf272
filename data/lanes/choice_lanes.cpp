#include "data/lanes/choice_lanes.hpp"

#include <fmt/format.h>

#include <utility>

#include "data/prepare/prepare.hpp"
#include "data/tokenizer/formats/file_names.hpp"
#include "data/tokens/dataset_facts.hpp"
#include "data/tokens/kept_tokenizer.hpp"

namespace train::data {
namespace {

namespace fs = std::filesystem;

/// Tokenizer of the choices; nullopt: bytes.
Result<std::optional<Tokenizer>> find_tokenizer(const configs::RunConfig& config,
                                                const fs::path& run_model,
                                                std::int64_t vocab_size) {
  const bool has_data = !config.data.dir.empty();
  fs::path path = has_data ? kept_tokenizer(config.data.dir) : fs::path();
  for (const fs::path& model : {run_model, fs::path(config.model.from)}) {
    path = !model.empty() && holds_tokenizer(model) ? model : path;
  }
  if (!path.empty()) {
    auto tokenizer = TRAIN_TRY(Tokenizer::load(path));
    return std::optional<Tokenizer>(std::move(tokenizer));
  }
  const auto facts = TRAIN_TRY(has_data ? read_dataset_facts(config.data.dir) : DatasetFacts());
  const std::string name = facts.tokenizer.value_or("");
  const bool fits = vocab_size >= kBytesVocabSize && vocab_size < 2 * kBytesVocabSize;
  if (name == "bytes" || (name.empty() && fits)) {
    return std::optional<Tokenizer>();
  }
  return user_error(
      fmt::format("eval.choices: scoring questions needs a tokenizer, but there is none in {} or "
                  "beside the data in \"{}\"; put tokenizer.json into the first",
                  run_model.string(), config.data.dir));
}

}  // namespace

ChoiceLanes::ChoiceLanes(std::shared_ptr<const LaneSource> rest,
                         std::shared_ptr<const ChoiceSet> choices)
    : LaneSource(rest ? rest->facts() : LaneFacts()),
      rest_(std::move(rest)),
      choices_(std::move(choices)) {
  facts_.choices = choices_.get();
}

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

Result<std::string> ChoiceLanes::fingerprint() const {
  return rest_ ? rest_->fingerprint() : Result<std::string>(std::string());
}

Result<std::shared_ptr<const ChoiceSet>> open_choices(const configs::RunConfig& config,
                                                      const fs::path& run_model,
                                                      std::int64_t vocab_size) {
  if (config.eval.choices.empty() || configs::choices_interval(config.eval) == 0) {
    return std::shared_ptr<const ChoiceSet>();
  }
  const auto tokenizer = TRAIN_TRY(find_tokenizer(config, run_model, vocab_size));
  auto set = TRAIN_TRY(ChoiceSet::open(config.eval.choices, tokenizer,
                                       {.row_length = config.data.sequence_length,
                                        .rows_per_lane = config.batch.micro_batch,
                                        .vocab_size = vocab_size}));
  return std::make_shared<const ChoiceSet>(std::move(set));
}

}  // namespace train::data
