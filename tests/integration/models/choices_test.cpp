// Multiple-choice questions: what `actortrain eval --choices` and runs make of them.

#include <deque>
#include <span>

#include "tests/integration/event_log.hpp"
#include "tests/integration/sites/held_runs.hpp"
#include "tests/support/checkpoints/whole_safetensors.hpp"

using namespace train::test;

namespace {

/// Questions of two layouts, of many lengths.
void write_questions(const RunSite& site, int letters, int texts) {
  std::string lines;
  for (int i = 0; i < letters; ++i) {
    lines += fmt::format(R"({{"question": "{}{}?", "choices": ["a", "b", "c", "d"], "answer": {}}})"
                         "\n",
                         std::string(static_cast<std::size_t>(i % 3), 'q'), i, i % 4);
  }
  write_bytes(site / "letters.jsonl", lines);
  lines.clear();
  for (int i = 0; i < texts; ++i) {
    lines += fmt::format(R"({{"question": "n {}", "choices": {{"text": ["river", "miller {}"], )"
                         R"("label": ["A", "B"]}}, "answerKey": "{}"}})"
                         "\n",
                         i, i % 5, i % 3 == 0 ? "A" : "B");
  }
  write_bytes(site / "texts.jsonl", lines);
}

const Words kChoiceKeys = {"data.sequence_length=64",
                           R"(eval.choices=["letters.jsonl", "texts.jsonl"])"};

/// "choices" of the evaluation after `step` steps in metrics.jsonl.
nlohmann::json choices_at(const RunSite& site, std::int64_t step, const std::string& name) {
  for (const nlohmann::json& entry : metrics_of(site.run(name))) {
    if (entry.contains("choices") && entry.at("step") == step) {
      return entry.at("choices");
    }
  }
  FAIL("no choices at step " << step);
  return {};
}

std::string digest_in(const std::string& out) {
  const std::size_t at = out.find("digest=");
  REQUIRE(at != std::string::npos);
  return out.substr(at + 7, out.find('\n', at) - at - 7);
}

/// The fixture's model and questions, as files of `site`.
nlohmann::json write_fixture(const RunSite& site) {
  auto fixture = nlohmann::json::parse(
      read_bytes(ACTORTRAIN_SOURCE_DIR "/tests/reference/fixtures/choices.json"));
  fs::create_directory(site / "model");
  write_bytes(site / "model/config.json", fixture.at("config").dump());
  std::deque<std::vector<float>> values;
  std::vector<TensorBytes> tensors;
  for (const auto& [name, weight] : fixture.at("weights").items()) {
    values.emplace_back();
    for (const int value : weight.at("sixty_fourths").get<std::vector<int>>()) {
      values.back().push_back(static_cast<float>(value) / 64.0F);
    }
    tensors.push_back({.name = name,
                       .shape = weight.at("shape").get<std::vector<std::int64_t>>(),
                       .bytes = std::as_bytes(std::span(values.back()))});
  }
  REQUIRE(write_safetensors(site / "model/model.safetensors", tensors).ok());
  for (const auto& [name, text] : fixture.at("files").items()) {
    write_bytes(site / name, text.get<std::string>());
  }
  return fixture;
}

}  // namespace

