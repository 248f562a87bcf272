#include "data/rows/row_facts.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "data/rows/row_format.hpp"
#include "data/tokens/dataset_facts.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/files/digest.hpp"

namespace train::data {
namespace {

namespace fs = std::filesystem;
using RowJson = nlohmann::ordered_json;

constexpr std::uint64_t kRowFactsLimitBytes = std::uint64_t{8} << 20;
/// Longest row: positions are 32-bit numbers.
constexpr std::int64_t kRowLengthLimit = std::int64_t{1} << 30;

/// Reads members of a JSON object; keeps the first error.
class FactReader {
 public:
  FactReader(const RowJson& object, std::string place)
      : object_(object), place_(std::move(place)) {}

  [[nodiscard]] const RowJson* member(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  template <class Count>
  void count(const char* key, Count& value, bool needed) {
    const RowJson* const found = member(key);
    if (found == nullptr && !needed) {
      return;
    }
    if (found == nullptr || !found->is_number_unsigned() || found->get<std::int64_t>() < 0) {
      wrong(key, "a whole number >= 0");
      return;
    }
    value = found->get<Count>();
  }
  void text(const char* key, std::string& value) {
    if (const RowJson* const found = member(key)) {
      if (!found->is_string()) {
        wrong(key, "a string");
        return;
      }
      value = found->get<std::string>();
    }
  }
  void wrong(const char* key, const char* wanted) {
    if (status_) {
      status_ = user_error(fmt::format("{}: {} has to be {}", place_, key, wanted));
    }
  }
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  const RowJson& object_;
  std::string place_;
  Status status_;
};

Result<RowCounts> counts_of(const RowJson& object, const std::string& place) {
  FactReader reader(object, place);
  RowCounts counts;
  reader.count("rows", counts.rows, true);
  reader.count("segments", counts.segments, true);
  reader.count("documents", counts.documents, true);
  reader.count("tokens", counts.tokens, true);
  reader.count("trained_tokens", counts.trained_tokens, true);
  reader.count("pairs", counts.pairs, false);
  std::string digest;
  reader.text("digest", digest);
  if (!digest.empty()) {
    if (!storage::is_digest(digest)) {
      reader.wrong("digest", "a digest (xxh3-128:...)");
    }
    counts.digest = digest;
  }
  TRAIN_RETURN_IF_ERROR(reader.status());
  return counts;
}

void read_settings(FactReader& reader, RowFacts& facts) {
  reader.text("kind", facts.kind);
  reader.text("tokenizer", facts.tokenizer);
  reader.count("vocab_size", facts.vocab_size, false);
  std::string dtype;
  reader.text("dtype", dtype);
  if (dtype != "uint16" && dtype != "uint32") {
    reader.wrong("dtype", R"("uint16" or "uint32")");
  }
  facts.token_bytes = dtype == "uint16" ? 2 : 4;
  if (reader.member("end_of_text") != nullptr) {
    reader.count("end_of_text", facts.end_of_text.emplace(0), true);
  }
  if (const RowJson* const found = reader.member("turn_ends")) {
    for (const RowJson& id : *found) {
      if (!found->is_array() || !id.is_number_unsigned()) {
        reader.wrong("turn_ends", "a list of ids");
        return;
      }
      facts.turn_ends.push_back(id.get<std::uint32_t>());
    }
  }
  reader.text("chat_template", facts.chat_template);
  reader.count("row_length", facts.row_length, true);
  if (facts.row_length < 1 || facts.row_length > kRowLengthLimit) {
    reader.wrong("row_length", "a whole number of 1 or more");
  }
  reader.text("packing", facts.packing);
  if (const RowJson* const found = reader.member("weights")) {
    facts.has_weights = found->is_boolean() && found->get<bool>();
    if (!found->is_boolean()) {
      reader.wrong("weights", "true or false");
    }
  }
  if (const RowJson* const found = reader.member("sources")) {
    for (const RowJson& name : *found) {
      if (!found->is_array() || !name.is_string()) {
        reader.wrong("sources", "a list of strings");
        return;
      }
      facts.sources.push_back(name.get<std::string>());
    }
  }
  reader.text("key", facts.key);
  if (const RowJson* const found = reader.member("report")) {
    facts.report = found->dump();
  }
}

RowJson counts_json(const RowCounts& counts) {
  RowJson object = {{"rows", counts.rows},
                    {"segments", counts.segments},
                    {"documents", counts.documents},
                    {"tokens", counts.tokens},
                    {"trained_tokens", counts.trained_tokens}};
  if (counts.pairs > 0) {
    object["pairs"] = counts.pairs;
  }
  if (counts.digest) {
    object["digest"] = *counts.digest;
  }
  return object;
}

}  // namespace

Status check_row_directory(const fs::path& directory, std::string_view key,
                           std::int64_t row_length) {
  std::error_code ignored;
  if (fs::is_directory(directory, ignored)) {
    return {};
  }
  return user_error(fmt::format(
      "{}: no such directory of rows; {}make it with `actortrain data prepare --input FILE "
      "--tokenizer DIR --row-length {} --out {}`",
      directory.string(), key.empty() ? "" : fmt::format("check {}, or ", key),
      row_length == 0 ? "T" : std::to_string(row_length), directory.string()));
}

Result<bool> holds_rows(const fs::path& directory) {
  const auto facts = TRAIN_TRY(read_dataset_facts(directory));
  return facts.format == kRowFormatName;
}

Result<RowFacts> read_row_facts(const fs::path& directory) {
  const fs::path path = directory / kFactsFileName;
  const std::string place = path.string();
  TRAIN_RETURN_IF_ERROR(check_row_directory(directory));
  const auto holds = TRAIN_TRY(holds_rows(directory));
  if (!holds) {
    std::error_code ignored;
    return user_error(fmt::format(
        "{}: holds no rows: {}; prepare rows with `actortrain data prepare --row-length T`",
        directory.string(),
        fs::exists(path, ignored) ? "its meta.json does not say \"format\": \"rows\""
                                  : "there is no meta.json"));
  }
  const auto text = TRAIN_TRY(storage::read_file(path, kRowFactsLimitBytes));
  const RowJson object = RowJson::parse(text, nullptr, false);
  FactReader reader(object, place);
  std::int64_t version = 0;
  reader.count("format_version", version, true);
  TRAIN_RETURN_IF_ERROR(reader.status());
  if (version != kRowFormatVersion) {
    return user_error(
        fmt::format("{}: format_version is {}, but this program reads {}; prepare the data again",
                    place, version, kRowFormatVersion));
  }
  RowFacts facts;
  read_settings(reader, facts);
  for (const std::string_view split : kRowSplits) {
    const std::string name(split);
    const RowJson* const found = reader.member(name.c_str());
    if (found == nullptr || !found->is_object()) {
      reader.wrong(name.c_str(), "an object with the counts of the split");
      break;
    }
    auto counts = TRAIN_TRY(counts_of(*found, fmt::format("{}: {}", place, name)));
    (split == "val" ? facts.val : facts.train) = std::move(counts);
  }
  TRAIN_RETURN_IF_ERROR(reader.status());
  return facts;
}

Status write_row_facts(const fs::path& directory, const RowFacts& facts) {
  RowJson object = {{"format", kRowFormatName},
                    {"format_version", kRowFormatVersion},
                    {"kind", facts.kind},
                    {"tokenizer", facts.tokenizer},
                    {"vocab_size", facts.vocab_size},
                    {"dtype", facts.token_bytes == 2 ? "uint16" : "uint32"}};
  if (facts.end_of_text) {
    object["end_of_text"] = *facts.end_of_text;
  }
  if (!facts.turn_ends.empty()) {
    object["turn_ends"] = facts.turn_ends;
  }
  if (!facts.chat_template.empty()) {
    object["chat_template"] = facts.chat_template;
  }
  object["row_length"] = facts.row_length;
  object["packing"] = facts.packing;
  object["weights"] = facts.has_weights;
  object["sources"] = facts.sources;
  object["train"] = counts_json(facts.train);
  object["val"] = counts_json(facts.val);
  if (!facts.key.empty()) {
    object["key"] = facts.key;
  }
  if (!facts.report.empty()) {
    object["report"] = RowJson::parse(facts.report);
  }
  return storage::write_file_atomically(
      directory / kFactsFileName,
      object.dump(2, ' ', false, RowJson::error_handler_t::replace) + "\n");
}

}  // namespace train::data
