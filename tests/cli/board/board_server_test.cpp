#include "cli/board/board_server.hpp"

#include <catch2/catch.hpp>
#include <chrono>
#include <deque>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/board/board_runs.hpp"
#include "cli/board/watched_run.hpp"
#include "run/directory/run_events.hpp"
#include "run/report/run_status.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/processes/http_client.hpp"
#include "tests/support/runs/hostile_runs.hpp"

namespace train::cli::board_server_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using test::HttpClient;

/// A run's directory and a server that shows it.
struct Site {
  test::TempDirectory home;
  fs::path run = home / "a run";

  Site() {
    fs::create_directory(run);
    test::write_bytes(run / "config.toml", "x");
    test::write_bytes(
        run / "metrics.jsonl",
        "{\"step\":1,\"loss\":5.5,\"lr\":0.1}\n{\"step\":2,\"loss\":4.5,\"lr\":0.2}\n");
    say(2);
    run::note_event(run, {.kind = "started", .text = "step=0"});
  }
  void say(std::int64_t step) const {
    run::RunStatus status;
    status.phase = "running";
    status.progress.step = step;
    run::StatusFile file(run, run::status_base("a run", 100));
    REQUIRE(file.write(status));
  }
  [[nodiscard]] std::unique_ptr<BoardServer> serve(BoardOptions options = {}) const {
    if (options.root.empty()) {
      options.root = run;
    }
    auto server = BoardServer::start(options);
    INFO((server ? std::string() : server.error().message));
    REQUIRE(server);
    return std::move(server).value();
  }
};

int status_of(const std::string& url, const std::string& request) {
  HttpClient client(url);
  client.send(request);
  const std::string text = client.receive("\r\n\r\n");
  return text.size() > 12 ? std::stoi(text.substr(9, 3)) : 0;
}

}  // namespace

TEST_CASE("board server: status, numbers, runs, metrics and the page", "[board]") {
  const Site site;
  const auto server = site.serve();
  const auto& url = server->url();
  const Json status = Json::parse(HttpClient::get(url, "/status.json").body);
  CHECK(status.at("run") == "a run");
  CHECK(status.at("step") == 2);
  CHECK(status.at("condition") == "running");
  const Json series = Json::parse(HttpClient::get(url, "/series.json?run=a+run").body);
  CHECK(series.at("columns").at("loss").at("mean") == Json::parse("[null,5.5,4.5]"));
  const Json range = Json::parse(HttpClient::get(url, "/series.json?from=2&to=2").body);
  CHECK(range.at("columns").at("lr").at("mean") == Json::parse("[0.2]"));
  const Json runs = Json::parse(HttpClient::get(url, "/runs.json").body);
  CHECK(runs.at("runs").at(0).at("loss") == 4.5);
  const auto metrics = HttpClient::get(url, "/metrics");
  CHECK(metrics.head.find("application/openmetrics-text") != std::string::npos);
  CHECK(metrics.body.find("actortrain_loss{run=\"a run\"} 4.5\n") != std::string::npos);
  const auto page = HttpClient::get(url, "/");
  CHECK(page.status == 200);
  CHECK(page.head.find("text/html; charset=utf-8") != std::string::npos);
  CHECK(page.head.find("Content-Security-Policy: default-src 'none'") != std::string::npos);
  CHECK(page.body.find("<title>ActorTrain</title>") != std::string::npos);
  for (const char* file : {"/board.js", "/charts.js", "/ranks.js", "/experts.js", "/format.js",
                           "/board.css", "/dygraph.min.js", "/dygraph.min.css"}) {
    INFO(file);
    CHECK(HttpClient::get(url, file).status == 200);
  }
}

