// Runs with other optimizers than AdamW: ranks, strategies and stops do not show in weights or in
// what is logged.

#include "tests/integration/sites/rank_runs.hpp"

using namespace train::test;

TEST_CASE("optimizers: any ranks and any stop give the bits of one rank, logged values included",
          "[integration][.full][optimizer][P1]") {
  const std::string optimizer =
      GENERATE(std::string("dana-star-mk4"), std::string("ademamix"), std::string("muon"));
  CAPTURE(optimizer);
  const Words keys = {fmt::format("optimizer.name={}", optimizer), "run.steps=12",
                      "run.log_interval_steps=2", "run.digest_interval_steps=3",
                      "checkpoint.interval_steps=5"};
  const RunSite site;
  site.train(joined(keys, {"run.name=one"}));
  const Words one = results_of(site.run("one"));
  std::vector<std::int64_t> steps;  // That say something of the optimizer.
  for (const nlohmann::json& line : metrics_of(site.run("one"))) {
    if (line.contains("optimizer/alpha")) {
      steps.push_back(line.at("step").get<std::int64_t>());
      CHECK(line.at("optimizer/alpha").get<double>() > 0.0);
      CHECK(line.at("optimizer/m_norm").get<double>() > 0.0);
    }
  }
  using Steps = std::vector<std::int64_t>;
  CHECK(steps == (optimizer == "dana-star-mk4" ? Steps{2, 4, 6, 8, 10, 12} : Steps{}));

  site.train(rank_keys(2, "full", joined(keys, {"run.name=two"})));
  CHECK(results_of(site.run("two")) == one);
  forget_after(site.run("two"), 5);
  site.train(rank_keys(3, "optimizer", joined(keys, {"run.name=two"})));
  CHECK(results_of(site.run("two")) == one);
}

TEST_CASE("optimizers: the plan names the owner of a matrix that Muon keeps whole",
          "[integration][.full][optimizer]") {
  const RunSite site;
  Words words = {"plan", "tiny.toml", "--tensors"};
  for (const std::string& key : rank_keys(3, "full", {"optimizer.name=muon"})) {
    words.insert(words.end(), {"--set", key});
  }
  const Ended plan = site.call(words);
  INFO(plan.err);
  REQUIRE(plan.exit_code == 0);
  for (const char* owner : {"all on 0", "all on 1", "all on 2"}) {
    CHECK(has(plan.out, owner));
  }
}
