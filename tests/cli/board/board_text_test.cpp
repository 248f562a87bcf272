#include "cli/board/board_text.hpp"

#include <catch2/catch.hpp>
#include <limits>
#include <nlohmann/json.hpp>

namespace train::cli::board_text_test {

using Json = nlohmann::json;

TEST_CASE("board text: a series is JSON with a list a quantity", "[board]") {
  MetricHistory history;
  const auto loss = history.column("loss");
  const auto odd = history.column("a \"name\"\n\xff");
  history.add(*loss, 0, 2.0);
  history.add(*loss, 2, 1.23456789);
  history.add(*odd, 1, -1e-30);
  const Json json = Json::parse(series_json(history, {}, ",\"damaged_lines\":3"));
  CHECK(json.at("first") == 0);
  CHECK(json.at("width") == 1);
  CHECK(json.at("last_step") == 2);
  CHECK(json.at("damaged_lines") == 3);
  CHECK(json.at("columns").at("loss") ==
        Json::parse(R"({"mean":[2,null,1.23456789],"newest":1.23456789})"));
  CHECK(json.at("columns").size() == 2);
}

TEST_CASE("board text: only what is not known yet is sent, if the bins are as wide", "[board]") {
  MetricHistory history;
  const auto loss = history.column("loss");
  for (int step = 0; step < 5000; ++step) {
    history.add(*loss, step, step);
  }
  REQUIRE(history.width() == 4);
  const Json all = Json::parse(series_json(history, {}, ""));
  const auto bins = all.at("columns").at("loss").at("mean").size();
  CHECK(bins == 1250);
  CHECK(all.at("columns").at("loss").at("max").at(1249) == 4999);
  const Json news = Json::parse(series_json(history, {.since = 4990, .since_width = 4}, ""));
  CHECK(news.at("first") == 4988);
  // A person reads the last step's number, not the mean of its bin.
  CHECK(all.at("columns").at("loss").at("newest") == 4999);
  CHECK(news.at("columns").at("loss").at("newest") == 4999);
  CHECK(news.at("columns").at("loss").at("min") == Json::parse("[4988,4992,4996]"));
  CHECK(Json::parse(series_json(history, {.since = 4990, .since_width = 2}, "")) == all);
  CHECK(Json::parse(series_json(history, {.since = 5000, .since_width = 4}, "")) == all);
}

TEST_CASE("board text: OpenMetrics has a gauge a quantity and an end", "[board]") {
  RunGauges run;
  run.run = "a\"b\\c\nd";
  run.running = true;
  run.step = 12;
  run.loss = 2.5;
  run.val_loss = std::numeric_limits<double>::quiet_NaN();
  const std::string text = open_metrics_text({run});
  CHECK(text.find("# TYPE actortrain_step gauge\n") != std::string::npos);
  CHECK(text.find("actortrain_step{run=\"a\\\"b\\\\c\\nd\"} 12\n") != std::string::npos);
  CHECK(text.find("actortrain_loss{run=\"a\\\"b\\\\c\\nd\"} 2.5\n") != std::string::npos);
  CHECK(text.find("actortrain_validation_loss{") == std::string::npos);
  CHECK(text.find("actortrain_running{run=\"a\\\"b\\\\c\\nd\"} 1\n") != std::string::npos);
  CHECK(text.ends_with("# EOF\n"));
}

}  // namespace train::cli::board_text_test
