#include "configs/words/nearest.hpp"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace train::configs::nearest_test {
namespace {

TEST_CASE("nearest: the distance counts single edits and swaps", "[configs][nearest]") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("abc", "abc") == 0);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("stpes", "steps") == 1);
  CHECK(edit_distance("ab", "ba") == edit_distance("ba", "ab"));
}

TEST_CASE("nearest: names what was meant and stays silent otherwise", "[configs][nearest]") {
  const std::vector<std::string> names = {"run.seed", "run.steps", "model.heads"};
  CHECK(nearest_name("run.sede", names) == "run.seed");
  CHECK(nearest_name("run.stpes", names) == "run.steps");
  CHECK(nearest_name("colour", names).empty());
  CHECK(nearest_name(std::string(5000, 'a'), names).empty());
  CHECK(nearest_name("x", std::vector<std::string>{"a"}).empty());
  CHECK(did_you_mean("run.sed", names) == "; did you mean \"run.seed\"?");
  CHECK(did_you_mean("colour", names).empty());
}

}  // namespace
}  // namespace train::configs::nearest_test