TEST_CASE("board server: a file that a start has cut is sent as a whole", "[board]") {
  const Site site;
  const auto server = site.serve();
  const auto series = [&](const std::string& known) {
    return Json::parse(HttpClient::get(server->url(), "/series.json?width=1" + known).body);
  };
  const Json before = series("");
  const auto known = [](std::int64_t since, const Json& answer) {
    return fmt::format("&since={}&reading={}", since, answer.at("reading").get<std::int64_t>());
  };
  CHECK(series(known(2, before)).at("first") == 2);
  // The next start goes on at step 1, and is past step 2 again when the page asks.
  test::write_bytes(site.run / "metrics.jsonl",
                    "{\"step\":1,\"loss\":7.5}\n{\"step\":2,\"loss\":6.5}\n");
  const Json after = series(known(2, before));
  CHECK(after.at("first") == 0);
  CHECK(after.at("columns").at("loss").at("mean") == Json::parse("[null,7.5,6.5]"));
  CHECK(after.at("reading") > before.at("reading"));
  CHECK(series(known(2, after)).at("first") == 2);
}

TEST_CASE("board server: events of a run that was begun anew void those before", "[board]") {
  const Site site;
  const auto server = site.serve();
  HttpClient client(server->url());
  client.send("GET /events?run=a%20run HTTP/1.1\r\nHost: localhost\r\n\r\n");
  client.receive("\"event\":\"started\"");
  test::write_bytes(site.run / "new", "{\"unix_ms\":1,\"event\":\"started\",\"text\":\"anew\"}\n");
  fs::rename(site.run / "new", site.run / "events.jsonl");
  const std::string text = client.receive("anew");
  CHECK(text.find("event: restart\n") < text.find("anew"));
}

TEST_CASE("board server: loads of experts, a step at a time", "[board]") {
  const Site site;
  const auto server = site.serve();
  CHECK(Json::parse(HttpClient::get(server->url(), "/series.json").body).at("expert_steps") == 0);
  CHECK(Json::parse(HttpClient::get(server->url(), "/experts.json").body).at("steps").empty());
  std::ofstream(site.run / "metrics.jsonl", std::ios::app)
      << "{\"step\":3,\"loss\":2.5,\"expert_load\":[[0,2],[1.5,0.5]]}\n"
         "{\"step\":4,\"loss\":2.25,\"expert_load\":[[1,1],[1,1]]}\n";
  CHECK(Json::parse(HttpClient::get(server->url(), "/series.json").body).at("expert_steps") == 2);
  const Json third = Json::parse(HttpClient::get(server->url(), "/experts.json?step=3").body);
  CHECK(third == Json::parse(R"({"steps":[3,4],"step":3,"loads":[[0,2],[1.5,0.5]]})"));
  const Json newest = Json::parse(HttpClient::get(server->url(), "/experts.json?run=a+run").body);
  CHECK(newest.value("step", 0) == 4);
  CHECK(HttpClient::get(server->url(), "/experts.json?run=unknown").status == 404);
}

TEST_CASE("board server: events come while they happen", "[board]") {
  const Site site;
  const auto server = site.serve();
  HttpClient client(server->url());
  client.send("GET /events?run=a%20run HTTP/1.1\r\nHost: localhost\r\n\r\n");
  CHECK(client.receive("\"event\":\"started\"").find("text/event-stream") != std::string::npos);
  run::note_event(site.run, {.kind = "rank_lost", .text = "rank 1 was killed"});
  CHECK(client.receive("rank 1 was killed").find("event: log\ndata: {") != std::string::npos);
  site.say(3);
  CHECK(client.receive("\"step\":3").find("event: status\ndata: {") != std::string::npos);
  fs::remove_all(site.run);
  client.receive("\"error\":");  // said of the status; the server goes on
  CHECK(HttpClient::get(server->url(), "/runs.json").status == 200);
}

TEST_CASE("board server: a folder's runs come and go", "[board]") {
  const Site site;
  const auto server = site.serve({.root = site.home.path()});
  CHECK(HttpClient::get(server->url(), "/status.json?run=a%20run").status == 200);
  fs::create_directory(site.home / "second");
  test::write_bytes(site.home / "second/config.toml", "x");
  std::string runs;
  while (runs.find("\"second\"") == std::string::npos) {  // the test's own limit ends this
    runs = HttpClient::get(server->url(), "/runs.json").body;
  }
  CHECK(HttpClient::get(server->url(), "/status.json").status == 404);
  CHECK(HttpClient::get(server->url(), "/status.json?run=../a%20run").status == 404);
  CHECK(HttpClient::get(server->url(), "/series.json?run=second").status == 200);
}

