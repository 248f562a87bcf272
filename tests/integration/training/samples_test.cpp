// Texts that a run samples while it trains: the same at any number of ranks and over losses and
// resumes, each once; and those of `actortrain generate`.

#include <algorithm>

#include "tests/integration/sites/held_runs.hpp"
#include "tests/support/inputs/small_tokenizer.hpp"

using namespace train::test;

namespace {

const Words kSampled = {"run.sample_interval_steps=4",
                        "run.sample_tokens=12",
                        R"(run.sample_prompts=["the old ", "a quiet child"])",
                        "run.sample_temperature=0.7",
                        "run.sample_seed=5",
                        "run.digest_interval_steps=1"};

/// Step, prompt and text of each event, in the file's order.
Words samples_of(const fs::path& run) {
  Words samples;
  for (const nlohmann::json& event : events_of(run, "sampled")) {
    samples.push_back(fmt::format("{} {} {}", event.at("step").get<std::int64_t>(),
                                  event.at("prompt").dump(), event.at("text").dump()));
  }
  return samples;
}

/// Of the run that nothing disturbs, on one rank.
const RunSite& undisturbed() {
  static const RunSite site;
  static const Ended ended = site.train(kSampled);
  return site;
}

/// A site whose run trains on packed conversations, in the template chatml.
struct ChatSite : RunSite {
  ChatSite() {
    fs::create_directories(path() / "tok");
    auto tokenizer = nlohmann::ordered_json::parse(small_tokenizer_json());
    for (const char* name : {"<|im_start|>", "<|im_end|>"}) {
      nlohmann::ordered_json token = tokenizer["added_tokens"].back();
      token["id"] = token["id"].get<int>() + 1;
      token["content"] = name;
      tokenizer["added_tokens"].push_back(token);
    }
    write_bytes(path() / "tok/tokenizer.json", tokenizer.dump());
    std::string chats;
    for (int i = 0; i < 60; ++i) {
      chats += fmt::format(R"({{"messages": [{{"role": "user", "content": "Say {}"}}, )"
                           R"({{"role": "assistant", "content": "word {}"}}]}})"
                           "\n",
                           i, i);
    }
    write_bytes(path() / "chats.jsonl", chats);
    const Ended ended = call({"data", "prepare", "--input", "chats.jsonl", "--tokenizer", "tok",
                              "--template", "chatml", "--row-length", "64", "--out", "rows"});
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    write_config("rows");
    std::string text = read_bytes(path() / "tiny.toml");
    const std::string length = "sequence_length = 32";
    text.replace(text.find(length), length.size(), "sequence_length = 64");
    write_bytes(path() / "tiny.toml", text);
  }
};

/// With U+FFFD for what is no character.
std::string shown(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Words sorted(Words words) {
  std::sort(words.begin(), words.end());
  return words;
}

}  // namespace

TEST_CASE("samples: before the first step, at the interval and after the last, in the files",
          "[integration][samples]") {
  const RunSite& site = undisturbed();
  const Words samples = samples_of(site.run());
  REQUIRE(samples.size() == 2 * 6);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    CHECK(samples[i].starts_with(fmt::format("{} ", i / 2 * 4)));
    CHECK(events_of(site.run(), "sampled").at(i).at("index") == i % 2);
  }
  std::vector<std::int64_t> steps;
  for (const nlohmann::json& line : metrics_of(site.run())) {
    if (line.contains("sample_seconds")) {
      steps.push_back(line.at("step"));
      CHECK(line.at("event") == "samples");
      CHECK(line.at("sample_tokens") == 24);
      CHECK(line.at("sample_seconds") > 0.0);
    }
  }
  CHECK(steps == std::vector<std::int64_t>{0, 4, 8, 12, 16, 20});
  std::string tensorboard;
  for (const auto& file : fs::directory_iterator(site.run() / "tensorboard")) {
    tensorboard += read_bytes(file.path());
  }
  CHECK(count_of(tensorboard, "samples/1") == 6);
  const Ended verified = site.call({"verify", "runs/tiny"});
  INFO(verified.out << verified.err);
  CHECK(verified.exit_code == 0);
}

TEST_CASE("samples: the texts are those that generate writes with the checkpoint",
          "[integration][samples]") {
  const RunSite& site = undisturbed();
  const Ended ended = site.call({"generate", "runs/tiny", "--step", "20", "--prompt", "the old ",
                                 "--tokens", "12", "--temperature", "0.7", "--seed", "5"});
  REQUIRE(ended.exit_code == 0);
  const nlohmann::json event = events_of(site.run(), "sampled").at(10);
  CHECK(event.at("step") == 20);
  CHECK(shown("the old " + event.at("text").get<std::string>() + "\n") == shown(ended.out));
}

TEST_CASE("samples: the weights and metrics are those of a run without them",
          "[integration][samples][P1]") {
  const RunSite site;
  site.train({"run.digest_interval_steps=1"});
  Words with = results_of(undisturbed().run());
  std::erase_if(with, [](const std::string& line) { return has(line, "\"samples\""); });
  CHECK(with == results_of(site.run()));
}

TEST_CASE("samples: three ranks that shard everything write the texts of one",
          "[integration][samples][P1]") {
  const RunSite site;
  site.train(rank_keys(3, "full", kSampled));
  CHECK(samples_of(site.run()) == samples_of(undisturbed().run()));
  CHECK(results_of(site.run()) == results_of(undisturbed().run()));
}

