#include "data/rows/packing.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <random>

using namespace train;
using namespace train::data;

namespace {

std::vector<PackedRow> packed(Packing packing, const std::vector<std::uint32_t>& lengths,
                              std::uint32_t row_length) {
  std::vector<std::uint64_t> groups(lengths.size());
  std::iota(groups.begin(), groups.end(), 0U);
  return pack_window(packing, groups, lengths, row_length);
}

/// Rows as lists of group:start+length.
std::string shown_rows(const std::vector<PackedRow>& rows) {
  std::string text;
  for (const PackedRow& row : rows) {
    for (const PackItem& item : row) {
      text += std::to_string(item.group) + ":" + std::to_string(item.start) + "+" +
              std::to_string(item.length) + " ";
    }
    text += "| ";
  }
  return text;
}

/// Log-normal with a median of 300 tokens, at most those of a row.
std::vector<std::uint32_t> usual_lengths(std::size_t count, std::uint32_t row_length) {
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal;
  std::vector<std::uint32_t> lengths;
  for (std::size_t i = 0; i < count; ++i) {
    const double length = std::clamp(300.0 * std::exp(normal(random)), 1.0, 1.0 * row_length);
    lengths.push_back(static_cast<std::uint32_t>(length));
  }
  return lengths;
}

}  // namespace

TEST_CASE("packing: each rule gives the rows that it says", "[data][rows]") {
  const std::vector<std::uint32_t> lengths = {3, 8, 5, 2, 7, 1};
  REQUIRE(shown_rows(packed(Packing::bfd, lengths, 10)) ==
          "1:0+8 3:0+2 | 4:0+7 0:0+3 | 2:0+5 5:0+1 | ");
  REQUIRE(shown_rows(packed(Packing::greedy, lengths, 10)) ==
          "0:0+3 | 1:0+8 | 2:0+5 3:0+2 | 4:0+7 5:0+1 | ");
  REQUIRE(shown_rows(packed(Packing::wrapped, lengths, 10)) ==
          "0:0+3 1:0+7 | 1:7+1 2:0+5 3:0+2 4:0+2 | 4:2+5 5:0+1 | ");
  REQUIRE(shown_rows(packed(Packing::none, {3, 8}, 10)) == "0:0+3 | 1:0+8 | ");
  REQUIRE(shown_rows(packed(Packing::bfd_split, {23, 6}, 10)) ==
          "0:0+10 | 0:10+10 | 1:0+6 0:20+3 | ");
}

TEST_CASE("packing: equal lengths keep their order", "[data][rows]") {
  REQUIRE(shown_rows(packed(Packing::bfd, {4, 4, 4, 4}, 8)) == "0:0+4 1:0+4 | 2:0+4 3:0+4 | ");
}

TEST_CASE("packing: a document longer than its row is a programmer's error", "[data][rows]") {
  REQUIRE_THROWS(packed(Packing::bfd, {11}, 10));
}

TEST_CASE("packing: every document is packed once, whole, and rows are at least 98 % full",
          "[data][rows]") {
  constexpr std::uint32_t kRow = 2048;
  const auto lengths = usual_lengths(kPackWindowGroups, kRow);
  const auto rows = packed(Packing::bfd, lengths, kRow);
  std::vector<int> seen(lengths.size());
  std::uint64_t tokens = 0;
  for (const PackedRow& row : rows) {
    std::uint32_t filled = 0;
    for (const PackItem& item : row) {
      ++seen[item.group];
      REQUIRE((item.start == 0 && item.length == lengths[item.group]));
      filled += item.length;
    }
    REQUIRE(filled <= kRow);
    tokens += filled;
  }
  REQUIRE(std::all_of(seen.begin(), seen.end(), [](int count) { return count == 1; }));
  const double fill = static_cast<double>(tokens) / (static_cast<double>(rows.size()) * kRow);
  INFO("fill " << fill);
  REQUIRE(fill >= 0.98);
}

TEST_CASE("packing: names are read back, and others are refused", "[data][rows]") {
  for (const char* const name : {"bfd", "bfd_split", "wrapped", "greedy", "none"}) {
    REQUIRE(packing_name(*packing_of(name)) == name);
  }
  REQUIRE(packing_of("best").error().message.find("bfd_split") != std::string::npos);
}
