#include "configs/error_place.hpp"

#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "configs/load_config.hpp"

namespace train::configs::error_place_test {
namespace {

/// What becomes of an error about a run whose file sets some keys and whose command another.
std::string placed(const std::string& message, ErrorKind kind = ErrorKind::user) {
  KeyPositions places;
  const auto config = parse_config(
      "[run]\nname = \"x\"\nsteps = 9\n[model]\nfrom = \"models/tiny\"\n[data]\ndir = \"rows\"\n",
      "a.toml", std::vector<std::string>{"eval.choices=one.jsonl"}, &places);
  REQUIRE(config.ok());
  return with_place({kind, message}, *config, places).message;
}

}  // namespace

TEST_CASE("error_place: an error that names a key begins with where the key was set", "[configs]") {
  CHECK(placed("run.steps is 9: too few") == "a.toml:3: run.steps is 9: too few");
  CHECK(placed("config.toml: run.name was \"y\"") == "a.toml:2: config.toml: run.name was \"y\"");
  CHECK(placed("eval.choices: none") == "--set eval.choices=one.jsonl: eval.choices: none");
  // The first of several.
  CHECK(placed("run.name or run.steps").starts_with("a.toml:2: "));
  CHECK(placed("run.steps or run.name").starts_with("a.toml:3: "));
}

TEST_CASE("error_place: an error that begins with a path names the key that has it", "[configs]") {
  CHECK(placed("models/tiny: no such directory") ==
        "a.toml:5: model.from: models/tiny: no such directory");
  CHECK(placed("cannot read rows/train.bin: denied") ==
        "a.toml:7: data.dir: cannot read rows/train.bin: denied");
  const std::string absolute = (std::filesystem::current_path() / "rows").string();
  CHECK(
      placed("cannot write " + absolute + "/x: denied").starts_with("a.toml:7: data.dir: cannot"));
  CHECK(placed("one.jsonl:4: no question").starts_with("--set eval.choices=one.jsonl: "));
}

TEST_CASE("error_place: other errors stay as they are", "[configs]") {
  for (const char* message :
       {"run.steps_per_job is odd", "a.toml:3: run.steps is odd", "--set run.steps=3: run.steps",
        "the rows are few", "rows-of-others: missing", "batch.lanes is 4", "my.run.steps"}) {
    CHECK(placed(message) == message);
  }
  CHECK(placed("run.steps: disk full", ErrorKind::failure) == "run.steps: disk full");
}

}  // namespace train::configs::error_place_test
