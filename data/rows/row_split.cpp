#include "data/rows/row_split.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "data/rows/row_files.hpp"
#include "data/tokens/dataset_facts.hpp"
#include "data/tokens/token_fingerprint.hpp"
#include "storage/files/digest.hpp"
#include "storage/files/input_file.hpp"

namespace train::data {
namespace {

constexpr std::uint32_t kLargestToken = 0x7fffffffU;
/// Ids checked at each end of the tokens on opening; all are checked when read.
constexpr std::uint64_t kRowIdsLookedAt = 4096;

Error no_rows(const std::filesystem::path& directory, const std::string& split) {
  return user_error(fmt::format("{} holds no rows of {}; {}", directory.string(), split,
                                split == "val"
                                    ? "prepare with a larger --val-fraction, or do not evaluate"
                                    : "prepare with more data"));
}

Status check_options(const std::filesystem::path& directory, const RowFacts& facts,
                     const RowOptions& options) {
  if (options.row_length != 0 && options.row_length != facts.row_length) {
    return user_error(fmt::format(
        "{}: its rows have {} tokens, not {}; set data.sequence_length = {}, or prepare "
        "with --row-length {}",
        directory.string(), facts.row_length, options.row_length, facts.row_length,
        options.row_length));
  }
  return {};
}

}  // namespace

struct RowSplit::State {
  RowFacts facts;
  RowFiles files;
  std::uint32_t token_limit = kLargestToken;

  [[nodiscard]] bool is_beyond_said(std::uint32_t id) const {
    return facts.vocab_size > 0 && id >= facts.vocab_size;
  }
  [[nodiscard]] Error outside(std::uint64_t position, std::uint32_t id) const;
  /// Checks the first and last ids when the files are opened.
  [[nodiscard]] Status check_said_vocabulary(std::uint64_t tokens) const;

