// A run from clean, and the switches of `actortrain run`, with the real program.

#include <cmath>

#include "tests/integration/sites/run_site.hpp"

using namespace train::test;

namespace {

std::uintmax_t tensorboard_bytes(const fs::path& run) {
  std::uintmax_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(run / "tensorboard")) {
    REQUIRE(entry.path().filename().string().starts_with("events.out.tfevents."));
    bytes += entry.file_size();
  }
  return bytes;
}

std::string token_file(std::size_t tokens, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::string bytes;
  for (std::size_t i = 0; i < tokens; ++i) {
    const auto id = static_cast<std::uint16_t>(random() % 50257);
    bytes += static_cast<char>(id & 0xff);
    bytes += static_cast<char>(id >> 8);
  }
  return bytes;
}

}  // namespace

TEST_CASE("run: a run from clean leaves metrics, checkpoints and curves", "[integration][run]") {
  const RunSite site;
  const Ended ended = site.train({"run.sample_tokens=16", "run.sample_prompt=\"the old\""});

  std::vector<nlohmann::json> steps;
  std::vector<nlohmann::json> evaluations;
  for (const nlohmann::json& entry : metrics_of(site.run())) {
    (entry.contains("val_loss") ? evaluations : steps).push_back(entry);
  }
  REQUIRE(steps.size() == 20);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const nlohmann::json& entry = steps[i];
    INFO(entry.dump());
    CHECK(entry.at("step") == i + 1);
    CHECK(entry.at("tokens") == (i + 1) * 3 * 2 * 32);
    CHECK(entry.at("loss").get<double>() > 0.0);
    CHECK(entry.at("grad_norm").get<double>() > 0.0);
    CHECK(entry.at("lr").get<double>() > 0.0);
    CHECK(entry.at("lr").get<double>() <= 3e-3);
    CHECK(entry.contains("tokens_per_second"));
    CHECK(entry.contains("weights_digest") == ((i + 1) % 5 == 0));
  }
  CHECK(steps.back().at("loss").get<double>() < 0.8 * steps.front().at("loss").get<double>());
  REQUIRE(evaluations.size() == 3);
  CHECK(evaluations[1].at("step") == 10);
  CHECK(evaluations[2].at("val_loss").get<double>() < evaluations[0].at("val_loss").get<double>());
  CHECK(evaluations[2].at("val_bits_per_byte").get<double>() > 0.0);

  CHECK(checkpoint_steps(site.run()) == std::vector<std::int64_t>{10, 20});
  CHECK(has(read_bytes(site.run() / "config.toml"), "lr = 0.003"));
  CHECK(tensorboard_bytes(site.run()) > 20 * 4 * 24);
  CHECK(has(ended.out, "step 20/20  loss "));
  CHECK(has(ended.out, "evaluation at step 20: loss "));
  CHECK(has(ended.out, "sample:\nthe old"));
  CHECK_FALSE(has(ended.out, "\r"));  // not a terminal: plain lines
  CHECK_FALSE(has(ended.out, "\x1b["));
  CHECK_FALSE(has(ended.err, "warning"));
}

TEST_CASE("run: the number of threads does not change a bit", "[integration][.full][run][P1]") {
  const RunSite site;
  for (const int threads : {1, 2, 3}) {
    site.train({fmt::format("runtime.threads={}", threads), "run.digest_interval_steps=1",
                fmt::format("run.name=threads{}", threads)});
  }
  CHECK(results_of(site.run("threads2")) == results_of(site.run("threads1")));
  CHECK(results_of(site.run("threads3")) == results_of(site.run("threads1")));
}

TEST_CASE("run: another seed is another run", "[integration][run]") {
  const RunSite site;
  site.train({"run.steps=2", "schedule.warmup_steps=0"});
  site.train({"run.steps=2", "schedule.warmup_steps=0", "run.seed=7", "run.name=other"});
  CHECK(results_of(site.run()) != results_of(site.run("other")));
}

