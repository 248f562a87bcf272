#include "configs/source_weights.hpp"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "configs/error_place.hpp"
#include "configs/fields/field_table.hpp"
#include "configs/fields/source_table.hpp"
#include "configs/key_changes.hpp"
#include "configs/load_config.hpp"

namespace train::configs::source_weights_test {
namespace {

using Whole = std::vector<std::uint64_t>;

const std::string kRun = "[run]\nname = \"a\"\n[model]\narch = \"enoki\"\n";
const std::string kMixed = kRun +
                           "[[data.sources]]\ndir = \"web\"\nweight = 5\n"
                           "[[data.sources]]\ndir = \"code/\"\nweight = 3\nmax_epochs = 2.5\n"
                           "[[data.sources]]\ndir = \"web\"\nfrom_step = 10\n";

RunConfig accepted(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const auto config = parse_config(text, "x.toml", overrides);
  INFO((config ? "" : config.error().message));
  REQUIRE(config.ok());
  return *config;
}

std::string refusal(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const auto config = parse_config(text, "x.toml", overrides);
  return config ? "" : config.error().message;
}

/// The refusal is one line at `place` that has `part`.
void check_refusal(const std::string& text, const std::string& place, const std::string& part,
                   const std::vector<std::string>& overrides = {}) {
  const std::string found = refusal(text, overrides);
  INFO(found);
  CHECK(found.starts_with(place));
  CHECK(found.find(part) != std::string::npos);
  CHECK(found.find('\n') == std::string::npos);
}

}  // namespace

TEST_CASE("source weights: the smallest integers of the same ratios", "[configs][sources]") {
  const auto whole = [](const std::vector<double>& weights) { return whole_weights(weights); };
  CHECK(whole({5, 3, 1}) == Whole{5, 3, 1});
  CHECK(whole({0.5, 0.3, 0.2}) == Whole{5, 3, 2});
  CHECK(whole({10, 5}) == Whole{2, 1});
  CHECK(whole({0.7, 0.29, 0.01}) == Whole{70, 29, 1});
  CHECK(whole({0.000001}) == Whole{1});
  CHECK(whole({1e12, 5e11}) == Whole{2, 1});
  CHECK_FALSE(whole({1.0 / 3.0, 1.0}).has_value());
  CHECK_FALSE(whole({1e12, 1.0}).has_value());
}

TEST_CASE("source weights: stages, and each directory once", "[configs][sources]") {
  const SourcePlan plan = plan_sources(accepted(kMixed).data.sources);
  CHECK(plan.directories == std::vector<std::string>{"web", "code/"});
  CHECK(plan.names == std::vector<std::string>{"web", "code"});
  CHECK(plan.max_epochs == std::vector<double>{0.0, 2.5});
  REQUIRE(plan.stages.size() == 2);
  CHECK(plan.stages[0].sources == std::vector<std::size_t>{0, 1});
  CHECK(plan.stages[0].weights == Whole{5, 3});
  CHECK(plan.stages[1].from_step == 10);
  CHECK(plan.stages[1].sources == std::vector<std::size_t>{0});
  const std::vector<DataSource> same = {{.dir = "a/x"}, {.dir = "b/x"}, {.dir = "y"}};
  CHECK(plan_sources(same).names == std::vector<std::string>{"a/x", "b/x", "y"});
}

TEST_CASE("data.sources: read from tables, overridden, and written back bit for bit",
          "[configs][sources][CF-2]") {
  const RunConfig config = accepted(kMixed);
  REQUIRE(config.data.sources.size() == 3);
  CHECK(config.data.dir == "web");
  CHECK(config.data.sources[1] == DataSource{.dir = "code/", .weight = 3, .max_epochs = 2.5});
  CHECK(accepted(to_toml(config)).data.sources == config.data.sources);
  CHECK(accepted(kMixed, {"data.sources[1].weight=0.25"}).data.sources[1].weight == 0.25);
  CHECK(accepted(kMixed, {"data.sources[1].dir=other"}).data.sources[1].dir == "other");
  CHECK(accepted(kMixed, {"data.sources=[{dir=\"z\", weight=2}]"}).data.sources ==
        std::vector<DataSource>{{.dir = "z", .weight = 2}});
  CHECK(accepted(kMixed, {"data.sources=[]", "data.dir=d"}).data.sources.empty());
  CHECK(describe_keys("data.sources").find("data.sources[].weight") != std::string::npos);
}

TEST_CASE("data.sources: mistakes are told at their line", "[configs][sources]") {
  const auto with = [](const std::string& member) {
    return kRun + "[[data.sources]]\ndir = \"a\"\n" + member + "\n";
  };
  check_refusal(with("weight = 0"), "x.toml:7: data.sources[0].weight must be 0 < x", "found 0");
  check_refusal(with("weight = -1"), "x.toml:7: data.sources[0].weight must be 0 < x", "found -1");
  check_refusal(with("weight = \"a\""), "x.toml:7: data.sources[0].weight must be a number",
                "text");
  check_refusal(with("weight = nan"), "x.toml:7: data.sources[0].weight", "nan");
  check_refusal(with("from_step = 1.5"), "x.toml:7: data.sources[0].from_step", "an integer");
  check_refusal(with("from_step = 5"), "x.toml:7: data.sources[0].from_step is 5", "from_step = 0");
  check_refusal(with("max_epochs = -1"), "x.toml:7: data.sources[0].max_epochs", "found -1");
  check_refusal(with("wieght = 1"), "x.toml:7: unknown key \"data.sources[0].wieght\"", "weight");
  check_refusal(with("dir2 = 1"), "x.toml:7: unknown key", "");
  check_refusal(kRun + "[[data.sources]]\nweight = 1\n",
                "x.toml:5: data.sources[0].dir is missing or", "add dir = ");
  check_refusal(kRun + "[data]\nsources = \"a\"\n",
                "x.toml:6: data.sources must be a list of tables", "[[data.sources]]");
  check_refusal(kRun + "[data]\nsources = [1]\n", "x.toml:6: data.sources must be", "other values");
  check_refusal(kMixed, "--set data.order=dstar: data.order is \"dstar\"", "one directory",
                {"data.order=dstar"});
  check_refusal(kMixed, "--set data.dir=b: data.dir is \"b\"", "leave data.dir out",
                {"data.dir=b"});
  check_refusal(kMixed, "--set data.sources[1].dir=web: data.sources[1].dir is \"web\"",
                "add up their weights", {"data.sources[1].dir=web"});
  check_refusal(kMixed, "--set data.sources[7].dir=web", "numbered from 0 to 2",
                {"data.sources[7].dir=web"});
  check_refusal(kMixed, "--set data.sources[0].weight=0.1234567", "round them",
                {"data.sources[0].weight=0.1234567"});
  check_refusal(kMixed, "x.toml:5: data.sources is a mixture", "data.forget_dir",
                {"objective.name=sequential_unlearning"});
  CHECK(refusal(kRun + "[data]\nsources = []\n").find("data.dir is missing") != std::string::npos);
}

TEST_CASE("data.sources: an error of a directory is told where the file names it",
          "[configs][sources]") {
  KeyPositions places;
  const auto config = parse_config(kMixed, "x.toml", {}, &places);
  REQUIRE(config.ok());
  CHECK(with_place(user_error("code/: no such directory"), *config, places)
            .message.starts_with("x.toml:9: data.sources[1].dir: code/: no such"));
  CHECK(with_place(user_error("data.sources[1].max_epochs: too few"), *config, places)
            .message.starts_with("x.toml:11: data.sources[1].max_epochs: too"));
}

TEST_CASE("data.sources: what may change when a run goes on", "[configs][sources][CF-4]") {
  const RunConfig before = accepted(kMixed);
  const auto rule_of = [&](const std::vector<std::string>& overrides) {
    const auto changes = key_changes(before, accepted(kMixed, overrides));
    REQUIRE(changes.size() >= 1);
    return changes.back().rule();
  };
  CHECK(rule_of({"data.sources[1].dir=moved"}) == BetweenStarts::may_move);
  CHECK(rule_of({"data.sources[1].max_epochs=9"}) == BetweenStarts::may_change);
  CHECK(rule_of({"data.sources[1].weight=4"}) == BetweenStarts::on_request);
  CHECK(rule_of({"data.sources[2].from_step=11"}) == BetweenStarts::on_request);
  CHECK(rule_of({"data.sources=[{dir=\"web\"}]"}) == BetweenStarts::on_request);
  CHECK(check_accepted(std::vector<std::string>{"data.sources"}).ok());

  // What is asked for is granted for steps that are not done.
  const auto read_alike = [&](const std::vector<std::string>& overrides, std::int64_t steps) {
    return check_sources_read(before.data.sources, accepted(kMixed, overrides).data.sources, steps)
        .ok();
  };
  CHECK_FALSE(read_alike({"data.sources[1].weight=4"}, 1));
  CHECK(read_alike({"data.sources[1].weight=4"}, 0));
  CHECK(read_alike({"data.sources[1].dir=moved"}, 5));
  CHECK(read_alike({"data.sources[2].weight=4", "data.sources[2].dir=new"}, 10));
  CHECK_FALSE(read_alike({"data.sources[2].dir=new"}, 11));
}

}  // namespace train::configs::source_weights_test
