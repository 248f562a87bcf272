// `actortrain board` over the runs of several people, some of whom mean harm.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/process/descriptor.hpp"
#include "run/directory/run_events.hpp"
#include "run/report/run_status.hpp"
#include "tests/integration/sites/run_site.hpp"
#include "tests/support/processes/contained.hpp"
#include "tests/support/processes/http_client.hpp"
#include "tests/support/runs/hostile_runs.hpp"

using namespace train::test;
using train::Descriptor;
namespace run = train::run;

namespace {

/// A run that goes on, as its own process would write it, and a board that shows its folder.
class WatchedFolder {
 public:
  WatchedFolder() {
    fs::create_directories(healthy());
    write_bytes(healthy() / "config.toml", "x");
    step(1);
  }
  [[nodiscard]] fs::path folder() const { return home_ / "runs"; }
  [[nodiscard]] fs::path outside() const { return home_ / "private"; }
  [[nodiscard]] fs::path healthy() const { return folder() / "healthy"; }
  void step(std::int64_t step) {
    run::RunStatus status;
    status.phase = "running";
    status.progress.step = step;
    REQUIRE(status_.write(status));
    run::note_event(healthy(), {.kind = "evaluation", .text = fmt::format("step {}.", step)});
    std::ofstream(healthy() / "metrics.jsonl", std::ios::app)
        << fmt::format("{{\"step\":{},\"loss\":{}.5}}\n", step, step);
  }
  void serve() {
    board_.emplace(std::vector<std::string>{program(), "board", folder().string()});
    REQUIRE(comes_true([this] { return board_->out().ends_with("/\n"); }));
    url_ = board_->out().substr(0, board_->out().size() - 1);
  }
  [[nodiscard]] const std::string& url() const { return url_; }
  [[nodiscard]] Process& board() { return *board_; }
  [[nodiscard]] nlohmann::json get(const std::string& target) const {
    return nlohmann::json::parse(HttpClient::get(url_, target).body);
  }
  /// Most memory that the board has held, in bytes.
  [[nodiscard]] std::uint64_t peak_bytes() {
    std::ifstream file(fmt::format("/proc/{}/status", board_->pid()));
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("VmHWM:")) {
        return std::stoull(line.substr(6)) << 10U;
      }
    }
    return 0;
  }

 private:
  TempDirectory home_;
  run::StatusFile status_{home_ / "runs/healthy", run::status_base("healthy", 100)};
  std::optional<Process> board_;
  std::string url_;
};

std::string with_spaces(std::string name) {
  std::replace(name.begin(), name.end(), ' ', '+');
  return name;
}

/// Asks for `target` and reads nothing.
Descriptor slow_reader(const std::string& url, const std::string& target) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int small = 4096;
  REQUIRE(::setsockopt(socket.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
  sockaddr_in there = {};
  there.sin_family = AF_INET;
  there.sin_port = htons(static_cast<std::uint16_t>(std::stoi(url.substr(url.rfind(':') + 1))));
  there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(socket.get(), reinterpret_cast<sockaddr*>(&there), sizeof there) == 0);
  const std::string request = "GET " + target + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
  REQUIRE(::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(request.size()));
  return socket;
}

}  // namespace

TEST_CASE("board: hostile runs cost their own lines, and the healthy one streams on",
          "[integration][board]") {
  WatchedFolder site;
  const auto hostile = make_hostile_runs(site.folder(), site.outside());
  site.serve();
  HttpClient stream(site.url());
  stream.send("GET /events?run=healthy HTTP/1.1\r\nHost: localhost\r\n\r\n");
  std::string seen = stream.receive("\"step\":1,");
  for (const HostileRun& run : hostile) {
    INFO(run.name);
    const std::string name = "?run=" + with_spaces(run.name);
    const auto status = HttpClient::get(site.url(), "/status.json" + name);
    CHECK(status.status == 200);
    CHECK_THAT(status.body, Catch::Contains(run.said));
    if (run.name != "endless files") {
      CHECK(HttpClient::get(site.url(), "/series.json" + name).status == 200);
    }
    HttpClient events(site.url());
    events.send("GET /events" + name + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    CHECK_THAT(events.receive("event: status"), Catch::Contains("text/event-stream"));
  }
  for (const int step : {2, 3}) {
    site.step(step);
    stream.receive(fmt::format("\"step {}.\"", step));
  }
  const auto runs = site.get("/runs.json").at("runs");
  CHECK(runs.size() == hostile.size() + 1);
  const std::string all = runs.dump() + HttpClient::get(site.url(), "/metrics").body;
  CHECK_THAT(all, !Catch::Contains("424242"));
  CHECK(site.get("/status.json?run=healthy").at("step") == 3);
  CHECK(site.get("/series.json?run=healthy").at("last_step") == 3);
  CHECK(site.board().running());
}

TEST_CASE("board: 250 readers that read nothing hold at most 64 MB",
          "[integration][.full][board]") {
  WatchedFolder site;
  std::ofstream metrics(site.healthy() / "metrics.jsonl");
  for (int step = 1; step <= 4096; ++step) {
    metrics << "{\"step\":" << step;
    for (int quantity = 0; quantity < 100; ++quantity) {
      metrics << fmt::format(",\"q{}\":{}", quantity, step * 1.000001 + quantity);
    }
    metrics << "}\n";
  }
  metrics.close();
  site.serve();
  const auto series = HttpClient::get(site.url(), "/series.json?run=healthy");
  REQUIRE(series.body.size() > 3'000'000);
  const std::uint64_t before = site.peak_bytes();
  std::vector<Descriptor> readers;
  for (int reader = 0; reader < 250; ++reader) {  // for sixteen different answers
    readers.push_back(slow_reader(
        site.url(), fmt::format("/series.json?run=healthy&width=4&since={}", 4 * (reader % 16))));
  }
  // Somebody else comes through meanwhile, and what he is told is new.
  CHECK(comes_true([&] { return HttpClient::get(site.url(), "/runs.json").status == 200; }));
  site.step(5000);
  CHECK(comes_true([&] { return site.get("/status.json?run=healthy").at("step") == 5000; }));
  CHECK(comes_true([&] {
    return HttpClient::get(site.url(), "/series.json?run=healthy&width=4&since=8000").status == 200;
  }));
  const std::uint64_t held = site.peak_bytes() - before;
  INFO(fmt::format("held at most {:.1f} MB", static_cast<double>(held) * 1e-6));
  if (!sanitized()) {
    CHECK(held <= 64'000'000);
  }
}