TEST_CASE("run: --fresh sets the earlier run aside, and the name is the new one's",
          "[integration][run]") {
  const RunSite site;
  site.train();
  const Words before = results_of(site.run());
  const Ended ended = site.call({"run", "tiny.toml", "--fresh"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(has(ended.err, "the earlier run is runs/tiny-2 now"));
  CHECK(results_of(site.run("tiny-2")) == before);
  CHECK(results_of(site.run()) == before);
  // Each is its own: the stored configuration resumes it and not the other one.
  const auto of_new = tree_of(site.run());
  forget_after(site.run("tiny-2"), 10);
  REQUIRE(site.call({"run", "runs/tiny-2/config.toml"}).exit_code == 0);
  CHECK(checkpoint_steps(site.run("tiny-2")) == std::vector<std::int64_t>{10, 20});
  CHECK(tree_of(site.run()) == of_new);
  CHECK(has(site.call({"verify", "runs/tiny-2"}).out, "consistent: "));
  CHECK(has(site.call({"run", "tiny.toml"}).err, "nothing to do"));
}

TEST_CASE("run: a finished run says that there is nothing to do", "[integration][run]") {
  const RunSite site;
  site.train();
  const Words before = results_of(site.run());
  const Ended again = site.train();
  CHECK(has(again.err, "nothing to do"));
  CHECK_FALSE(has(again.out, "step 20/20"));
  CHECK(results_of(site.run()) == before);
  CHECK(checkpoint_steps(site.run()) == std::vector<std::int64_t>{10, 20});
}

TEST_CASE("run: more steps continue a finished run", "[integration][.full][run]") {
  const RunSite site;
  site.train();
  const Ended more = site.train({"run.steps=25"});
  CHECK(has(more.err, "run.steps was 20 and is 25 now"));
  CHECK(checkpoint_steps(site.run()) == std::vector<std::int64_t>{10, 20, 25});
}

TEST_CASE("run: --dry-run shows the plan and touches nothing", "[integration][run]") {
  const RunSite site;
  const auto before = tree_of(site.path());
  const Ended ended = site.call({"run", "tiny.toml", "--dry-run"});
  CHECK(ended.exit_code == 0);
  CHECK(ended.err.empty());
  for (const char* row : {"parameters", "FLOP per token", "tokens per step", "192", "time  ",
                          "host: a rank, total", "disk: a checkpoint", "threads"}) {
    INFO(row);
    CHECK(has(ended.out, row));
  }
  CHECK(tree_of(site.path()) == before);
}

TEST_CASE("run: token files made elsewhere, without meta.json, train",
          "[integration][.full][run]") {
  const RunSite site;
  fs::create_directory(site / "gpt2");
  write_bytes(site / "gpt2/train_0000.bin", token_file(1500, 1));
  write_bytes(site / "gpt2/train_0001.bin", token_file(900, 2));
  write_bytes(site / "gpt2/val.bin", token_file(400, 3));
  site.write_config("gpt2");
  const Ended ended = site.train({"model.arch=qwen3", "run.steps=5", "run.sample_tokens=8"});
  CHECK(has(read_bytes(site.run() / "config.toml"), "vocab_size = 50304"));
  const auto metrics = metrics_of(site.run());
  CHECK(first_of(metrics).at("val_loss").get<double>() == Approx(std::log(50304.0)).margin(1.0));
  CHECK_FALSE(first_of(metrics).contains("val_bits_per_byte"));  // no text behind the tokens
  CHECK(last_of(metrics).at("step") == 5);
}

TEST_CASE("run: the real TensorBoard reads the curves", "[integration][run]") {
  Process probe({"/usr/bin/env", "python3", "-c", "import tensorboard"});
  if (probe.wait().exit_code != 0) {
    WARN("skipped: python3 has no tensorboard");
    return;
  }
  const RunSite site;
  site.train();
  forget_after(site.run(), 10);
  site.train();
  const std::string script =
      "import sys\n"
      "from tensorboard.backend.event_processing.event_accumulator import EventAccumulator\n"
      "events = EventAccumulator(sys.argv[1])\n"
      "events.Reload()\n"
      "print([point.step for point in events.Scalars('train/loss')])\n";
  Process reader({"/usr/bin/env", "python3", "-c", script, (site.run() / "tensorboard").string()});
  const Ended ended = reader.wait();
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  std::string wanted = "[1";
  for (int step = 2; step <= 20; ++step) {
    wanted += fmt::format(", {}", step);
  }
  CHECK(ended.out == wanted + "]\n");
}
