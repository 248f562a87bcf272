// What of a run file is another value than at the start before, and what that may be.

#include "configs/key_changes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "configs/fields/named_options.hpp"
#include "configs/load_config.hpp"

namespace train::configs::key_changes_test {
namespace {

using Words = std::vector<std::string>;

RunConfig config_of(const Words& set = {}) {
  const auto config = parse_config(
      "[run]\nname = \"a\"\n[model]\narch = \"enoki\"\n[data]\ndir = \"d\"\n", "x.toml", set);
  REQUIRE(config.ok());
  return *config;
}

/// "path: before -> now", of each change.
Words texts(const std::vector<KeyChange>& changes) {
  Words all;
  for (const KeyChange& change : changes) {
    all.push_back(
        fmt::format("{}: {} -> {}", change.path, change.before_text(), change.now_text()));
  }
  return all;
}

Words texts(std::string_view before, std::string_view now) {
  const auto changes = key_changes(before, now);
  REQUIRE(changes.ok());
  return texts(*changes);
}

/// The keys that another value is refused of, between two run files.
Words refused(const Words& before, const Words& now) {
  Words keys;
  for (const KeyChange& change : key_changes(config_of(before), config_of(now))) {
    if (stays(change.rule())) {
      keys.push_back(change.path);
    }
  }
  return keys;
}

/// `config` with another value of `field`, whether or not that is allowed.
RunConfig with_another_value(const Field& field, RunConfig config) {
  std::visit(
      [](auto* value) {
        using Value = std::remove_pointer_t<decltype(value)>;
        if constexpr (std::is_same_v<Value, bool>) {
          *value = !*value;
        } else if constexpr (std::is_same_v<Value, std::string>) {
          *value += "x";
        } else if constexpr (std::is_same_v<Value, std::vector<std::string>>) {
          value->push_back("x");
        } else if constexpr (std::is_same_v<Value, std::vector<std::int64_t>>) {
          value->push_back(3);
        } else if constexpr (std::is_same_v<Value, std::vector<DataSource>>) {
          value->push_back({.dir = "x"});
        } else {
          *value += 1;
        }
      },
      field.locate(config));
  return config;
}

}  // namespace

TEST_CASE("key_changes: of every key of every objective and optimizer another value is seen",
          "[configs][key_changes][CF-4][exhaustive]") {
  std::set<std::string> seen;
  std::vector<RunConfig> configs;
  for (const std::string& name : split_choices(*find_field("objective.name"))) {
    configs.push_back(config_of());
    configs.back().objective.name = name;
  }
  for (const std::string& name : split_choices(*find_field("optimizer.name"))) {
    configs.push_back(config_of());
    configs.back().optimizer.name = name;
  }
  for (const RunConfig& config : configs) {
    CHECK(key_changes(config, config).empty());
    for (const Field& field : all_fields()) {
      if (!applies(field, config) || field.name == "name") {
        continue;
      }
      INFO(field.key());
      const auto changes = key_changes(config, with_another_value(field, config));
      REQUIRE(changes.size() == 1);
      CHECK(changes.front().path == field.key());
      CHECK(changes.front().field == &field);
      CHECK(changes.front().before == toml_value(field, config));
      seen.insert(field.key());
    }
  }
  for (const Field& field : all_fields()) {
    INFO(field.key());
    CHECK((field.name == "name" || seen.contains(field.key())));
  }
}

TEST_CASE("key_changes: another objective, smoothing or adapter is another run",
          "[configs][key_changes]") {
  const Words pairs = {"objective.name=dpo"};
  CHECK(refused(pairs, {"objective.name=simpo"}).front() == "objective.name");
  CHECK(refused({"objective.name=sft"}, {"objective.name=sft", "objective.label_smoothing=0.5"}) ==
        Words{"objective.label_smoothing"});
  CHECK(refused({"lora.rank=4"}, {"lora.rank=4", "lora.alpha=256"}) == Words{"lora.alpha"});
  CHECK(refused(pairs, {"objective.name=dpo", "objective.reference=live"}) ==
        Words{"objective.reference"});
}

TEST_CASE("key_changes: length, places, ranks and what is reported are the same run",
          "[configs][key_changes]") {
  CHECK(refused({}, {"run.steps=2000", "run.dir=elsewhere", "data.dir=moved", "parallel.ranks=4",
                     "parallel.strategy=full", "checkpoint.interval_steps=7", "eval.lanes=3",
                     "memory.activation_checkpointing=all", "watchdog.stall_s=9",
                     "recovery.rank_loss=stop", "runtime.threads=2",
                     "status.listen=127.0.0.1:0"}) == Words{});
}

TEST_CASE("key_changes: the order is that of the table of keys", "[configs][key_changes]") {
  const auto changes =
      key_changes(config_of(), config_of({"runtime.threads=2", "optimizer.lr=0.5", "run.steps=7"}));
  CHECK(texts(changes) ==
        Words{"run.steps: 1000 -> 7", "optimizer.lr: 0.001 -> 0.5", "runtime.threads: 0 -> 2"});
}

TEST_CASE("key_changes: a key that one of both lacks is a change", "[configs][key_changes]") {
  CHECK(texts("[run]\nseed = 1\n", "[run]\n") == Words{"run.seed: 1 -> not set"});
  CHECK(texts("", "[lora]\nrank = 2\nalpha = 1.5\n") ==
        Words{"lora.rank: not set -> 2", "lora.alpha: not set -> 1.5"});
}

TEST_CASE("key_changes: a key of no table stays", "[configs][key_changes][CF-4]") {
  const auto changes = key_changes("[new]\nkey = 1\n", "[run]\nsteps = 1\n[new]\nkey = 2\n");
  REQUIRE(changes.ok());
  CHECK(texts(*changes) == Words{"run.steps: not set -> 1", "new.key: 1 -> 2"});
  CHECK(changes->back().rule() == BetweenStarts::state);
}

TEST_CASE("key_changes: tables within a key and lists of them are gone through",
          "[configs][key_changes][CF-4]") {
  CHECK(texts("[data]\nparts = [{ dir = \"a\", weight = 0.5 }, { dir = \"b\", weight = 0.5 }]\n",
              "[[data.parts]]\nweight = 0.5\ndir = \"a\"\n[[data.parts]]\ndir = \"b\"\nweight = "
              "0.25\n") == Words{"data.parts[1].weight: 0.5 -> 0.25"});
  CHECK(texts("[model]\nscaling = { kind = \"yarn\", factors = [1.0, 2.0] }\n",
              "[model.scaling]\nkind = \"yarn\"\nfactors = [1.0, 2.5]\n") ==
        Words{"model.scaling.factors: [1.0, 2.0] -> [1.0, 2.5]"});
  CHECK(texts("[data]\nparts = [{ dir = \"a\" }]\n", "[data]\nparts = []\n") ==
        Words{"data.parts: [{dir = \"a\"}] -> []"});
  CHECK(texts("[data]\nparts = [[1, true]]\n", "[data]\nparts = [[1, false]]\n") ==
        Words{"data.parts: [[1, true]] -> [[1, false]]"});
}

TEST_CASE("key_changes: a part of a key has the key's rule", "[configs][key_changes][CF-4]") {
  const auto moved = key_changes("[[data.dir]]\npath = \"a\"\n", "[[data.dir]]\npath = \"b\"\n");
  REQUIRE(moved.ok());
  REQUIRE(texts(*moved) == Words{"data.dir[0].path: \"a\" -> \"b\""});
  CHECK(moved->front().rule() == BetweenStarts::may_move);
  const auto kept = key_changes("[lora]\ntargets = { a = 1 }\n", "[lora]\ntargets = { a = 2 }\n");
  REQUIRE(kept.ok());
  CHECK(stays(kept->front().rule()));
}

TEST_CASE("key_changes: numbers are compared by their bits, texts by their bytes",
          "[configs][key_changes][CF-4]") {
  CHECK(texts("[a]\nb = 0.1\n", "[a]\nb = 0.10\n").empty());
  CHECK(texts("[a]\nb = 0.1\n", "[a]\nb = 0.10000000000000002\n").size() == 1);
  CHECK(texts("[a]\nb = 0.0\n", "[a]\nb = -0.0\n") == Words{"a.b: 0.0 -> -0.0"});
  CHECK(texts("[a]\nb = 1\n", "[a]\nb = 1.0\n") == Words{"a.b: 1 -> 1.0"});
  CHECK(texts("[a]\nb = nan\n", "[a]\nb = inf\n") == Words{"a.b: nan -> inf"});
  CHECK(texts("[a]\nb = \"x\\n\"\n", "[a]\nb = 'x'\n") == Words{"a.b: \"x\\n\" -> \"x\""});
  CHECK(texts("[a]\nb = 2020-01-01\n", "[a]\nb = 2021-01-01\n") ==
        Words{"a.b: 2020-01-01 -> 2021-01-01"});
}

TEST_CASE("key_changes: what is no TOML is an error of one line", "[configs][key_changes]") {
  const auto changes = key_changes("[a\n", "");
  REQUIRE_FALSE(changes.ok());
  CHECK(changes.error().message.find('\n') == std::string::npos);
}

TEST_CASE("key_changes: what a file's warm-up or a rule derives from run.steps follows it",
          "[configs][key_changes]") {
  const auto follows = [](const Words& before, const Words& now) {
    Words keys;
    for (const KeyChange& change : key_changes(config_of(before), config_of(now))) {
      if (change.follows_length) {
        CHECK(change.rule() == BetweenStarts::warns);
        keys.push_back(change.path);
      }
    }
    return keys;
  };
  const auto file = [](Words set, const std::string& steps) {
    set.push_back("run.steps=" + steps);
    return set;
  };
  const Words warmup = {"schedule.warmup_steps=80"};
  CHECK(follows(file(warmup, "400"), file(warmup, "20")) == Words{"schedule.warmup_steps"});
  CHECK(follows(file(warmup, "20"), file(warmup, "400")) == Words{"schedule.warmup_steps"});
  CHECK(follows(file(warmup, "20"), file(warmup, "40")) == Words{"schedule.warmup_steps"});
  CHECK(follows(file(warmup, "400"), file({"schedule.warmup_steps=70"}, "300")).empty());
  CHECK(follows(file(warmup, "20"), file({"schedule.warmup_steps=3"}, "20")).empty());
  const Words ruled = {"scaling.rule=enoki", "scaling.heads=3"};
  const auto decay = [&](Words set) {
    set.insert(set.end(), ruled.begin(), ruled.end());
    return set;
  };
  CHECK(follows(file(decay({}), "100"), file(decay({}), "200")) == Words{"optimizer.weight_decay"});
  CHECK(follows(file(decay({"optimizer.name=adana"}), "100"),
                file(decay({"optimizer.name=adana"}), "200")) ==
        Words{"optimizer.weight_decay", "optimizer.wd_ts"});
  CHECK(follows(file(decay({}), "100"), file(decay({"scaling.omega=2.0"}), "200")).empty());
}

TEST_CASE("key_changes: only a key that later updates alone depend on can be accepted",
          "[configs][key_changes]") {
  const auto refusal = [](const std::string& key) {
    const Status status = check_accepted(Words{key});
    return status ? std::string() : status.error().message;
  };
  CHECK(refusal("optimizer.lr").empty());
  CHECK(refusal("schedule.name").empty());
  CHECK(refusal("model.layers").find("never changes within a run, as it determines shapes") !=
        std::string::npos);
  CHECK(refusal("batch.lanes").find("it determines the tokens that each step reads") !=
        std::string::npos);
  CHECK(refusal("optimizer.beta2").find("the meaning of what the checkpoints hold") !=
        std::string::npos);
  CHECK(refusal("run.steps") ==
        "--accept-config run.steps: may change without being accepted; leave it out");
  CHECK(refusal("optimizer.lr=1e-3") ==
        "--accept-config optimizer.lr=1e-3: takes a key alone; give --accept-config optimizer.lr "
        "--set optimizer.lr=1e-3");
  CHECK(refusal("learning_rate") ==
        "--accept-config learning_rate: unknown key \"learning_rate\"; did you mean "
        "\"optimizer.lr\"?");
}

}  // namespace train::configs::key_changes_test
