#include "data/choices/choice_set.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/check.hpp"

namespace train::data {
namespace {

std::vector<std::string> source_names(const std::vector<std::string>& files) {
  std::vector<std::string> names;
  names.reserve(files.size());
  for (const std::string& file : files) {
    names.push_back(std::filesystem::path(file).filename().string());
  }
  const bool unique = std::set<std::string>(names.begin(), names.end()).size() == names.size();
  return unique ? names : files;
}

}  // namespace

Result<ChoiceSet> ChoiceSet::open(const std::vector<std::string>& files,
                                  const std::optional<Tokenizer>& tokenizer,
                                  const ChoiceOptions& options) {
  TRAIN_CHECK(!files.empty() && options.row_length > 0 && options.rows_per_lane > 0);
  ChoiceSet set(options);
  set.sources_ = source_names(files);
  ChoiceReading reading(tokenizer, options);
  for (std::size_t i = 0; i < files.size(); ++i) {
    TRAIN_RETURN_IF_ERROR(reading.read(files[i], i));
  }
  set.read_ = reading.take();
  set.pack();
  return set;
}

void ChoiceSet::pack() {
  std::int64_t used = options_.row_length + 1;  // No row is open.
  for (std::size_t i = 0; i < read_.documents.size(); ++i) {
    if (used + read_.documents[i].inputs() > options_.row_length) {
      rows_.push_back(i);
      used = 0;
    }
    used += read_.documents[i].inputs();
  }
  rows_.push_back(read_.documents.size());
}

std::int64_t ChoiceSet::lanes() const {
  const auto rows = static_cast<std::int64_t>(rows_.size()) - 1;
  return (rows + options_.rows_per_lane - 1) / options_.rows_per_lane;
}

ChoiceSet::Documents ChoiceSet::documents_of(std::int64_t first, std::int64_t end) const {
  const auto at = [this](std::int64_t lane) {
    const auto row = static_cast<std::size_t>(lane * options_.rows_per_lane);
    return rows_[std::min(row, rows_.size() - 1)];
  };
  return {.first = at(first), .count = at(end) - at(first)};
}

void ChoiceSet::read(std::int64_t lane, const ChoiceColumns& columns) const {
  const auto length = static_cast<std::size_t>(options_.row_length);
  TRAIN_CHECK(columns.tokens.size() == length * static_cast<std::size_t>(options_.rows_per_lane) &&
              columns.targets.size() == columns.tokens.size() &&
              columns.positions.size() == columns.tokens.size());
  for (std::size_t i = 0; i < static_cast<std::size_t>(options_.rows_per_lane); ++i) {
    const std::size_t row = static_cast<std::size_t>(lane * options_.rows_per_lane) + i;
    std::size_t place = i * length;
    const std::size_t end = place + length;
    const bool there = row + 1 < rows_.size();
    for (std::size_t at = there ? rows_[row] : 0; there && at < rows_[row + 1]; ++at) {
      const ChoiceDocument& document = read_.documents[at];
      for (std::int64_t k = 0; k < document.inputs(); ++k, ++place) {
        const std::int32_t* token =
            &read_.tokens[document.first_token + static_cast<std::size_t>(k)];
        columns.tokens[place] = token[0];
        columns.targets[place] = k + 1 < document.context ? -1 : token[1];
        columns.positions[place] = static_cast<std::int32_t>(k);
      }
    }
    for (std::int32_t position = 0; place < end; ++place, ++position) {
      columns.tokens[place] = 0;
      columns.targets[place] = -1;
      columns.positions[place] = position;
    }
  }
}

}  // namespace train::data
