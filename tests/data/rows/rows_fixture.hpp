#pragma once

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "data/rows/row_split.hpp"
#include "data/rows/row_writer.hpp"

namespace train::test {

/// A text of these tokens, of which those from `trained_from` on are trained.
inline data::RowText row_text(const std::vector<std::uint32_t>& tokens, std::size_t trained_from) {
  data::RowText text{.tokens = tokens};
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    text.trained.push_back(i > 0 && i >= trained_from);
  }
  return text;
}

/// Writes what `fill` adds to train, and one document to val.
template <class Fill>
data::RowFacts write_rows(const std::filesystem::path& directory, const data::RowLayout& layout,
                          const Fill& fill) {
  data::RowFacts facts{.vocab_size = 100,
                       .token_bytes = layout.token_bytes,
                       .row_length = layout.row_length,
                       .packing = std::string(data::packing_name(layout.packing)),
                       .sources = {"first", "second"}};
  auto train = data::RowSplitWriter::create(directory, "train", layout);
  auto val = data::RowSplitWriter::create(directory, "val", layout);
  REQUIRE((train.ok() && val.ok()));
  fill(*train);
  facts.has_weights = train->has_weights();
  if (facts.has_weights) {
    REQUIRE(val->keep_weights());
  }
  REQUIRE(train->finish());
  REQUIRE(val->add(row_text({1, 2}, 1), 0));
  REQUIRE(val->finish());
  facts.train = train->counts();
  facts.val = val->counts();
  REQUIRE(data::write_row_facts(directory, facts));
  return facts;
}

/// A row's columns.
struct ReadRow {
  std::vector<std::int32_t> tokens, targets, positions;
  std::vector<float> weights;
};
inline ReadRow read_row(const data::RowSplit& split, std::uint64_t row) {
  const auto length = static_cast<std::size_t>(split.row_length());
  ReadRow read{std::vector<std::int32_t>(length, 77), std::vector<std::int32_t>(length, 77),
               std::vector<std::int32_t>(length, 77), std::vector<float>(length, 77.0F)};
  const Status status = split.read(row, {read.tokens, read.targets, read.positions, read.weights});
  REQUIRE(status.ok());
  return read;
}

}  // namespace train::test
