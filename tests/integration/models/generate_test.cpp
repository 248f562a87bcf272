// `actortrain generate` with the real program.

#include "tests/integration/event_log.hpp"

using namespace train::test;

namespace {

const RunSite& generating_site() {
  static const RunSite site;
  static const Ended ended = site.train();
  return site;
}

std::string text_of(Words words) {
  words.insert(words.begin(),
               {"generate", "runs/tiny", "--prompt", "the river ", "--tokens", "40"});
  const Ended ended = generating_site().call(std::move(words));
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.err.empty());
  return ended.out;
}

void check_refused(Words words, const Words& parts) {
  const Ended ended = generating_site().call(std::move(words));
  INFO(ended.err);
  CHECK(ended.exit_code == 2);
  CHECK(ended.out.empty());
  CHECK(lines_of(ended.err).size() == 1);
  for (const std::string& part : parts) {
    CHECK(has(ended.err, part));
  }
}

}  // namespace

TEST_CASE("generate: the prompt is echoed and a seed decides the text",
          "[integration][.full][generate]") {
  const std::string first = text_of({"--seed", "1"});
  CHECK(first.starts_with("the river "));
  CHECK(first.size() == 10 + 40 + 1);  // a byte a token, and the line's end
  CHECK(text_of({"--seed", "1"}) == first);
  CHECK(text_of({"--seed", "2"}) != first);
}

TEST_CASE("generate: temperature 0 takes no chances", "[integration][.full][generate]") {
  const std::string first = text_of({"--seed", "1", "--temperature", "0"});
  CHECK(text_of({"--seed", "2", "--temperature", "0"}) == first);
  CHECK(text_of({"--seed", "3", "--top-k", "1"}) == first);
}

TEST_CASE("generate: a checkpoint can be chosen", "[integration][.full][generate]") {
  const std::string newest = text_of({"--seed", "1"});
  CHECK(text_of({"--seed", "1", "--step", "20"}) == newest);
  CHECK(text_of({"--seed", "1", "--step", "10"}) != newest);
}

TEST_CASE("generate: mistakes are one line and exit code 2", "[integration][generate]") {
  check_refused({"generate", "runs/none"}, {"runs/none", "no such directory"});
  check_refused({"generate", "tiny.toml"}, {"tiny.toml", "not a run directory"});
  check_refused({"generate", "runs/tiny", "--step", "11"}, {"--step 11", "10", "20"});
}

TEST_CASE("generate: works while the run goes on", "[integration][.full][generate]") {
  const RunSite site;
  const auto run = site.start_run(
      {"run.steps=1000000", "checkpoint.interval_steps=3", "checkpoint.keep_last=2"});
  wait_for_event(site, *run, "checkpoint_published");
  for (int i = 0; i < 3; ++i) {
    const Ended ended = site.call({"generate", "runs/tiny", "--tokens", "3"});
    INFO(ended.err);
    CHECK(ended.exit_code == 0);
    CHECK_FALSE(has(ended.err, "damaged"));
  }
  CHECK(run->running());
}

TEST_CASE("generate: works without the data", "[integration][.full][generate]") {
  const RunSite site;
  fs::copy(prepared_data(), site / "data");
  site.write_config("data");
  site.train({"run.steps=2", "schedule.warmup_steps=0"});
  fs::remove_all(site / "data");
  const Ended ended = site.call({"generate", "runs/tiny", "--tokens", "3"});
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(ended.out.size() == 3 + 1);
}

TEST_CASE("generate: an interrupt ends it", "[integration][.full][generate]") {
  const auto process = generating_site().start({"generate", "runs/tiny", "--tokens", "100000000"});
  REQUIRE(process->until([&] { return process->out().size() > 10; }));
  process->send(SIGINT);
  const Ended ended = process->wait();
  CHECK((ended.signal == SIGINT || ended.exit_code == 130));
}
