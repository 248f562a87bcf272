// Training on several sources, from [[data.sources]] to metrics, kills and changed mixtures.

#include <algorithm>
#include <cctype>
#include <random>

#include "run/directory/run_directory.hpp"
#include "tests/integration/sites/killed_runs.hpp"

using namespace train::test;

namespace {

/// Three sources of token files, weighed 5 : 3 : 1, of other texts.
class MixedSite : public RunSite {
 public:
  MixedSite() {
    for (const auto& [name, text] : {std::pair<std::string, std::string>{"plain", simple_text(900)},
                                     {"upper", upper(simple_text(500))},
                                     {"numbers", numbers()}}) {
      write_bytes(*this / (name + ".txt"), text);
      const Ended ended = call({"data", "prepare", "--input", (*this / (name + ".txt")).string(),
                                "--out", (*this / name).string()});
      INFO(ended.err);
      REQUIRE(ended.exit_code == 0);
    }
    write_config("plain");
    std::string text = read_bytes(*this / "tiny.toml");
    const std::string dir = "dir = \"plain\"\n";
    text.replace(text.find(dir), dir.size(), "");
    text += R"(
[[data.sources]]
dir = "plain"
weight = 5
[[data.sources]]
dir = "upper"
weight = 3
[[data.sources]]
dir = "numbers"
weight = 1
)";
    write_bytes(*this / "tiny.toml", text);
  }

 private:
  static std::string upper(std::string text) {
    std::ranges::transform(text, text.begin(),
                           [](char letter) { return static_cast<char>(std::toupper(letter)); });
    return text;
  }
  static std::string numbers() {
    std::string text;
    for (int i = 0; i < 1500; ++i) {
      text += fmt::format("{} {} {}\n", i, i * i % 97, i % 7);
    }
    return text;
  }
};

const Words kPlain = {"run.sample_tokens=0", "run.digest_interval_steps=1", "model.z_loss_coeff=0"};

const Words& mixed_results() {
  static const Words results = [] {
    const MixedSite site;
    site.train(kPlain);
    return results_of(site.run());
  }();
  return results;
}

}  // namespace

TEST_CASE("mixture: metrics tell loss, tokens and epochs of each source",
          "[integration][mixture]") {
  const MixedSite site;
  const Ended planned = site.call({"run", "tiny.toml", "--dry-run"});
  INFO(planned.out);
  CHECK(has(planned.out, "steps 1 to 20: plain 55.56 %, upper 33.33 %, numbers 11.11 %"));
  site.train(kPlain);
  int steps = 0, evaluations = 0;
  for (const nlohmann::json& line : metrics_of(site.run())) {
    INFO(line.dump());
    if (line.contains("val_loss")) {
      ++evaluations;
      double sum = 0.0;
      for (const char* name : {"plain", "upper", "numbers"}) {
        sum += line[std::string("val_source_loss/") + name].get<double>();
      }
      // Two lanes of two rows: plain has two of them.
      sum += line["val_source_loss/plain"].get<double>();
      CHECK(sum / 4.0 == Approx(line["val_loss"].get<double>()));
      continue;
    }
    if (!line.contains("loss")) {
      continue;
    }
    ++steps;
    std::int64_t tokens = 0;
    double loss = 0.0, rows = 0.0;
    for (const char* name : {"plain", "upper", "numbers"}) {
      tokens += line[std::string("source_tokens/") + name].get<std::int64_t>();
      rows += line.contains(std::string("source_loss/") + name) ? 1.0 : 0.0;
      loss = std::max(loss, line.value(std::string("source_loss/") + name, 0.0));
    }
    CHECK(tokens == line["tokens"]);
    CHECK(rows >= 2.0);
    CHECK(loss >= line["loss"].get<double>());
  }
  CHECK(steps == 20);
  CHECK(evaluations >= 2);
}

TEST_CASE("mixture: the same bits at one, two and three ranks", "[integration][mixture][P1]") {
  for (const char* ranks : {"2", "3"}) {
    const MixedSite site;
    site.train(joined(kPlain, {std::string("parallel.ranks=") + ranks}));
    CHECK(results_of(site.run()) == mixed_results());
  }
}