TEST_CASE("board server: it only reads, and says no to all else", "[board]") {
  const Site site;
  const auto server = site.serve();
  const auto& url = server->url();
  const std::string host = "Host: localhost\r\n";
  CHECK(status_of(url, "POST /status.json HTTP/1.1\r\n" + host + "\r\n") == 405);
  CHECK(status_of(url, "DELETE / HTTP/1.1\r\n" + host + "\r\n") == 405);
  CHECK(status_of(url, "GET / HTTP/1.1\r\n" + host + "Content-Length: 9\r\n\r\n") == 413);
  CHECK(status_of(url, "GET / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nzz\r\n") ==
        413);
  CHECK(status_of(url, "GET /etc/passwd HTTP/1.1\r\n" + host + "\r\n") == 404);
  CHECK(status_of(url, "GET /../../etc/passwd HTTP/1.1\r\n" + host + "\r\n") == 404);
  CHECK(status_of(url, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n") == 403);
  CHECK(status_of(url, "GET / HTTP/1.1\r\n\r\n") == 403);
  CHECK(status_of(url, "GET /?a=%zz HTTP/1.1\r\n" + host + "\r\n") == 400);
  // Not HTTP, and more header than it takes: closed without a word.
  CHECK(status_of(url, "hello\r\n\r\n") == 0);
  CHECK(status_of(url, "GET / HTTP/1.1\r\nX: " + std::string(100'000, 'x') + "\r\n\r\n") == 0);
  CHECK(HttpClient::get(url, "/").status == 200);
}

TEST_CASE("board server: no page shows it in a frame but those that are named", "[board]") {
  const Site site;
  const auto alone = site.serve();
  for (const char* const target : {"/", "/runs.json", "/absent"}) {
    const std::string head = HttpClient::get(alone->url(), target).head;
    INFO(target);
    CHECK(head.find("X-Frame-Options: DENY") != std::string::npos);
    CHECK(head.find("frame-ancestors 'none'") != std::string::npos);
  }
  const auto named = site.serve({.frame_ancestors = "http://localhost:*  vscode-webview:"});
  for (const char* const target : {"/", "/runs.json", "/absent"}) {
    const std::string head = HttpClient::get(named->url(), target).head;
    INFO(target);
    CHECK(head.find("X-Frame-Options") == std::string::npos);
    CHECK(head.find("; frame-ancestors http://localhost:* vscode-webview:\r\n") !=
          std::string::npos);
  }
  const auto refused =
      BoardServer::start({.root = site.run, .frame_ancestors = "http://a\r\nX-Other: 1"});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().exit_code() == 2);
}

TEST_CASE("board server: silent connections make room for others", "[board]") {
  const Site site;
  const auto server = site.serve();
  std::deque<HttpClient> silent;
  for (int connection = 0; connection < 400; ++connection) {
    silent.emplace_back(server->url());
    silent.back().send("GET /");
  }
  CHECK(HttpClient::get(server->url(), "/status.json").status == 200);
}

TEST_CASE("board server: who comes with many connections takes the place of his own", "[board]") {
  const Site site;
  const auto server = site.serve();
  HttpClient other(server->url(), "127.0.0.2");  // the first, so the one that is silent longest
  std::deque<HttpClient> many;
  for (int connection = 0; connection < 300; ++connection) {
    many.emplace_back(server->url());
    many.back().send("GET /");
  }
  for (const std::size_t gone : {0, 40, 90}) {  // the last for the 283rd, of 256 in all
    CHECK_THAT(many.at(gone).receive(), !Catch::Contains("HTTP"));
    REQUIRE(other.send("GET /runs.json HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    CHECK_THAT(other.receive("]}"), Catch::Contains("\"a run\""));
  }
}

TEST_CASE("board server: a token is asked for where there is one", "[board]") {
  const Site site;
  const auto file = site.home / "token";
  test::write_bytes(file, "0123456789abcdef\n");
  fs::permissions(file, fs::perms::owner_read);
  const auto server = site.serve({.root = {}, .token_file = file.string()});
  const auto& url = server->url();
  CHECK(HttpClient::get(url, "/status.json").status == 403);
  CHECK(HttpClient::get(url, "/status.json", "Authorization: Bearer 0123456789abcdef\r\n").status ==
        200);
  const auto moved = HttpClient::get(url, "/?token=0123456789abcdef");
  CHECK(moved.status == 303);
  CHECK(moved.head.find("Location: /\r\n") != std::string::npos);
  for (const char* other : {"//evil.example/", "/\\evil.example", "/%2f/evil.example", "//"}) {
    INFO(other);
    const auto refused = HttpClient::get(url, std::string(other) + "?token=0123456789abcdef");
    CHECK(refused.status == 404);
    CHECK(refused.head.find("Location") == std::string::npos);
  }
  CHECK(moved.head.find("Set-Cookie: actortrain_token_80=0123456789abcdef; Path=/; HttpOnly; "
                        "SameSite=Strict") != std::string::npos);
  CHECK(HttpClient::get(url, "/", "Cookie: actortrain_token_80=0123456789abcdef\r\n").status ==
        200);
}

TEST_CASE("board server: mistakes are one line", "[board]") {
  const Site site;
  const auto taken = site.serve();
  const auto message = [&](BoardOptions options) {
    options.root = options.root.empty() ? site.run : options.root;
    options.key = "status.listen";
    const auto server = BoardServer::start(options);
    REQUIRE_FALSE(server);
    CHECK(server.error().exit_code() == 2);
    CHECK(server.error().message.find('\n') == std::string::npos);
    return server.error().message;
  };
  const std::string address = taken->url().substr(7, taken->url().size() - 8);
  CHECK(message({.root = {}, .listen = address}).find("already in use; choose another") !=
        std::string::npos);
  CHECK(message({.root = {}, .listen = "203.0.113.7:0", .token_file = ""})
            .find("others can reach this address") != std::string::npos);
  CHECK(message({.root = site.home / "absent"}).find("no such directory") != std::string::npos);
  const auto file = site.home / "token";
  test::write_bytes(file, "0123456789abcdef\n");
  fs::permissions(file, fs::perms::owner_read);
  CHECK(message({.root = {}, .listen = "203.0.113.7:0", .token_file = file.string()})
            .find("Cannot assign requested address") != std::string::npos);
}

TEST_CASE("watched run: what others wrote is said and harms nothing else", "[board]") {
  const Site site;
  for (const test::HostileRun& hostile :
       test::make_hostile_runs(site.home / "runs", site.home / "private")) {
    INFO(hostile.name);
    WatchedRun run({.folder = site.home / "runs", .below = hostile.name});
    run.look(surroundings_now());
    CHECK_THAT(run.status_json(), Catch::Contains(hostile.said) && Catch::Contains(hostile.name) &&
                                      !Catch::Contains("424242"));
    CHECK(Json::parse(run.status_json()).is_object());
    CHECK(Json::parse(run.summary_json()).at("name") == hostile.name);
    CHECK(run.events().size() == (hostile.name == "hostile lines" ? 1 : 0));
  }
}

TEST_CASE("watched run: numbers that nobody can draw are left out", "[board]") {
  const Site site;
  (void)test::make_hostile_runs(site.home / "runs", site.home / "private");
  RunMetrics metrics({.folder = site.home / "runs", .below = "hostile lines"});
  while (metrics.read_on()) {
  }
  CHECK(metrics.damaged_lines() == 2);
  const Json series = Json::parse(series_json(metrics.history(), {}, ""));
  CHECK(series.at("lost") == 1);
  CHECK(series.at("last_step") == -1);
}

TEST_CASE("board runs: of a folder without end those that came first stay", "[board]") {
  const Site site;
  for (std::size_t run = 0; run < BoardRuns::kMostRuns + 50; ++run) {
    const fs::path directory = site.home / ("run" + std::to_string(run));
    fs::create_directory(directory);
    test::write_bytes(directory / "config.toml", "x");
  }
  auto runs = BoardRuns::open(site.home.path());
  REQUIRE(runs);
  CHECK(runs->all().size() == BoardRuns::kMostRuns);
  CHECK(Json::parse(runs->json()).at("left_out") == true);
  const std::string kept = runs->all().front()->name();
  fs::remove_all(site.home / runs->all().back()->name());
  runs->look_at_folder();
  CHECK(runs->all().size() == BoardRuns::kMostRuns);
  CHECK(runs->find(kept) != nullptr);
}

TEST_CASE("watched run: the newest numbers come line by line, also of a file that was cut",
          "[board]") {
  const Site site;
  WatchedRun run({.folder = site.run});
  Surroundings here = surroundings_now();
  const auto loss_of = [&](const std::string& lines) {
    test::write_bytes(site.run / "metrics.jsonl", lines);
    here.now += std::chrono::hours(1);  // Past the rest after a slow look.
    run.look(here);
    return run.gauges().loss;
  };
  const std::string first = "{\"step\":1,\"loss\":5.5}\n";
  const std::string second = first + "{\"step\":2,\"loss\":4.5}\n";
  CHECK(loss_of(second) == 4.5);
  CHECK(loss_of(second + "{\"step\":3,\"lo") == 4.5);
  CHECK(loss_of(second + "{\"step\":3,\"loss\":3.5}\n") == 3.5);
  CHECK(loss_of(first) == 5.5);
  CHECK(loss_of(second) == 4.5);
  // Of many lines at once the end is enough.
  std::string many = second;
  for (int step = 3; step < 9000; ++step) {
    many += "{\"step\":" + std::to_string(step) + ",\"loss\":2.5}\n";
  }
  CHECK(loss_of(many + "{\"step\":9000,\"loss\":1.5}\n") == 1.5);
}

TEST_CASE("watched run: the newest numbers stand beside the loads of many experts", "[board]") {
  const Site site;
  std::string layer = "[1.234";
  for (int expert = 1; expert < 256; ++expert) {
    layer += ",1.234";
  }
  std::string layers = layer + "]";
  for (int at = 1; at < 61; ++at) {
    layers += "," + layer + "]";
  }
  std::string lines;
  for (int step = 1; step <= 5; ++step) {
    lines += "{\"step\":" + std::to_string(step) + ",\"loss\":" + std::to_string(9 - step) +
             ",\"expert_load\":[" + layers + "]}\n";
  }
  test::write_bytes(
      site.run / "metrics.jsonl",
      lines + "{\"step\":6,\"loss\":1.5,\"expert_load\":[" + layers.substr(0, 90'000));
  WatchedRun run({.folder = site.run});
  run.look(surroundings_now());
  CHECK(run.gauges().loss == 4.0);
}

TEST_CASE("watched run: the time line of a run that is dead is read from its file", "[board]") {
  const Site site;
  const std::vector<std::string> kinds = {
      "checkpoint_copied",  "checkpoint_local", "checkpoint_verified", "checkpoint_published",
      "checkpoint_retired", "stalled",          "stall_over",          "sample"};
  for (const std::string& kind : kinds) {
    run::note_event(site.run, {.kind = kind, .text = "x", .step = 4});
  }
  WatchedRun run({.folder = site.run});
  run.look(surroundings_now());
  std::vector<std::string> seen;
  for (const WatchedRun::Event& event : run.events()) {
    seen.push_back(Json::parse(event.json).at("event"));
  }
  REQUIRE(seen.size() == kinds.size() + 1);
  CHECK(seen.front() == "started");
  CHECK(std::vector(seen.begin() + 1, seen.end()) == kinds);
}

}  // namespace train::cli::board_server_test
