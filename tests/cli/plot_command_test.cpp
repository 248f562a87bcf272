#include "cli/plot/plot_curves.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <any>
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "cli/options.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/processes/script.hpp"

namespace train::cli::plot_command_test {
namespace {

namespace fs = std::filesystem;
using Points = std::vector<std::pair<double, double>>;
using test::TempDirectory;
using test::write_bytes;

Result<Command> parsed(std::vector<const char*> words) {
  words.insert(words.begin(), {"actortrain", "plot"});
  return parse(static_cast<int>(words.size()), words.data());
}

PlotOptions accepted(const std::vector<const char*>& words) {
  const auto command = parsed(words);
  INFO((command.ok() ? "" : command.error().message));
  REQUIRE(command.ok());
  REQUIRE(std::any_cast<PlotOptions>(&command->options) != nullptr);
  return std::any_cast<PlotOptions>(command->options);
}

std::string refused(const std::vector<const char*>& words) {
  const auto command = parsed(words);
  REQUIRE_FALSE(command.ok());
  CHECK(command.error().exit_code() == kExitUserError);
  return command.error().message;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Three steps of 100 tokens and two evaluations, as a run writes them.
const std::string kMetrics =
    R"({"event":"evaluation","step":0,"val_loss":5.0}
{"step":1,"loss":4.0,"grad_norm":2.0,"lr":0.1,"tokens":100,"tokens_per_second":50.0}
{"step":2,"loss":3.0,"grad_norm":1.0,"lr":0.2,"tokens":200,"tokens_per_second":25.0}
{"event":"evaluation","step":2,"val_loss":3.5}
{"step":3,"loss":1.0,"grad_norm":0.5,"lr":0.3,"tokens":300,"tokens_per_second":100.0}
)";

PlotOptions options_of(const std::string& what, const std::string& x = "steps") {
  PlotOptions options;
  options.what = what;
  options.x = x;
  return options;
}

/// A directory as a run leaves it.
fs::path make_run(const TempDirectory& home, const std::string& name, const std::string& metrics) {
  fs::create_directories(home / name);
  write_bytes(home / name / "metrics.jsonl", metrics);
  return home / name;
}

TEST_CASE("plot: words of the command line", "[actors][cli][plot]") {
  const auto plain = accepted({"runs/a"});
  CHECK(plain.runs == std::vector<std::string>{"runs/a"});
  CHECK(plain.out == "loss.png");
  CHECK(plain.what == "loss");
  CHECK(plain.x == "steps");
  CHECK(plain.smooth == 1);
  CHECK_FALSE(plain.log_x);
  const auto full = accepted({"a", "b", "--out", "c.d/e.svg", "--what", "grad_norm", "--x", "time",
                              "--smooth", "20", "--log-x"});
  CHECK(full.runs == std::vector<std::string>{"a", "b"});
  CHECK(full.out == "c.d/e.svg");
  CHECK(full.what == "grad_norm");
  CHECK(full.x == "time");
  CHECK(full.smooth == 20);
  CHECK(full.log_x);
  CHECK(accepted({"a", "--what", "lr"}).out == "lr.png");
}

TEST_CASE("plot: mistakes on the command line", "[actors][cli][plot]") {
  CHECK(has(refused({}), "actortrain plot: runs is required"));
  CHECK(has(refused({"a", "--what", "los"}), "--what must be one of loss, val, grad_norm, lr"));
  CHECK(has(refused({"a", "--what", "los"}), "did you mean \"loss\"?"));
  CHECK(has(refused({"a", "--x", "hours"}), "--x must be one of steps, tokens, time"));
  for (const char* bad : {"0", "-1", "1000001", "x"}) {
    CAPTURE(bad);
    CHECK(has(refused({"a", "--smooth", bad}), "--smooth"));
  }
  for (const char* bad : {"loss", "loss.pdf", "png", "a.png/b", "loss.PNG", ".png"}) {
    CAPTURE(bad);
    CHECK(has(refused({"a", "--out", bad}), "--out must end in .png, .svg or .csv"));
  }
}

TEST_CASE("plot: every quantity over steps", "[actors][plot]") {
  CHECK(points_of(kMetrics, options_of("loss")) == Points{{1, 4}, {2, 3}, {3, 1}});
  CHECK(points_of(kMetrics, options_of("val")) == Points{{0, 5}, {2, 3.5}});
  CHECK(points_of(kMetrics, options_of("grad_norm")) == Points{{1, 2}, {2, 1}, {3, 0.5}});
  CHECK(points_of(kMetrics, options_of("lr")) == Points{{1, 0.1}, {2, 0.2}, {3, 0.3}});
}

TEST_CASE("plot: tokens and time, also of evaluations", "[actors][plot]") {
  CHECK(points_of(kMetrics, options_of("loss", "tokens")) == Points{{100, 4}, {200, 3}, {300, 1}});
  CHECK(points_of(kMetrics, options_of("val", "tokens")) == Points{{0, 5}, {200, 3.5}});
  // 100 tokens each at 50, 25 and 100 tokens/s.
  CHECK(points_of(kMetrics, options_of("loss", "time")) == Points{{2, 4}, {6, 3}, {7, 1}});
  CHECK(points_of(kMetrics, options_of("val", "time")) == Points{{0, 5}, {6, 3.5}});
  auto logarithmic = options_of("val", "time");
  logarithmic.log_x = true;
  CHECK(points_of(kMetrics, logarithmic) == Points{{6, 3.5}});
}

TEST_CASE("plot: lines that are cut, foreign or without a number are left out", "[actors][plot]") {
  const auto loss = options_of("loss");
  for (std::size_t cut = 0; cut < kMetrics.size(); ++cut) {
    // Never half a number: whatever is cut, what is left are points of the whole.
    const Points whole = points_of(kMetrics, loss);
    const Points points = points_of(kMetrics.substr(0, cut), loss);
    CAPTURE(cut);
    REQUIRE(points.size() <= whole.size());
    REQUIRE(std::equal(points.begin(), points.end(), whole.begin()));
  }
  const std::string odd =
      "\n[1]\nnull\n{}\n{\"step\":\"1\",\"loss\":1}\n{\"step\":4,\"loss\":null}\n"
      "{\"step\":5,\"loss\":\"2\"}\n{\"step\":6,\"loss\":1e999}\n";
  CHECK(points_of(odd, loss).empty());
  CHECK(points_of(odd + kMetrics, loss).size() == 3);
}

TEST_CASE("plot: of a step measured twice the later value counts", "[actors][plot]") {
  const std::string again =
      R"({"step":2,"loss":2.5,"tokens":200,"tokens_per_second":100.0}
{"step":3,"loss":null,"tokens":300,"tokens_per_second":100.0}
{"step":4,"loss":0.5,"tokens":400,"tokens_per_second":100.0}
)";
  CHECK(points_of(kMetrics + again, options_of("loss")) == Points{{1, 4}, {2, 2.5}, {4, 0.5}});
  CHECK(points_of(kMetrics + again, options_of("loss", "time")) ==
        Points{{2, 4}, {3, 2.5}, {5, 0.5}});
}

TEST_CASE("plot: smoothing is the mean of the points up to each", "[actors][plot]") {
  auto two = options_of("loss");
  two.smooth = 2;
  CHECK(points_of(kMetrics, two) == Points{{1, 4}, {2, 3.5}, {3, 2}});
  two.smooth = 100;
  const Points all = points_of(kMetrics, two);
  REQUIRE(all.size() == 3);
  CHECK(all.back().second == Approx(8.0 / 3.0));
  std::string many;  // The numbers 1 .. 20, after one that would swallow them.
  for (int step = 0; step <= 20; ++step) {
    many += fmt::format("{{\"step\":{},\"loss\":{}}}\n", step, step == 0 ? 1e30 : step);
  }
  for (std::int64_t window = 1; window <= 7; ++window) {
    CAPTURE(window);
    two.smooth = window;
    const Points points = points_of(many, two);
    REQUIRE(points.size() == 21);
    for (std::size_t i = static_cast<std::size_t>(window); i <= 20; ++i) {
      CHECK(points[i].second == static_cast<double>(i) - static_cast<double>(window - 1) / 2.0);
    }
  }
}

TEST_CASE("plot: runs are named after their directories", "[actors][plot]") {
  const TempDirectory home;
  auto options = options_of("loss");
  options.runs = {make_run(home, "x/a", kMetrics).string() + "/",
                  make_run(home, "x/b", kMetrics).string() + "/../b/."};
  auto curves = read_curves(options);
  REQUIRE(curves.ok());
  CHECK((*curves)[0].name == "a");
  CHECK((*curves)[1].name == "b");
  options.runs.push_back(make_run(home, "y/a", kMetrics).string());
  curves = read_curves(options);
  REQUIRE(curves.ok());
  CHECK((*curves)[0].name == options.runs[0]);
  CHECK((*curves)[1].name == "b");
  CHECK((*curves)[2].name == options.runs[2]);
}

TEST_CASE("plot: CSV has a line a point and all digits", "[actors][plot]") {
  const TempDirectory home;
  auto options = options_of("loss", "time");
  options.runs = {
      make_run(home, "a,\"b\"", "{\"step\":1,\"loss\":0.1}\n{\"step\":2,\"loss\":3}\n").string()};
  options.out = (home / "t.csv").string();
  const Status written = write_plot(options);
  INFO((written ? "" : written.error().message));
  REQUIRE(written);
  CHECK(test::read_bytes(options.out) ==
        fmt::format("run,seconds,loss\n\"a,\"\"b\"\"\",{0},0.1\n\"a,\"\"b\"\"\",{0},{1}\n", 0.0,
                    3.0));
}

TEST_CASE("plot: the script holds the points; names are no commands in it", "[actors][plot]") {
  auto options = options_of("loss");
  options.out = "a.png";
  const std::vector<Curve> curves = {{.name = "it's\n`rm`", .points = {{1, 2.5}, {2, 1.5}}},
                                     {.name = "b_1", .points = {{1, 3}}}};
  std::string script = script_of(curves, options, "/x y/p'q");
  CHECK(has(script, fmt::format("$curve0 << END\n{} {}\n{} {}\nEND\n", 1.0, 2.5, 2.0, 1.5)));
  CHECK(has(script, "set terminal pngcairo "));
  CHECK(has(script, "noenhanced"));
  CHECK(has(script, "set output '/x y/p''q'\n"));
  CHECK(has(script, "title 'it''s `rm`'"));
  CHECK(has(script, "title 'b_1'\n"));
  CHECK_FALSE(has(script, "logscale"));
  options.out = "a.svg";
  options.log_x = true;
  script = script_of(curves, options, "p");
  CHECK(has(script, "set terminal svg "));
  CHECK(has(script, "set logscale x\n"));
}

TEST_CASE("plot: marks of an axis say different things, however little values differ",
          "[actors][plot]") {
  auto options = options_of("lr");
  options.out = "a.png";
  std::string script =
      script_of({{.name = "a", .points = {{1, 0.0029999}, {4, 0.003}}}}, options, "p");
  CHECK(has(script, "'0.0029999' 0.0029999, "));
  CHECK(has(script, "'0.003' 0.003)\n"));
  CHECK(has(script, "set xrange [1:4]\nset xtics ('1' 1, "));
  script = script_of({{.name = "a", .points = {{1, 0.003}, {2, 0.003}}}}, options, "p");
  CHECK(has(script, "set ytics ('0.003' 0.003)\n"));
}

TEST_CASE("plot: mistakes name the run and leave nothing", "[actors][plot]") {
  const TempDirectory home;
  const auto mistake = [&](PlotOptions options) {
    options.out = options.out.empty() ? (home / "p.png").string() : options.out;
    const Status written = write_plot(options);
    REQUIRE_FALSE(written);
    CHECK(written.error().exit_code() == kExitUserError);
    CHECK_FALSE(has(written.error().message, "\n"));
    return written.error().message;
  };
  auto options = options_of("loss");
  options.runs = {(home / "nothing").string()};
  CHECK(has(mistake(options), "nothing: no such run"));
  fs::create_directories(home / "empty");
  options.runs = {(home / "empty").string()};
  CHECK(has(mistake(options), "empty/metrics.jsonl: no metrics"));
  options.runs = {make_run(home, "a", "{\"step\":1,\"loss\":2}\n").string()};
  options.what = "val";
  CHECK(has(mistake(options), "metrics.jsonl: no values of \"val_loss\"; the run has eval."));
  options.what = "loss";
  options.out = (home / "no" / "p.png").string();
  CHECK(has(mistake(options), "no"));
  fs::create_directories(home / "d.png");
  options.out = (home / "d.png").string();
  CHECK(has(mistake(options), "is a directory"));
  options.out.clear();
  {
    const test::EnvironmentVariable no_programs("PATH", "/nonexistent");
    CHECK(has(mistake(options), "install the Debian package gnuplot-nox"));
  }
  CHECK(test::names_in(home.path()) == std::vector<std::string>{"a", "d.png", "empty"});
}

TEST_CASE("plot: what gnuplot says against it is passed on", "[actors][plot]") {
  const TempDirectory home;
  fs::create_directories(home / "bin");
  write_bytes(home / "bin" / "gnuplot", "#!/bin/sh\necho 'no font today' >&2\nexit 3\n");
  fs::permissions(home / "bin" / "gnuplot", fs::perms::owner_all);
  auto options = options_of("loss");
  options.runs = {make_run(home, "a", kMetrics).string()};
  options.out = (home / "p.png").string();
  write_bytes(options.out, "before");
  const test::EnvironmentVariable path("PATH", (home / "bin").string());
  const Status written = write_plot(options);
  REQUIRE_FALSE(written);
  CHECK(written.error().exit_code() == kExitFailure);
  CHECK(has(written.error().message, "not drawn: gnuplot: exit code 3: no font today"));
  CHECK(test::read_bytes(options.out) == "before");
  CHECK(test::names_in(home.path()) == std::vector<std::string>{"a", "bin", "p.png"});
}

}  // namespace
}  // namespace train::cli::plot_command_test