TEST_CASE("choices: eval says what transformers and lm-eval's formulas say of a published model",
          "[integration][choices]") {
  const RunSite site;
  const nlohmann::json fixture = write_fixture(site);
  const Words names = {"mmlu.jsonl", "arc.jsonl", "hellaswag.jsonl"};
  for (const char* ranks : {"1", "3"}) {
    const Ended ended = site.call(joined({"eval", "model", "--ranks", ranks, "--context",
                                          std::to_string(fixture.at("context").get<int>()),
                                          "--details", "details.jsonl", "--choices"},
                                         names));
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    std::map<std::string, std::size_t> read;
    for (const std::string& line : lines_of(read_bytes(site / "details.jsonl"))) {
      const auto found = nlohmann::json::parse(line);
      const auto source = found.at("source").get<std::string>();
      const auto& expected = fixture.at("expected").at(source).at("questions").at(read[source]++);
      REQUIRE(found.at("log_likelihoods").size() == expected.size());
      for (std::size_t i = 0; i < expected.size(); ++i) {
        CHECK(found.at("log_likelihoods").at(i).get<double>() ==
              Approx(expected.at(i).get<double>()).epsilon(1e-5));
      }
    }
    for (const std::string& name : joined({"all"}, names)) {
      const nlohmann::json& of = fixture.at("expected").at(name);
      INFO(name << "\n" << ended.out);
      CHECK(has(ended.out,
                fmt::format("acc {:.4f}, acc_norm {:.4f}, acc_bytes {:.4f}, margin "
                            "{:.4f}, correct_prob {:.4f}, perplexity ",
                            of.at("acc").get<double>(), of.at("acc_norm").get<double>(),
                            of.at("acc_bytes").get<double>(), of.at("margin").get<double>(),
                            of.at("correct_prob").get<double>())));
      CHECK((name == "all" || read[name] == of.at("questions").size()));
    }
  }
}