TEST_CASE("samples: the texts are the same at any ranks and strategy, and with bf16 weights too",
          "[integration][.full][samples][P1]") {
  for (const auto& [ranks, strategy] : {std::pair(2, "none"), std::pair(2, "gradient"),
                                        std::pair(3, "optimizer"), std::pair(4, "hybrid")}) {
    CAPTURE(ranks, strategy);
    const Words shape = {"batch.lanes=4"};
    const RunSite one;
    one.train(joined(kSampled, shape));
    const RunSite site;
    site.train(rank_keys(ranks, strategy, joined(kSampled, shape)));
    CHECK(samples_of(site.run()) == samples_of(one.run()));
  }
}

TEST_CASE("samples: a start that ends before its time, and resumes, repeats and loses no text",
          "[integration][samples][P3]") {
  const RunSite site;
  const Words part = joined(kSampled, {"run.steps_per_job=7"});
  CHECK(site.call(RunSite::run_words(part)).exit_code == 75);
  CHECK(site.call(RunSite::run_words(part)).exit_code == 75);
  CHECK(site.call(RunSite::run_words(part)).exit_code == 0);
  CHECK(samples_of(site.run()) == samples_of(undisturbed().run()));

  // Steps that are done again have their texts in the file already.
  forget_after(site.run(), 7);
  site.train(kSampled);
  CHECK(samples_of(site.run()) == samples_of(undisturbed().run()));
  CHECK(results_of(site.run()) == results_of(undisturbed().run()));

  // Another prompt from then on.
  site.train(joined(kSampled, {"run.steps=24", R"(run.sample_prompts=["our neighbour"])"}));
  CHECK(last_of(samples_of(site.run())).starts_with("24 \"our neighbour\" "));
}

TEST_CASE("samples: a run whose rank is killed goes on, and repeats and loses no text",
          "[integration][samples][P1][P4]") {
  const Words keys =
      rank_keys(2, "full",
                joined(kSampled, {"run.steps=600", "run.sample_interval_steps=50",
                                  "run.digest_interval_steps=100", "checkpoint.interval_steps=100",
                                  "eval.interval_steps=0", "recovery.rank_loss=respawn"}));
  const RunSite unbroken;
  unbroken.train(keys);
  const RunSite site;
  // Two blocks, one lane for rank 1: it stands in step 111.
  const auto launcher = start_held(site, "1", 2 * 110 + 1, keys);
  wait_for_event(site, *launcher, "sampled", 5);
  kill_held(site, site.run(), *launcher, 2);
  const Ended ended = launcher->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(count_events(site.run(), "respawned") == 1);
  CHECK(sorted(samples_of(site.run())) == sorted(samples_of(unbroken.run())));
  CHECK(results_of(site.run()) == results_of(unbroken.run()));
}

TEST_CASE("samples: of packed chats, by adapters, a chat is answered in the data's template",
          "[integration][samples]") {
  const ChatSite site;
  const Words keys = {"objective.name=sft",
                      "run.sample_interval_steps=10",
                      "run.sample_tokens=6",
                      "lora.rank=2",
                      "run.sample_prompts=[\"Say \"]",
                      R"(run.sample_chats=["Say 3", '[{"role": "user", "content": "Say 3"}]'])"};
  site.train(keys);
  const Words samples = samples_of(site.run());
  REQUIRE(samples.size() == 9);
  const auto events = events_of(site.run(), "sampled");
  CHECK(events.at(7).at("text") == events.at(8).at("text"));  // A text is a user's message.
  const Ended ended = site.call({"generate", "runs/tiny", "--chat", "--prompt", "Say 3", "--tokens",
                                 "6", "--temperature", "0.8", "--seed", "0"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(shown(events.at(7).at("text").get<std::string>() + "\n") == shown(ended.out));

  const ChatSite ranks;
  ranks.train(rank_keys(2, "full", keys));
  CHECK(samples_of(ranks.run()) == samples);
}

TEST_CASE("samples: what cannot be sampled is one line and exit code 2, before anything starts",
          "[integration][samples]") {
  const RunSite site;
  const auto refused = [&](const Words& keys, const Words& parts) {
    check_mistake(site, RunSite::run_words(keys), parts);
    Words dry = RunSite::run_words(keys);
    dry.emplace_back("--dry-run");
    check_mistake(site, dry, parts);
  };
  refused({"run.sample_interval_steps=5"},
          {"run.sample_interval_steps is 5, but run.sample_tokens is 0"});
  refused({"run.sample_interval_steps=5", "run.sample_tokens=4", "run.sample_chats=[\"hello\"]"},
          {"run.sample_chats", "chat template"});
  const ChatSite chats;
  check_mistake(chats,
                RunSite::run_words({"objective.name=sft", "run.sample_interval_steps=5",
                                    "run.sample_tokens=4", "run.sample_chats=['[]']"}),
                {"run.sample_chats[0]", "without messages"});
  refused({"run.sample_interval_steps=5", "run.sample_tokens=4", "run.sample_prompts=[\"\"]"},
          {"run.sample_prompts", "empty text"});
  write_tokens(site, std::string(4000, '\0'));
  refused({"run.sample_interval_steps=5", "run.sample_tokens=4", "model.vocab_size=600"},
          {"run.sample_interval_steps", "tokenizer.json"});
}
