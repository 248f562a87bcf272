// `actortrain eval`: the number that the run itself computed, on any number of ranks.

#include <cmath>

#include "tests/integration/sites/rank_runs.hpp"

using namespace train::test;

namespace {

const Words kEvalRun = {"batch.lanes=5", "eval.lanes=4"};

Words eval_words(const RunSite& site, const Words& more) {
  return joined({"eval", site.run().string()}, more);
}

// What the run itself wrote of its evaluation at `step`, as eval prints it.
std::string line_of(const RunSite& site, std::int64_t step) {
  for (const nlohmann::json& entry : metrics_of(site.run())) {
    if (entry.contains("val_loss") && entry.at("step") == step) {
      return fmt::format(
          "eval step={} loss={:.6f} perplexity={:.4f} accuracy={:.4f} bits_per_byte={:.6f}\n", step,
          entry.at("val_loss").get<double>(), entry.at("val_perplexity").get<double>(),
          entry.at("val_accuracy").get<double>(), entry.at("val_bits_per_byte").get<double>());
    }
  }
  FAIL("no evaluation at step " << step);
  return {};
}

}  // namespace

TEST_CASE("eval: any number of ranks prints the run's own evaluation",
          "[integration][.full][eval][P1]") {
  const RunSite site;
  site.train(rank_keys(2, "full", kEvalRun));
  const auto before = tree_of(site.path());
  for (const char* ranks : {"1", "2", "3", "5"}) {
    INFO(ranks << " ranks");
    const Ended newest = site.call(eval_words(site, {"--ranks", ranks}));
    INFO(newest.err);
    CHECK(newest.exit_code == 0);
    CHECK(newest.out == line_of(site, 20));
    CHECK(newest.err.empty());
  }
  CHECK(site.call(eval_words(site, {"--step", "10"})).out == line_of(site, 10));
  CHECK(tree_of(site.path()) == before);  // it only reads
}

TEST_CASE("eval: --follow prints every checkpoint of a running run and ends with it",
          "[integration][.full][eval]") {
  const RunSite site;
  const auto run =
      site.start_run(rank_keys(2, "gradient",
                               joined(kEvalRun, {"run.steps=60", "eval.interval_steps=20",
                                                 "checkpoint.interval_steps=20"})));
  REQUIRE(run->until([&] { return fs::exists(site.run() / "config.toml"); }));
  const auto follower = site.start(eval_words(site, {"--follow", "--ranks", "2"}));
  const Ended trained = run->wait();
  INFO(trained.err);
  REQUIRE(trained.exit_code == 0);
  const Ended followed = follower->wait();
  INFO(followed.err);
  CHECK(followed.exit_code == 0);
  const auto placed = checkpoint_steps(site.run());  // a slow disk may have skipped the middle one
  REQUIRE(placed.size() >= 2);
  CHECK(placed.front() == 20);
  CHECK(placed.back() == 60);
  std::string expected;
  for (const std::int64_t step : placed) {
    expected += line_of(site, step);
  }
  CHECK(followed.out == expected);
}

TEST_CASE("eval: --follow ends at a signal", "[integration][.full][eval]") {
  const RunSite site;
  site.train({"run.steps=10"});
  // The run is to be longer than it has come.
  const std::string config = read_bytes(site.run() / "config.toml");
  const std::size_t at = config.find("steps = 10");
  REQUIRE(at != std::string::npos);
  write_bytes(site.run() / "config.toml", std::string(config).replace(at, 10, "steps = 99"));
  const auto follower = site.start(eval_words(site, {"--follow"}));
  REQUIRE(follower->until([&] { return has(follower->out(), "eval step=10 "); }));
  follower->send(SIGTERM);
  CHECK(follower->wait().exit_code == 0);
}

TEST_CASE("eval: --follow ends where another run takes the place of the one it follows",
          "[integration][eval]") {
  const RunSite site;
  REQUIRE(site.call(RunSite::run_words({"run.steps_per_job=10"})).exit_code == 75);
  const auto follower = site.start(eval_words(site, {"--follow"}));
  REQUIRE(follower->until([&] { return has(follower->out(), "eval step=10 "); }));
  const Ended anew = site.call(joined(RunSite::run_words({"run.seed=77"}), {"--fresh"}));
  INFO(anew.err);
  REQUIRE(anew.exit_code == 0);
  const Ended followed = follower->wait();
  check_one_line(followed, 1, {"was begun anew", "the same command once more"});
  CHECK(lines_of(followed.out).size() == 1);
}

TEST_CASE("eval: mistakes", "[integration][eval][mistakes]") {
  const RunSite site;
  check_mistake(site, {"eval"}, {"actortrain eval", "--help"});
  check_mistake(site, {"eval", "nowhere"}, {"nowhere", "no such directory"});
  site.train({"run.steps=4", "schedule.warmup_steps=0"});
  check_mistake(site, eval_words(site, {"--step", "3"}), {"--step 3", "there is 4"});
  check_mistake(site, eval_words(site, {"--ranks", "0"}), {"--ranks"});
  check_mistake(site, eval_words(site, {"--ranks", "4"}), {"--ranks 4", "3 lanes"});
  check_mistake(site, eval_words(site, {"--step", "4", "--follow"}), {"--follow"});
  fs::remove_all(site.run() / "checkpoints/step-00000004");
  check_mistake(site, eval_words(site, {}), {"no checkpoint yet"});
}
