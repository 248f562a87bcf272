#pragma once

#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>

#include "data/rows/row_split.hpp"
#include "data/rows/row_writer.hpp"
#include "tests/support/disks/temp_directory.hpp"

namespace train::test {

/// Parameters of a small deterministic data set of packed rows.
struct RowSet {
  std::string kind = "chat";  ///< "preference" and "kto" count pairs and examples.
  std::int64_t vocab_size = 61;
  std::uint32_t row_length = 16;
  int documents = 60;
  int trained = 2;  ///< Every n-th document has no trained target; 0: all have one.
  bool weights = true;
};

/// Generates prompts and answers below the vocabulary; the answers' tokens are trained.
inline data::RowText row_text(std::mt19937& random, const RowSet& set, bool trained) {
  data::RowText text;
  const auto below = [&random](std::uint32_t limit) {
    return static_cast<std::uint32_t>(random() % limit);
  };
  const std::uint32_t length = 3 + below(set.row_length - 5);
  const std::uint32_t prompt = 1 + below(length - 1);
  std::uint32_t token = below(1000);
  for (std::uint32_t i = 0; i < length; ++i, token += 3) {
    text.tokens.push_back(token % static_cast<std::uint32_t>(set.vocab_size));
    text.trained.push_back(trained && i >= prompt);
    if (set.weights) {
      text.weights.push_back(static_cast<float>(1 + below(4)) / 2.0F);
    }
  }
  return text;
}

inline data::RowCounts write_split(const std::filesystem::path& directory, const std::string& split,
                                   const RowSet& set, int documents) {
  auto writer = data::RowSplitWriter::create(
      directory, split,
      {.token_bytes = 2, .row_length = set.row_length, .packing = data::Packing::bfd, .seed = 3});
  REQUIRE(writer.ok());
  std::mt19937 random(split == "val" ? 11 : 5);
  for (int i = 0; i < documents && set.kind == "preference"; ++i) {
    // Both sides fit in one row and are never equal.
    RowSet half = set;
    half.row_length = set.row_length / 2;
    const data::RowText chosen = row_text(random, half, true);
    data::RowText rejected = chosen;
    rejected.tokens.back() =
        (rejected.tokens.back() + 1) % static_cast<std::uint32_t>(set.vocab_size);
    REQUIRE(writer->add_pair(chosen, rejected, 0).ok());
  }
  for (int i = 0; i < documents && set.kind == "kto"; ++i) {
    RowSet half = set;
    half.row_length = set.row_length / 2;
    REQUIRE(writer->add_labelled(row_text(random, half, true), 0, i % 3 != 0).ok());
  }
  for (int i = 0; i < documents && set.kind != "preference" && set.kind != "kto"; ++i) {
    const bool trained = set.trained > 0 && i % set.trained != 0;
    REQUIRE(writer->add(row_text(random, set, trained), 0).ok());
  }
  REQUIRE(writer->finish().ok());
  return writer->counts();
}

inline void write_rows(const std::filesystem::path& directory, const RowSet& set = {}) {
  std::filesystem::create_directories(directory);
  const data::RowCounts train = write_split(directory, "train", set, set.documents);
  const data::RowCounts val = write_split(directory, "val", set, 20);
  REQUIRE(data::write_row_facts(directory, {.kind = set.kind,
                                            .tokenizer = "bytes",
                                            .vocab_size = set.vocab_size,
                                            .token_bytes = 2,
                                            .row_length = set.row_length,
                                            .packing = "bfd",
                                            .has_weights = set.weights,
                                            .sources = {"made"},
                                            .train = train,
                                            .val = val})
              .ok());
}

}  // namespace train::test
