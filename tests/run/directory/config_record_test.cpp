// A run's record of its configuration in the index, written and read back.

#include "run/directory/config_record.hpp"

#include <catch2/catch.hpp>
#include <string>

#include "checkpoint/index/index.hpp"
#include "tests/support/disks/memory_store.hpp"
#include "tests/support/disks/temp_directory.hpp"

namespace train::run {

TEST_CASE("config record: texts of many lines come back, and whether their start began",
          "[run][config_record]") {
  const test::TempDirectory directory;
  test::MemoryStore store;
  auto index = checkpoint::CheckpointIndex::open(store, directory.path());
  REQUIRE(index.ok());
  const std::string first = "[run]\nname = \"a\"\n";
  const std::string second = "[run]\nname = \"b c\"\n[data]\n";
  const auto log = [&](const std::string& kind, const std::string& text) {
    REQUIRE(index->log_event(kind, text).ok());
  };
  log("started", "before any record");
  log(kConfigRecorded, config_record_text({.step = 0, .text = first}));
  log("started", "x");
  log(kConfigRecorded, "no step");
  log(kConfigRecorded, "step=many [run]");
  log(kConfigRecorded, config_record_text({.step = 7, .text = second}));
  log("failed", "x");
  auto records = read_config_records(store);
  REQUIRE(records.ok());
  REQUIRE(records->size() == 2);
  CHECK(records->at(0).step == 0);
  CHECK(records->at(0).text == first);
  CHECK(records->at(0).begun);
  CHECK(records->at(1).step == 7);
  CHECK(records->at(1).text == second);
  CHECK_FALSE(records->at(1).begun);
  log("resumed", "step=7");
  records = read_config_records(store);
  REQUIRE(records.ok());
  CHECK(records->at(1).begun);
}

}  // namespace train::run
