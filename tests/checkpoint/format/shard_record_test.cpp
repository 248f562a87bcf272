#include "checkpoint/format/manifest.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>

#include "storage/files/digest.hpp"

namespace train::checkpoint {
namespace {

std::string shard_of(const std::string& file) {
  return shard_text({.file = {.name = file, .size_bytes = 8, .digest = storage::digest_text(file)},
                     .tensors = {}});
}

/// The record of its file alone.
std::string file_in(const std::string& shard) {
  const std::size_t begin = shard.find('[') + 1;
  return shard.substr(begin, shard.find(']') - begin);
}

TEST_CASE("shard record: a shard is one file", "[checkpoint][shard_record][CK-1]") {
  const auto one = parse_shard(shard_of("a"));
  REQUIRE(one);
  CHECK(one->file.name == "a");
  const std::string pattern = R"({{"files": [{}], "tensors": []}})";
  const auto none = parse_shard(fmt::format(fmt::runtime(pattern), ""));
  REQUIRE_FALSE(none);
  CHECK_THAT(none.error().message, Catch::Contains("0 files, not one"));
  const auto two = parse_shard(
      fmt::format(fmt::runtime(pattern), file_in(shard_of("a")) + ", " + file_in(shard_of("b"))));
  REQUIRE_FALSE(two);
  CHECK_THAT(two.error().message, Catch::Contains("2 files, not one"));
}

}  // namespace
}  // namespace train::checkpoint
