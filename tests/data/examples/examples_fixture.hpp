#pragma once

#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/examples/prepare_rows.hpp"
#include "data/rows/row_text.hpp"
#include "data/tokenizer/tokenizer.hpp"
#include "data/tokens/kept_tokenizer.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/inputs/small_tokenizer.hpp"

namespace train::test {

/// small_tokenizer_json() with the tokens of chatml's turns.
inline std::string chat_tokenizer_json() {
  auto json = nlohmann::ordered_json::parse(small_tokenizer_json());
  auto& added = json.at("added_tokens");
  for (const char* const text : {"<|im_start|>", "<|im_end|>"}) {
    auto token = added.at(0);
    token["id"] = 264 + added.size();
    token["content"] = text;
    added.push_back(token);
  }
  return json.dump();
}

/// A directory with `tokenizer/tokenizer.json`.
class DataPlace {
 public:
  DataPlace() {
    std::filesystem::create_directory(folder_ / "tokenizer");
    write_bytes(folder_ / "tokenizer/tokenizer.json", chat_tokenizer_json());
  }
  [[nodiscard]] std::filesystem::path operator/(std::string_view name) const {
    return folder_ / name;
  }
  [[nodiscard]] data::Tokenizer tokenizer() const {
    auto loaded = data::Tokenizer::load(folder_ / "tokenizer");
    REQUIRE(loaded.ok());
    return *loaded;
  }
  /// Rows of 64 tokens of `input` (written here), by chatml, all for training.
  [[nodiscard]] data::PrepareRowsRequest request(const std::string& lines,
                                                 const std::string& name = "in.jsonl") const {
    write_bytes(folder_ / name, lines);
    return {.inputs = {folder_ / name},
            .tokenizer = folder_ / "tokenizer",
            .out = folder_ / "out",
            .row_length = 64,
            .chat_template = "chatml",
            .val_fraction = 0.0};
  }
  /// All documents of train in the order of their numbers, with marks around what is trained.
  [[nodiscard]] std::vector<std::string> marked() const {
    const auto split = data::RowSplit::open(folder_ / "out", "train");
    REQUIRE(split.ok());
    const auto kept = data::Tokenizer::load(data::kept_tokenizer(folder_ / "out"));
    REQUIRE(kept.ok());
    std::vector<std::string> documents(split->facts().train.documents);
    for (std::uint64_t row = 0; row < split->rows(); ++row) {
      const auto excerpts = data::read_excerpts(*split, row);
      REQUIRE(excerpts.ok());
      const auto numbers = split->document_numbers(row);
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        documents.at(numbers[i]) += data::marked_text(*kept, (*excerpts)[i], {"[[", "]]"});
      }
    }
    return documents;
  }

 private:
  TempDirectory folder_;
};

inline data::RowReport prepared(const data::PrepareRowsRequest& request) {
  auto report = data::prepare_rows(request);
  INFO((report ? std::string() : report.error().message));
  REQUIRE(report.ok());
  return std::move(*report);
}

inline std::string prepare_rows_error(const data::PrepareRowsRequest& request) {
  const auto report = data::prepare_rows(request);
  REQUIRE_FALSE(report.ok());
  REQUIRE(report.error().exit_code() == 2);
  REQUIRE(report.error().message.find('\n') == std::string::npos);
  return report.error().message;
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace train::test
