// `actortrain plan`: what each strategy would cost, before anything is started.

#include "tests/integration/sites/run_site.hpp"

using namespace train::test;

TEST_CASE("plan: shows all strategies side by side and touches nothing", "[integration][plan]") {
  const RunSite site;
  const auto before = tree_of(site.path());
  const Ended ended = site.call({"plan", "tiny.toml", "--set", "parallel.ranks=4", "--set",
                                 "batch.lanes=6", "--set", "parallel.strategy=full"});
  INFO(ended.out << ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(ended.err.empty());
  const Words lines = lines_of(ended.out);
  REQUIRE(lines.size() > 10);
  CHECK(has(lines[0], "4 ranks, 6 lanes a step: 2 rounds"));
  for (const char* name : {"none", "optimizer", "gradient", "full", "hybrid 2"}) {
    INFO(name);
    for (const char* table : {"at most, on the fullest rank", "sent by a rank in a step"}) {
      const bool shown = std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
        return line.starts_with(table) && has(line, name);
      });
      CHECK(shown);
    }
  }
  CHECK(tree_of(site.path()) == before);
}

TEST_CASE("plan: one rank sends nothing", "[integration][plan]") {
  const RunSite site;
  const Ended ended = site.call({"plan", "tiny.toml"});
  CHECK(ended.exit_code == 0);
  CHECK(has(ended.out, "1 rank, 3 lanes"));
  CHECK(has(ended.out, "collectives of a step: none"));
}

TEST_CASE("plan: needs no data where the vocabulary is given", "[integration][plan]") {
  const RunSite site;
  const std::string with = site.call({"plan", "tiny.toml", "--set", "model.vocab_size=320"}).out;
  site.write_config("nowhere");
  const Ended ended = site.call({"plan", "tiny.toml", "--vocab", "320"});
  INFO(ended.out << ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(ended.out == with);
  CHECK_FALSE(has(ended.out, "lm_head.weight"));
  CHECK(has(site.call({"plan", "tiny.toml", "--vocab", "320", "--tensors"}).out, "lm_head.weight"));
}

TEST_CASE("plan: mistakes", "[integration][plan][mistakes]") {
  const RunSite site;
  check_mistake(site, {"plan"}, {"actortrain plan", "--help"});
  check_mistake(site, {"plan", "none.toml"}, {"none.toml"});
  check_mistake(site, {"plan", "tiny.toml", "--set", "parallel.ranks=4"},
                {"parallel.ranks", "batch.lanes"});
  check_mistake(site, {"plan", "tiny.toml", "--vocab", "0"}, {"--vocab", "1 or more"});
  check_mistake(site, {"plan", "tiny.toml", "--vocab", "99999999999"},
                {"--vocab must be 16777216 or less"});
  check_mistake(site, {"plan", "tiny.toml", "--vocab", "300", "--set", "model.vocab_size=256"},
                {"model.vocab_size is 256", "300 tokens"});
  write_bytes(site / "shape.toml",
              "[run]\nname = \"shape\"\n[model]\nconfig = \"smollm2-135m\"\n"
              "[data]\ndir = \"nowhere\"\n");
  CHECK(site.call({"plan", "shape.toml", "--vocab", "49152"}).exit_code == 0);
  check_mistake(site, {"plan", "shape.toml", "--vocab", "49153"},
                {"--vocab 49153: the model has 49152 tokens", "at most 49152"});
  check_mistake(site, {"plan", "tiny.toml", "--set", "data.dir=nowhere"}, {"data.dir", "nowhere"});
  check_mistake(site, {"plan", "tiny.toml", "--set", "parallel.rank=2"},
                {"did you mean \"parallel.ranks\""});
}