TEST_CASE("mixture: killed at random points, on other numbers of ranks: the same bits",
          "[integration][mixture][P1][P3]") {
  const int kills = 4 * soak();
  const std::int64_t steps = std::max(60, 3 * kills);
  const Words keys = joined(kPlain, {fmt::format("run.steps={}", steps), "eval.interval_steps=0",
                                     "checkpoint.interval_steps=1", "checkpoint.keep_last=2"});
  const MixedSite unbroken;
  unbroken.train(keys);
  const MixedSite site;
  std::mt19937_64 random(Catch::rngSeed());
  CAPTURE(Catch::rngSeed());
  std::uint64_t ranks = 1 + random() % 3;
  for (int kill = 0; kill < kills; ++kill) {
    ranks = 1 + (ranks + random() % 2) % 3;  // One of the two other numbers.
    const auto running = site.start_run(joined(keys, {"parallel.ranks=" + std::to_string(ranks)}));
    // Before the first step of the start, or after some; spread over all of the run.
    const std::int64_t last = (steps - 1) * (kill + 1) / kills;
    const std::int64_t until =
        std::max<std::int64_t>(0, last - static_cast<std::int64_t>(random() % 3));
    running->until([&] {
      return fs::exists(site.run() / "config.toml") &&
             train::run::newest_step_in_metrics(site.run()) >= until;
    });
    running->send(SIGKILL);
    running->wait();
    CHECK(comes_true([&] { return processes_with(site.path().string() + "/").empty(); }));
  }
  site.train(keys);
  CHECK(results_of(site.run()) == results_of(unbroken.run()));
}

TEST_CASE("mixture: stages may change ahead of the steps done, and never behind them",
          "[integration][mixture][P1]") {
  const MixedSite site;
  Ended ended = site.call(RunSite::run_words(joined(kPlain, {"run.steps_per_job=10"})));
  REQUIRE(ended.exit_code == 75);
  const auto with = [&](const Words& keys, const Words& more) {
    Words words = RunSite::run_words(joined(kPlain, keys));
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const Words accept = {"--accept-config", "data.sources"};
  check_one_line(site.call(with({"data.sources[2].weight=2"}, {})), 2,
                 {"data.sources[2].weight", "--accept-config data.sources"});
  check_one_line(site.call(with({"data.sources[2].weight=2"}, accept)), 2,
                 {"data.sources", "10 finished steps", "from_step = 10"});
  const std::string later =
      "data.sources=[{dir=\"plain\", weight=5}, {dir=\"upper\", weight=3}, "
      "{dir=\"numbers\", weight=1}, {dir=\"numbers\", from_step=15}]";
  ended = site.call(with({later}, accept));
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  std::int64_t at_15 = 0, at_20 = 0;
  for (const nlohmann::json& line : metrics_of(site.run())) {
    const std::int64_t tokens = line.value("source_tokens/numbers", std::int64_t{0});
    at_15 = line["step"] == 15 && tokens > 0 ? tokens : at_15;
    at_20 = line["step"] == 20 && tokens > 0 ? tokens : at_20;
  }
  CHECK(at_20 - at_15 == 5 * 6 * 32);
}

TEST_CASE("mixture: mistakes are told in one line before anything starts",
          "[integration][mixture][mistakes]") {
  const MixedSite site;
  const auto check = [&](const Words& keys, const Words& parts) {
    check_mistake(site, RunSite::run_words(keys), parts);
  };
  check({"data.sources[0].weight=0"}, {"--set data.sources[0].weight=0", "0 < x"});
  check({"data.sources[1].max_epochs=0.01"},
        {"data.sources[1].max_epochs", "training rows", "epochs of them end in step"});
  check({"data.sources[1].dir=nowhere"}, {"--set data.sources[1].dir=nowhere", "nowhere"});
  check({"data.sources[1].dir=./plain"},
        {"data.sources[1].dir", "./plain is the directory plain of another source"});
  fs::create_directory_symlink("plain", site / "again");
  check({"data.sources[2].dir=again", "data.sources[2].from_step=10"},
        {"data.sources[2].dir", "again is the directory plain"});
  check({"data.order=dstar"}, {"data.order"});
}
