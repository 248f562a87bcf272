#include "cli/recipes/recipe.hpp"

#include <catch2/catch.hpp>

#include "configs/load_config.hpp"
#include "tests/support/disks/temp_directory.hpp"

namespace train::cli::recipe_test {
namespace {

namespace fs = std::filesystem;

const std::string kOne = "00112233445566aa";
const std::string kTwo = "ffeeddccbbaa9988";

std::string mistake_in(const std::string& text) {
  const auto digests = parse_digests(text, "digests.txt");
  REQUIRE_FALSE(digests.ok());
  CHECK(digests.error().kind == ErrorKind::user);
  return digests.error().message;
}

TEST_CASE("recipe: digests are read as they are written", "[cli][recipe]") {
  for (const std::string& inputs : {kTwo, std::string()}) {
    const RecordedDigests digests = {.inputs = inputs, .steps = {{5, kOne}, {40, kTwo}}};
    const auto read = parse_digests(digests_text(digests), "digests.txt");
    REQUIRE(read.ok());
    CHECK(*read == digests);
  }
}

TEST_CASE("recipe: what decides the weights is in the digest of its inputs, and nothing else",
          "[cli][recipe]") {
  const auto digest_with = [](const char* file, const std::string& text) {
    const test::TempDirectory home;
    test::write_bytes(home / kRecipeRunFile, "lanes = 2  # few\n");
    test::write_bytes(home / kRecipeScript, "x = 1\n");
    test::write_bytes(home / file, text);
    const auto digest = inputs_digest({.name = "mine", .directory = home.path(), .title = ""});
    REQUIRE(digest.ok());
    return *digest;
  };
  const auto same = [&](const char* file, const std::string& text) {
    return digest_with(file, text) == digest_with(kRecipeScript, "x = 1\n");
  };
  CHECK(same(kRecipeRunFile, "# Two lanes.\n\nlanes = 2\n"));
  CHECK(same(kRecipeReadme, "# Mine\n"));
  CHECK(same("curve.svg", "<svg/>"));
  CHECK_FALSE(same(kRecipeRunFile, "lanes = 3  # few\n"));
  CHECK_FALSE(same(kRecipeScript, "    x = 1\n"));
  CHECK_FALSE(same("config.json", "{}"));
}

TEST_CASE("recipe: a line that is no digest is named", "[cli][recipe]") {
  const std::vector<std::string> lines = {
      "step 5",     "5",          "5 " + kOne.substr(1), "5 " + kOne + " ",
      "-5 " + kOne, "5  " + kOne, "5 00112233445566AA",  "99999999999999999999 " + kOne};
  for (const std::string& line : lines) {
    INFO(line);
    CHECK(mistake_in("1 " + kOne + "\n" + line + "\n").starts_with("digests.txt:2: "));
  }
  CHECK(mistake_in("5 " + kOne + "\n5 " + kTwo + "\n").starts_with("digests.txt:2: "));
  CHECK(mistake_in("5 " + kOne + "\ninputs " + kTwo + "\n").starts_with("digests.txt:2: "));
  CHECK(mistake_in("inputs " + kOne + "\n").find("no digests") != std::string::npos);
  CHECK(mistake_in("# nothing\n").find("no digests") != std::string::npos);
}

TEST_CASE("recipe: of metrics the later digest of a step counts", "[cli][recipe]") {
  const StepDigests found =
      digests_of_metrics("{\"step\":5,\"loss\":1.0,\"weights_digest\":\"" + kOne +
                         "\"}\n"
                         "{\"step\":6,\"loss\":1.0}\n"
                         "{\"step\":5,\"loss\":1.0,\"weights_digest\":\"" +
                         kTwo +
                         "\"}\n"
                         "{\"step\":7,\"weights_digest\":\"" +
                         kOne);
  CHECK(found == StepDigests{{5, kTwo}});
}

TEST_CASE("recipe: a step that differs or is missing is found", "[cli][recipe]") {
  const StepDigests recorded = {{5, kOne}, {10, kTwo}, {15, kOne}};
  const RecipeComparison same = compare_digests(recorded, recorded, 100);
  CHECK(same.equal());
  CHECK(same.lines.size() == 3);

  const RecipeComparison differs = compare_digests(recorded, {{5, kOne}, {10, kOne}}, 10);
  CHECK_FALSE(differs.equal());
  CHECK(differs.first_difference == 10);
  CHECK(differs.lines.at(1) == "step 10: " + kTwo + " recorded, " + kOne + " here");

  CHECK(compare_digests(recorded, {{5, kOne}}, 5).equal());
  CHECK(compare_digests(recorded, {{5, kOne}}, 10).first_difference == 10);
  CHECK_FALSE(compare_digests(recorded, recorded, 4).equal());  // Nothing was compared.
}

TEST_CASE("recipe: a mistake in a name or a folder is named", "[cli][recipe]") {
  const test::TempDirectory home;
  fs::create_directories(home / "lora");
  for (const char* const file : {kRecipeRunFile, kRecipeScript}) {
    test::write_bytes(home / "lora" / file, "");
  }
  const auto half = find_recipe(home.path(), "lora");
  REQUIRE_FALSE(half.ok());
  CHECK(half.error().message.find("it has no README.md") != std::string::npos);
  test::write_bytes(home / "lora" / kRecipeReadme, "# Low-rank adapters\n\nText\n");
  const auto whole = find_recipe(home.path(), "lora");
  REQUIRE(whole.ok());
  CHECK(whole->name == "lora");
  CHECK(whole->title == "Low-rank adapters");
  CHECK(find_recipe({}, (home / "lora/").string())->title == whole->title);
  const auto other = find_recipe(home.path(), "lorra");
  REQUIRE_FALSE(other.ok());
  CHECK(other.error().exit_code() == 2);
  CHECK(other.error().message.find("did you mean \"lora\"?") != std::string::npos);
}

TEST_CASE("recipe: every shipped one has digests of its inputs to the end of its run, and a curve",
          "[cli][recipe]") {
  const auto recipes = list_recipes(ACTORTRAIN_SOURCE_DIR "/recipes");
  REQUIRE(recipes.ok());
  CHECK_FALSE(recipes->empty());
  for (const Recipe& recipe : *recipes) {
    INFO(recipe.name);
    const auto config = configs::load_config((recipe.directory / kRecipeRunFile).string());
    REQUIRE(config.ok());
    CHECK(config->run.name == recipe.name);
    const auto digests =
        parse_digests(test::read_bytes(recipe.directory / kRecipeDigests), kRecipeDigests);
    REQUIRE(digests.ok());
    CHECK(digests->inputs == *inputs_digest(recipe));  // Else it is to be recorded anew.
    CHECK(digests->steps.begin()->first == config->run.digest_interval_steps);
    CHECK(digests->steps.rbegin()->first == config->run.steps);
    CHECK(fs::exists(recipe.directory / "curve.svg"));
  }
}

}  // namespace
}  // namespace train::cli::recipe_test
