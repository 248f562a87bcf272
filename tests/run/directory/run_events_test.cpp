// Lines of events.jsonl.

#include "run/directory/run_events.hpp"

#include <catch2/catch.hpp>
#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "tests/support/disks/temp_directory.hpp"

namespace train::run {

TEST_CASE("run events: a line has the fields that the event has", "[run][run_events]") {
  const auto all = nlohmann::json::parse(event_line(
      {.kind = "saved", .text = "x", .step = 7, .seconds = 0.5, .size_bytes = 1ULL << 60U}));
  CHECK(all.size() == 6);
  CHECK(all.at("event") == "saved");
  CHECK(all.at("text") == "x");
  CHECK(all.at("step") == 7);
  CHECK(all.at("seconds") == 0.5);
  CHECK(all.at("size_bytes") == 1ULL << 60U);
  CHECK(all.at("unix_ms") > 1'600'000'000'000);
  const auto few = nlohmann::json::parse(event_line({.kind = "saved"}));
  CHECK(few.size() == 2);
  CHECK(stop_requested_event(SIGUSR1).text == "SIGUSR1");
}

TEST_CASE("run events: sampled texts of some steps are read back, whatever else is in the file",
          "[run][run_events][samples]") {
  const test::TempDirectory directory;
  CHECK(sampled_texts(directory.path(), 0).empty());
  const auto sampled = [](std::int64_t step, const std::string& text) {
    return event_line({.kind = kSampledEvent, .prompt = "a \"b\"", .text = text, .step = step});
  };
  test::write_bytes(events_path(directory.path()),
                    sampled(2, "x") + event_line({.kind = "sampled", .text = "no prompt"}) +
                        "{\"event\":\"sampled\",\"step\":\"4\"}\nsampled\n" + sampled(4, "y\n") +
                        sampled(6, "") + event_line({.kind = "saved", .text = "sampled"}) +
                        "{\"event\":\"sampled\",\"ste");
  const auto texts = sampled_texts(directory.path(), 4);
  REQUIRE(texts.size() == 2);
  CHECK(texts[0].step == 4);
  CHECK(texts[0].prompt == "a \"b\"");
  CHECK(texts[0].text == "y\n");
  CHECK(texts[1].step == 6);
  CHECK(texts[1].text.empty());
}

TEST_CASE("run events: two prompts with the same text are told apart by their index",
          "[run][run_events][samples]") {
  const test::TempDirectory directory;
  const auto sampled = [](std::int64_t index) {
    return event_line(
        {.kind = kSampledEvent, .index = index, .prompt = "p", .text = "t", .step = 8});
  };
  test::write_bytes(events_path(directory.path()), sampled(0) + sampled(1) + sampled(0));
  const auto texts = sampled_texts(directory.path(), 0);
  REQUIRE(texts.size() == 3);
  CHECK(texts[0] < texts[1]);
  CHECK(texts[1].index == 1);
  CHECK(texts[0] == texts[2]);
}

TEST_CASE("run events: what is no UTF-8 spoils no line", "[run][run_events]") {
  const std::string line = event_line({.kind = "rank_lost", .text = "a\xff\nb"});
  CHECK(line.find('\n') == line.size() - 1);
  CHECK(nlohmann::json::parse(line).at("text") == "a\xef\xbf\xbd\nb");
}

TEST_CASE("run events: several writers append to one file, behind half of a line too",
          "[run][run_events][P3]") {
  const test::TempDirectory directory;
  test::write_bytes(events_path(directory.path()), "{\"half");
  EventLog log(directory.path());
  log.note({.kind = "started"});
  note_event(directory.path(), stop_requested_event(SIGTERM));
  log.note({.kind = "finished"});
  std::istringstream lines(test::read_bytes(events_path(directory.path())));
  std::string kinds;
  for (std::string line; std::getline(lines, line);) {
    const auto event = nlohmann::json::parse(line, nullptr, false);
    kinds += event.is_object() ? event.at("event").get<std::string>() + " " : line + " ";
  }
  CHECK(kinds == "{\"half started stop_requested finished ");
}

}  // namespace train::run
