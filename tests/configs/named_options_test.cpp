#include "configs/fields/named_options.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "configs/load_config.hpp"

namespace train::configs::named_options_test {
namespace {

Result<RunConfig> with(const std::string& objective) {
  return parse_config(fmt::format("[run]\nname = \"x\"\n[model]\narch = \"enoki\"\n[data]\n"
                                  "dir = \"d\"\n[objective]\n{}\n",
                                  objective),
                      "run.toml");
}

std::string refusal(const std::string& objective) {
  const auto config = with(objective);
  REQUIRE_FALSE(config.ok());
  CHECK(config.error().kind == ErrorKind::user);
  return config.error().message;
}

}  // namespace

TEST_CASE("named_options: the names of objective.name are those of the list", "[configs][CF-1]") {
  const auto choices = split_choices(*find_field("objective.name"));
  REQUIRE(choices.size() == objective_options().entries.size());
  for (std::size_t i = 0; i < choices.size(); ++i) {
    CHECK(choices[i] == objective_options().entries[i].name);
  }
}

TEST_CASE("named_options: every key of [objective] belongs to somebody, with its default",
          "[configs][CF-1]") {
  std::set<std::string> owned = {"objective.name"};
  for (const NamedOptions& entry : objective_options().entries) {
    REQUIRE(with(fmt::format("name = \"{}\"", entry.name)).ok());
    for (const OptionKey& key : entry.keys) {
      owned.insert(fmt::format("objective.{}", key.name));
    }
  }
  for (const Field& field : all_fields()) {
    CHECK((field.section != "objective" || owned.contains(field.key())));
  }
}

TEST_CASE("named_options: an objective takes its own options, and no other's", "[configs]") {
  CHECK(with("")->objective.name == "pretrain");
  const auto sft = with("name = \"sft\"\nlabel_smoothing = 0.1");
  REQUIRE(sft.ok());
  CHECK(sft->objective.label_smoothing == 0.1);
  CHECK(refusal("label_smoothing = 0.1") ==
        "run.toml:8: objective.label_smoothing is not an option of objective.name = \"pretrain\"; "
        "remove it, or choose one that has it: sft, dpo, dpo_norm, wpo");
  CHECK(
      refusal("name = \"sft\"\nlabel_smoothing = 1.0").find("objective.label_smoothing must be") !=
      std::string::npos);
  CHECK(refusal("name = \"stf\"").find("did you mean \"sft\"") != std::string::npos);
}

TEST_CASE("named_options: a stored run has the options of its objective alone", "[configs][CF-2]") {
  CHECK(to_toml(with("").value()).find("label_smoothing") == std::string::npos);
  const RunConfig sft = with("name = \"sft\"\nlabel_smoothing = 0.1").value();
  const auto read = parse_config(to_toml(sft), "config.toml");
  REQUIRE(read.ok());
  CHECK(read->objective.name == "sft");
  CHECK(read->objective.label_smoothing == 0.1);
}

}  // namespace train::configs::named_options_test
