// Small tokenizers of every kind against the ids that the reference gives.
#include <catch2/catch.hpp>
#include <string>

#include "storage/tokenizer/utf8.hpp"
#include "tests/storage/tokenizer/tokenizer_fixture.hpp"

using namespace train;
using namespace train::storage;

namespace {

/// Nearly all assigned characters, as the script that made the fixtures sends them.
std::vector<char32_t> sweep_points() {
  std::vector<char32_t> points;
  for (const auto& [first, last] :
       {std::pair<char32_t, char32_t>{0, 0xd800}, {0xe000, 0x32000}, {0xe0000, 0xe0200}}) {
    for (char32_t point = first; point < last; ++point) {
      points.push_back(point);
    }
  }
  return points;
}

std::vector<std::string> sweep_blocks() {
  constexpr std::size_t block_points = 4096;
  const std::vector<char32_t> points = sweep_points();
  std::vector<std::string> blocks;
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (i % block_points == 0) {
      blocks.emplace_back();
    }
    std::string& block = blocks.back();
    block += "a";
    append_utf8(block, points[i]);
    block += "B ";
    append_utf8(block, points[i]);
    block += "\u0301'";
    append_utf8(block, points[i]);
  }
  return blocks;
}

std::uint64_t checksum_of(TextEncoder& encoder, const std::vector<std::string>& blocks) {
  std::uint64_t checksum = 0;
  std::vector<std::uint32_t> ids;
  for (const std::string& block : blocks) {
    ids.clear();
    REQUIRE(encoder.encode(block, false, ids).ok());
    for (const std::uint32_t id : ids) {
      checksum = checksum * 1000003U + id;
    }
  }
  return checksum;
}

}  // namespace

TEST_CASE("tokenizer: ids and decoded texts are the reference's", "[storage][tokenizer][TK-1]") {
  for (const auto& fixture : test::tokenizer_fixtures()) {
    const Tokenizer tokenizer = test::tokenizer_of(fixture.at("file"));
    TextEncoder encoder(tokenizer);
    bool special = true;
    for (const auto& one : fixture.at("cases")) {
      const auto text = one[0].get<std::string>();
      const auto expected = one[1].get<test::Ids>();
      INFO(fixture.at("name") << ": " << one.dump());
      CHECK(test::encoded(tokenizer, text, special) == expected);
      test::Ids ids;
      REQUIRE(encoder.encode(text, special, ids).ok());
      CHECK(ids == expected);
      CHECK(tokenizer.decode(expected, false) == one[2].get<std::string>());
      CHECK(tokenizer.decode(expected, true) == one[3].get<std::string>());
      special = !special;
    }
  }
}

TEST_CASE("tokenizer: every assigned character is split and normalised as by the reference",
          "[storage][tokenizer][TK-1]") {
  const std::vector<std::string> blocks = sweep_blocks();
  for (const auto& fixture : test::tokenizer_fixtures()) {
    INFO(fixture.at("name"));
    const Tokenizer tokenizer = test::tokenizer_of(fixture.at("file"));
    TextEncoder encoder(tokenizer);
    CHECK(checksum_of(encoder, blocks) == fixture.at("sweep").get<std::uint64_t>());
  }
}
