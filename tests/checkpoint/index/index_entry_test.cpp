#include "checkpoint/index/index_entry.hpp"

#include <bit>
#include <catch2/catch.hpp>
#include <limits>

using namespace train::checkpoint;

TEST_CASE("index_entry: its text reads back", "[checkpoint][index_entry]") {
  for (const double loss : {0.1, -0.0, std::numeric_limits<double>::quiet_NaN(), 1e300}) {
    for (const bool rebuilt : {false, true}) {
      const IndexEntry entry{.step = 123456789012,
                             .directory = "step-123456789012",
                             .state = CheckpointState::retired,
                             .manifest_digest = "xxh3-128:00",
                             .recorded_s = 1'800'000'000,
                             .size_bytes = std::numeric_limits<std::uint64_t>::max(),
                             .tokens = 5,
                             .ranks = 3,
                             .validation_loss = loss,
                             .rebuilt = rebuilt};
      const std::string text = entry_text(entry);
      REQUIRE(text.find('\n') == std::string::npos);
      const auto back = parse_entry(text);
      REQUIRE(back);
      REQUIRE(entry_text(*back) == text);
      REQUIRE(back->state == CheckpointState::retired);
      REQUIRE(back->size_bytes == entry.size_bytes);
      REQUIRE(std::bit_cast<std::uint64_t>(*back->validation_loss) ==
              std::bit_cast<std::uint64_t>(loss));
      REQUIRE(back->rebuilt == rebuilt);
    }
  }
}

TEST_CASE("index_entry: what is no entry is refused", "[checkpoint][index_entry]") {
  const std::string good = entry_text({.step = 7, .directory = "d", .manifest_digest = "m"});
  REQUIRE(parse_entry(good));
  REQUIRE_FALSE(parse_entry(good)->validation_loss);
  for (std::size_t size = 0; size < good.size(); ++size) {
    INFO(size);
    REQUIRE_FALSE(parse_entry(good.substr(0, size)));
  }
  REQUIRE_FALSE(parse_entry(good + "\tmore"));
  REQUIRE_FALSE(parse_entry("x" + good));
  for (const char* text : {"{}", "{", "[1]", "{\"step\":1}", "\t\t\t\t\t\t\t\t\t"}) {
    REQUIRE_FALSE(parse_entry(text));
  }
  REQUIRE_FALSE(state_of("published"));
  for (const char* name : {"writing", "local", "publishing", "committed", "retired"}) {
    REQUIRE(state_name(*state_of(name)) == name);
  }
}
