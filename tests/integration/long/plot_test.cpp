// `actortrain plot` with the real program, and with the real gnuplot.
#include "base/process/process.hpp"
#include "tests/integration/sites/run_site.hpp"

using namespace train::test;

namespace {

/// A big-endian number of a PNG's header.
unsigned big_endian(const std::string& bytes, std::size_t at) {
  unsigned value = 0;
  for (std::size_t i = at; i < at + 4; ++i) {
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  }
  return value;
}

}  // namespace

TEST_CASE("plot: pictures and a table of two runs", "[integration][.full][plot]") {
  const RunSite site;
  site.train({"run.name=one", "run.steps=4", "schedule.warmup_steps=1", "eval.interval_steps=2"});
  site.train({"run.name=two", "run.steps=6", "schedule.warmup_steps=1", "eval.interval_steps=2"});
  const Words before = names_in(site.path());
  const auto plotted = [&](const std::string& out, const Words& more = {}) {
    Words words = {"plot", "runs/one", "runs/two/", "--out", out};
    words.insert(words.end(), more.begin(), more.end());
    const Ended ended = site.call(words);
    INFO(ended.err);
    CHECK(ended.exit_code == 0);
    CHECK(ended.err.empty());
    return read_bytes(site / out);
  };

  const std::string table = plotted("t.csv");
  CHECK(lines_of(table).size() == 1 + 4 + 6);
  CHECK(table.starts_with("run,steps,loss\none,1,"));
  CHECK(lines_of(plotted("v.csv", {"--what", "val", "--x", "tokens"})).size() >= 1 + 2 + 3);

  REQUIRE(train::find_program("gnuplot"));  // Of packages.txt.
  const std::string png = plotted("p.png", {"--smooth", "2", "--log-x", "--x", "time"});
  REQUIRE(png.size() > 2000);
  CHECK(png.starts_with("\x89PNG\r\n\x1a\n"));
  CHECK(big_endian(png, 16) == 960);
  CHECK(big_endian(png, 20) == 600);
  CHECK(has(png.substr(png.size() - 12), "IEND"));
  const std::string svg = plotted("p.svg");
  CHECK(has(svg, ">one<"));
  CHECK(has(svg, ">two<"));
  CHECK(has(svg, "</svg>"));

  Words after = before;
  after.insert(after.end(), {"p.png", "p.svg", "t.csv", "v.csv"});
  std::sort(after.begin(), after.end());
  CHECK(names_in(site.path()) == after);

  const Ended mistake = site.call({"plot", "runs/three"});
  CHECK(mistake.exit_code == 2);
  CHECK(lines_of(mistake.err).size() == 1);
  CHECK(has(mistake.err, "runs/three: no such run"));
}
