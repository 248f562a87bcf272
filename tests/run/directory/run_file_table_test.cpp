#include "run/directory/run_file_table.hpp"

#include <catch2/catch.hpp>
#include <string>

namespace train::run::run_file_table_test {
namespace {

std::string pattern_of(const char* path) {
  const RunFileRow* const row = row_of(path);
  return row == nullptr ? "" : std::string(row->pattern);
}

}  // namespace

TEST_CASE("run_file_table: a path has the row whose pattern it begins with",
          "[run][run_file_table]") {
  CHECK(pattern_of("config.toml") == "config.toml");
  CHECK(pattern_of("checkpoints/step-00000010/manifest.json") == "checkpoints/step-*");
  CHECK(pattern_of("checkpoints/.incoming-1-2-step-00000010/x") == "checkpoints/.incoming-*");
  CHECK(pattern_of("checkpoints/.retired-1-step-00000010/x") == "checkpoints/.retired-*");
  CHECK(pattern_of("index/000004.log") == "index/*");
  CHECK(pattern_of("index.aside-1/CURRENT") == "index.aside-*");
  CHECK(pattern_of("reference.log_probs") == "reference.log_probs*");
}

TEST_CASE("run_file_table: a temporary name has the row of the name that it gets",
          "[run][run_file_table]") {
  CHECK(pattern_of(".status.json.tmp") == "status.json");
  CHECK(pattern_of(".config.toml.tmp-123-4") == "config.toml");
  CHECK(pattern_of("control/.exit.tmp-123-4") == "control/*");
}

TEST_CASE("run_file_table: what the table does not have has no row", "[run][run_file_table]") {
  for (const char* path : {"", "config", "config.toml2", "checkpoints", "checkpoints/other",
                           "index", "notes/metrics.jsonl", ".config.toml", "step-00000010"}) {
    INFO(path);
    CHECK(pattern_of(path).empty());
  }
}

}  // namespace train::run::run_file_table_test
