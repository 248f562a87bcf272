// What a board reads of other people's runs: status.json, and lines of metrics.jsonl and
// events.jsonl.
#include <nlohmann/json.hpp>

#include "cli/board/board_text.hpp"
#include "cli/board/run_metrics.hpp"
#include "cli/report/status_schema.hpp"
#include "cli/report/untrusted_json.hpp"
#include "tests/fuzz/scratch_directory.hpp"
#include "tests/fuzz/target.hpp"

namespace train::fuzz {
namespace {

using Json = nlohmann::ordered_json;

/// What who passed the schema may be asked for without looking.
void use(const Json& status) {
  (void)status.value("step", std::int64_t{0});
  (void)status.value("tokens_per_second", 0.0);
  (void)status.value("saved", Json::object()).value("step", std::int64_t{0});
  (void)status.value("outcome", Json::object()).value("text", std::string());
  for (const Json& rank : status.value("ranks", Json::array())) {
    (void)rank.value("host", std::string());
    for (const Json& wait : rank.value("waits", Json::array())) {
      (void)wait.value("for_s", 0.0);
    }
  }
}

void read_metrics(std::string_view text) {
  static const ScratchDirectory directory;
  const auto file = directory.put("metrics.jsonl", text);
  cli::RunMetrics metrics({.folder = file.parent_path()});
  while (metrics.read_on()) {
  }
  require(metrics.problem().empty(), "a file that is there is read");
  require(Json::accept(cli::series_json(metrics.history(), {}, "")), "a series is JSON");
  require(Json::accept(cli::expert_loads_json(metrics.experts(), {})), "loads are JSON");
}

/// The first line says which file: "metrics", or else a status or an event.
void run(std::string_view input) {
  const std::size_t end = std::min(input.find('\n'), input.size());
  const std::string_view text = input.substr(std::min(end + 1, input.size()));
  if (input.substr(0, end) == "metrics") {
    return read_metrics(text);
  }
  const auto json = cli::parse_untrusted_json(text, cli::kStatusLimits);
  if (!json) {
    return require_readable(json.error());
  }
  require(Json::accept(json->dump()), "what was read can be written");
  if (!json->is_object()) {
    return;
  }
  if (const std::string fault = cli::status_fault(*json); fault.empty()) {
    use(*json);
  } else {
    require_readable(failure(fault));
  }
}

std::vector<std::string> seeds() {
  return {
      "metrics\n{\"step\":1,\"loss\":5.5,\"unit_grad_norm\":{\"head\":2},\"tokens_per_second\":7}\n"
      "{\"event\":\"evaluation\",\"step\":1,\"val_loss\":4.5}\n",
      "status\n{\"format\":\"actortrain status\",\"version\":1,\"run\":\"a\",\"pid\":7,\"step\":1,"
      "\"saved\":{\"step\":1},\"outcome\":{\"exit_code\":0,\"text\":\"over\"},\"ranks\":[{"
      "\"rank\":0,\"host\":\"b\",\"waits\":[{\"who\":\"c\",\"what\":\"d\",\"for_s\":1.5}]}]}"};
}

}  // namespace

Target run_files_target() {
  return {"run_files",
          run,
          seeds,
          {"metrics\n", "{\"step\":", "1e300", "-0.0", "1e-310", "99999999999999999999", "null",
           "[[[[", "\"ranks\":", "\"saved\":", "\\ud800", "\xff", "\"tokens_per_second\":0,"}};
}

}  // namespace train::fuzz