TEST_CASE("choices: a run's evaluations and eval on any number of ranks have the same bits",
          "[integration][choices][P1]") {
  const RunSite site;
  write_questions(site, 23, 18);
  site.train(joined(kChoiceKeys, {"run.name=alone"}));
  site.train(rank_keys(3, "full", joined(kChoiceKeys, {"run.name=three"})));
  for (const std::int64_t step : {0, 10, 20}) {
    CHECK(choices_at(site, step, "three") == choices_at(site, step, "alone"));
  }
  const nlohmann::json last = choices_at(site, 20, "alone");
  CHECK(last.at("questions") == 41);
  CHECK(last.at("sources").at("texts.jsonl").at("questions") == 18);
  CHECK(last.at("digest") != choices_at(site, 0, "alone").at("digest"));
  std::string details;
  for (const char* ranks : {"1", "2", "3", "4"}) {
    const Ended ended = site.call({"eval", "runs/three", "--ranks", ranks, "--details",
                                   "details.jsonl", "--choices", "letters.jsonl", "texts.jsonl"});
    INFO(ranks << " ranks: " << ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(digest_in(ended.out) == last.at("digest"));
    details = details.empty() ? read_bytes(site / "details.jsonl") : details;
    CHECK(read_bytes(site / "details.jsonl") == details);
  }
  // More ranks than lanes, and another length of rows: no context was cut.
  const Ended wide = site.call({"eval", "runs/three", "--ranks", "2", "--context", "4000",
                                "--choices", "letters.jsonl", "texts.jsonl"});
  INFO(wide.err);
  CHECK(digest_in(wide.out) == last.at("digest"));
  const Ended own = site.call({"eval", "runs/three"});
  CHECK(has(own.out, "choices texts.jsonl: 18 questions"));
}

TEST_CASE("choices: an interval of their own, of few questions on many ranks, and a stop between",
          "[integration][choices][P1]") {
  const RunSite site;
  write_questions(site, 3, 0);  // two ranks have none to answer
  const Words keys = {"data.sequence_length=64", R"(eval.choices=["letters.jsonl"])",
                      "eval.interval_steps=0",   "eval.choices_interval_steps=8",
                      "batch.micro_batch=12",    "run.steps=20"};
  site.train(joined(keys, {"run.name=alone"}));
  const auto steps_of = [&](const char* name) {
    std::vector<std::int64_t> steps;
    for (const nlohmann::json& entry : metrics_of(site.run(name))) {
      CHECK_FALSE(entry.contains("val_loss"));
      if (entry.contains("choices")) {
        steps.push_back(entry.at("step"));
      }
    }
    return steps;
  };
  CHECK(steps_of("alone") == std::vector<std::int64_t>{0, 8, 16, 20});
  const Words three = rank_keys(3, "full", joined(keys, {"run.name=three"}));
  CHECK(site.call(RunSite::run_words(joined(three, {"run.steps_per_job=8"}))).exit_code == 75);
  site.train(three);
  CHECK(steps_of("three") == steps_of("alone"));
  for (const std::int64_t step : {0, 8, 16, 20}) {
    CHECK(choices_at(site, step, "three") == choices_at(site, step, "alone"));
  }
  CHECK(site.call({"verify", "runs/three"}).exit_code == 0);
}

TEST_CASE("choices: mistakes are one line with file and line", "[integration][choices]") {
  const RunSite site;
  write_questions(site, 3, 3);
  site.train();
  const std::string good = R"({"question": "q", "choices": ["x", "y"], "answer": 0})";
  const std::pair<std::string, std::string> mistakes[] = {
      {good + "\n" + R"({"question": "q", "choices": ["x", "y"], "answer": 2})",
       "bad.jsonl:2: \"answer\" is 2"},
      {R"({"question": "q", "choices": ["x"], "answer": 0})",
       "bad.jsonl:1: \"choices\" has 1 text"},
      {R"({"question": "", "choices": ["x", "y"], "answer": 0})",
       "bad.jsonl:1: \"question\" is empty"},
      {good + "\n" + good.substr(0, 25), "bad.jsonl:2: not a JSON object"},
      {"", "bad.jsonl: holds no question"}};
  for (const auto& [text, part] : mistakes) {
    write_bytes(site / "bad.jsonl", text);
    const Words commands[] = {{"eval", "runs/tiny", "--choices", "letters.jsonl", "bad.jsonl"},
                              RunSite::run_words({R"(eval.choices=["bad.jsonl"])", "run.name=x"})};
    for (const Words& words : commands) {
      const Ended ended = site.call(words);
      INFO(ended.err);
      CHECK(ended.exit_code == 2);
      CHECK(has(ended.err, part));
      CHECK(lines_of(ended.err).size() == 1);
    }
  }
  CHECK_FALSE(fs::exists(site.run("x")));
  CHECK(site.call({"eval", "runs/tiny", "--details", "d"}).exit_code == 2);
  CHECK(site.call({"eval", "runs/tiny", "--choices", "missing.jsonl"}).exit_code == 2);
}

TEST_CASE("choices: 1,007 questions on 4 ranks, one of which is killed: the numbers of one rank",
          "[integration][.full][choices][failure][P1]") {
  const RunSite site;
  write_questions(site, 504, 503);
  const Words keys =
      joined(kChoiceKeys, {"run.steps=4", "eval.interval_steps=4", "schedule.warmup_steps=1",
                           "batch.lanes=4", "checkpoint.interval_steps=2", "model.layers=1"});
  site.train(joined(keys, {"run.name=alone"}));
  const Words killed = joined(keys, {"run.name=killed"});
  CHECK(site.call(RunSite::run_words(joined(killed, {"run.steps_per_job=2"}))).exit_code == 75);
  // Rank 2 has one block and one lane in each of the two steps that are left, and at most two of
  // the evaluation: what follows are the questions.
  write_bytes(site / "wedge", "");
  Process launcher(
      joined({"/usr/bin/env", "ACTORTRAIN_TEST_FAULT=forward:6:2",
              "ACTORTRAIN_TEST_WEDGE=" + (site / "wedge").string(),
              "ACTORTRAIN_TEST_FAULT_STAMP=" + (site / "held").string(), faulty_program()},
             RunSite::run_words(rank_keys(4, "full", killed))),
      site.path());
  REQUIRE(launcher.until([&] { return fs::exists(site / "held"); }));
  wait_for_step(site.run("killed"), launcher, 4);
  REQUIRE_FALSE(last_of(whole_lines(site.run("killed") / "metrics.jsonl")).contains("choices"));
  REQUIRE(::kill(workers_of(site.path()).at(2), SIGKILL) == 0);
  let_go(site);
  const Ended ended = launcher.wait();
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(has(ended.err, "rank 2"));  // its loss was noticed
  const nlohmann::json all = choices_at(site, 4, "killed");
  CHECK(all.at("questions") == 1007);
  CHECK(all == choices_at(site, 4, "alone"));
}
