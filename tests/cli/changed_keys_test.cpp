// What `verify` and `replay` say of keys that changed between the starts of a run.

#include "cli/audit/changed_keys.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "checkpoint/index/index.hpp"
#include "tests/support/disks/memory_store.hpp"
#include "tests/support/disks/temp_directory.hpp"

namespace train::cli {
namespace {

using Words = std::vector<std::string>;

std::string change(int step) { return fmt::format("step={} key=run.steps old=1 new=2", step); }

}  // namespace

TEST_CASE("changed keys: those of the index, in the steps that were asked for",
          "[cli][changed_keys]") {
  const test::TempDirectory directory;
  test::MemoryStore store;
  auto index = checkpoint::CheckpointIndex::open(store, directory.path());
  REQUIRE(index.ok());
  for (const int step : {0, 10, 20}) {
    REQUIRE(index->log_event("resumed", fmt::format("step={} ranks=1", step)));
    REQUIRE(index->log_event("config_changed", change(step)));
  }
  REQUIRE(index->log_event("config_changed", "nobody can read it"));
  CHECK(*changed_keys(store) == Words{change(0), change(10), change(20)});
  CHECK(*changed_keys(store, {.first = 10, .end = 20}) == Words{change(10)});
}

TEST_CASE("changed keys: one line, of the newest ones", "[cli][changed_keys]") {
  CHECK(changed_keys_text({}).empty());
  CHECK(changed_keys_text({change(1), change(2)}) ==
        "changed between starts: " + change(1) + "; " + change(2));
  Words many;
  for (int step = 0; step < 15; ++step) {
    many.push_back(change(step));
  }
  const std::string text = changed_keys_text(many);
  CHECK_THAT(text, Catch::StartsWith("changed between starts: 3 older ones (events.jsonl); " +
                                     change(3) + "; "));
  CHECK_THAT(text, Catch::EndsWith(change(14)));
}

}  // namespace train::cli