  Status read_segment(const SegmentRecord& segment, std::size_t place, const RowColumns& out) const;
};

Error RowSplit::State::outside(std::uint64_t position, std::uint32_t id) const {
  if (is_beyond_said(id)) {
    return user_error(
        fmt::format("{}: vocab_size is {}, but {} has token {} at position {}; fix vocab_size if "
                    "the ids are right, or prepare the data again",
                    (files.tokens_path.parent_path() / kFactsFileName).string(), facts.vocab_size,
                    files.tokens_path.filename().string(), id, position));
  }
  return user_error(fmt::format(
      "{}: token {} at position {} is outside the vocabulary of {}; prepare the data without "
      "the text that has it, or with the model's tokenizer; a new model takes more "
      "(model.vocab_size)",
      files.tokens_path.string(), id, position, token_limit));
}

Status RowSplit::State::check_said_vocabulary(std::uint64_t tokens) const {
  for (std::uint64_t i = 0; i < tokens; ++i) {
    if (i == kRowIdsLookedAt && tokens > 2 * kRowIdsLookedAt) {
      i = tokens - kRowIdsLookedAt;
    }
    if (is_beyond_said(files.token(i))) {
      return outside(i, files.token(i));
    }
  }
  return {};
}

Status RowSplit::State::read_segment(const SegmentRecord& segment, std::size_t place,
                                     const RowColumns& out) const {
  const DocumentRecord document = files.documents[segment.document];
  const std::uint64_t first = document.first_token + segment.start;
  std::uint32_t trained_count = 0;
  for (std::uint32_t i = 0; i < segment.length; ++i) {
    const std::uint32_t id = files.token(first + i);
    const bool last = segment.start + i + 1 == document.length;
    const std::uint32_t next = last ? 0 : files.token(first + i + 1);
    if (id >= token_limit || next >= token_limit) {
      return id >= token_limit ? outside(first + i, id) : outside(first + i + 1, next);
    }
    const bool trained = !last && files.trained(first + i + 1);
    trained_count += trained ? 1 : 0;
    const std::size_t at = place + i;
    out.tokens[at] = static_cast<std::int32_t>(id);
    out.targets[at] =
        trained || (out.prompt_targets && !last) ? static_cast<std::int32_t>(next) : -1;
    out.positions[at] = static_cast<std::int32_t>(i);
    if (!out.weights.empty()) {
      out.weights[at] = trained ? files.weight(first + i + 1) : 0.0F;
    }
  }
  if (trained_count != segment.trained) {
    return user_error(
        fmt::format("{}: document {} has {} trained targets where the index says {}; prepare the "
                    "data again with --force",
                    files.tokens_path.string(), segment.document, trained_count, segment.trained));
  }
  return {};
}

RowSplit::RowSplit(std::unique_ptr<State> state) : state_(std::move(state)) {}
RowSplit::RowSplit(RowSplit&&) noexcept = default;
RowSplit& RowSplit::operator=(RowSplit&&) noexcept = default;
RowSplit::~RowSplit() = default;

Result<RowSplit> RowSplit::open(const std::filesystem::path& directory, const std::string& split,
                                const RowOptions& options) {
  TRAIN_CHECK(std::find(kRowSplits.begin(), kRowSplits.end(), split) != kRowSplits.end(),
              "split {}", split);
  auto facts = TRAIN_TRY(read_row_facts(directory));
  TRAIN_RETURN_IF_ERROR(check_options(directory, facts, options));
  if (facts.of(split).rows == 0) {
    return no_rows(directory, split);
  }
  auto files = TRAIN_TRY(RowFiles::open(directory, split, facts));
  auto state = std::make_unique<State>();
  for (const std::int64_t vocab_size : {options.vocab_size, facts.vocab_size}) {
    if (vocab_size > 0 && vocab_size < state->token_limit) {
      state->token_limit = static_cast<std::uint32_t>(vocab_size);
    }
  }
  state->facts = std::move(facts);
  state->files = std::move(files);
  TRAIN_RETURN_IF_ERROR(state->check_said_vocabulary(state->facts.of(split).tokens));
  return RowSplit(std::move(state));
}

std::uint64_t RowSplit::rows() const { return state_->files.rows.count(); }
std::int64_t RowSplit::row_length() const { return state_->facts.row_length; }
const RowFacts& RowSplit::facts() const { return state_->facts; }
std::uint64_t RowSplit::trained_tokens(std::uint64_t row) const {
  return state_->files.rows[row].trained;
}
double RowSplit::weight_sum(std::uint64_t row) const { return state_->files.rows[row].weight_sum; }
std::uint64_t RowSplit::tokens(std::uint64_t row) const { return state_->files.rows[row].tokens; }

std::vector<RowDocument> RowSplit::documents(std::uint64_t row) const {
  const RowFiles& files = state_->files;
  std::vector<RowDocument> documents;
  std::int32_t first = 0;
  for (std::uint64_t i = files.rows[row].first_segment; i < files.segments_end(row); ++i) {
    const SegmentRecord segment = files.segments[i];
    const DocumentRecord document = files.documents[segment.document];
    documents.push_back({.first = first,
                         .length = static_cast<std::int32_t>(segment.length),
                         .trained = static_cast<std::int32_t>(segment.trained),
                         .source = static_cast<std::int32_t>(document.source),
                         .pair = document.pair,
                         .side = static_cast<std::int8_t>(document.side)});
    first += static_cast<std::int32_t>(segment.length);
  }
  return documents;
}

std::vector<std::uint64_t> RowSplit::document_numbers(std::uint64_t row) const {
  const RowFiles& files = state_->files;
  std::vector<std::uint64_t> numbers;
  for (std::uint64_t i = files.rows[row].first_segment; i < files.segments_end(row); ++i) {
    numbers.push_back(files.segments[i].document);
  }
  return numbers;
}

Status RowSplit::read(std::uint64_t row, RowColumns out) const {
  const RowFiles& files = state_->files;
  const auto length = static_cast<std::size_t>(state_->facts.row_length);
  TRAIN_CHECK(out.tokens.size() == length && out.targets.size() == length &&
              out.positions.size() == length &&
              (out.weights.empty() || out.weights.size() == length));
  std::size_t place = 0;
  for (std::uint64_t i = files.rows[row].first_segment; i < files.segments_end(row); ++i) {
    const SegmentRecord segment = files.segments[i];
    TRAIN_RETURN_IF_ERROR(state_->read_segment(segment, place, out));
    place += segment.length;
  }
  for (std::int32_t position = 0; place < length; ++place, ++position) {
    out.tokens[place] = 0;
    out.targets[place] = -1;
    out.positions[place] = position;
    if (!out.weights.empty()) {
      out.weights[place] = 0.0F;
    }
  }
  return {};
}

Result<std::string> row_fingerprint(const std::filesystem::path& directory) {
  const auto facts = TRAIN_TRY(read_row_facts(directory));
  std::string text =
      fmt::format("rows of {} tokens of {} bytes\n", facts.row_length, facts.token_bytes);
  for (const std::string_view split : kRowSplits) {
    for (const std::string_view part : kRowParts) {
      if (part == kWeightPart && !facts.has_weights) {
        continue;
      }
      const std::filesystem::path path = directory / row_file_name(split, part);
      const auto sample = TRAIN_TRY(sampled_digest(path));
      text += fmt::format("{} {} {}\n", split, part, sample);
    }
    text += fmt::format("whole {}\n", facts.of(std::string(split)).digest.value_or("-"));
  }
  return storage::digest_text(text);
}

}  // namespace train::data
