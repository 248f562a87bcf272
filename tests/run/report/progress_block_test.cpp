#include "run/report/progress_block.hpp"

#include <catch2/catch.hpp>
#include <cmath>

namespace train::run {

TEST_CASE("progress block: a curve from the least to the most value", "[report]") {
  CHECK(sparkline({1.0, 2.0, 8.0}, 10) == "▁▂█");
  CHECK(sparkline({9.0, 1.0, 2.0, 8.0}, 3) == "▁▂█");
  CHECK(sparkline({3.0, 3.0}, 10) == "▁▁");
  CHECK(sparkline({1.0, std::nan(""), 2.0}, 10) == "▁!█");
  CHECK(sparkline({}, 10).empty());
}

TEST_CASE("progress block: what it says, and who is waited for", "[report]") {
  ProgressView view;
  view.step = 25;
  view.steps = 100;
  view.ranks = 2;
  view.remaining_s = 75.0;
  view.losses = {3.0, 2.5};
  view.grad_norm = 0.5;
  view.lr = 1e-3;
  view.tokens_per_second = 12'345.0;
  view.mfu = 0.42;
  auto lines = progress_block(view, 80);
  REQUIRE(lines.size() == 3);
  CHECK(lines[0].find("25/100  25 %  ETA 1m15s") != std::string::npos);
  CHECK(lines[0].rfind("████", 0) == 0);
  CHECK(lines[1] == "loss 2.5000  grad norm 0.500  lr 1.00e-03  █▁");
  CHECK(lines[2].find("tokens/s  MFU 42 %  2 ranks  no checkpoint yet") != std::string::npos);
  view.saved = "checkpoint at step 20";
  view.stalled = "rank 0 waits for gather #3, rank 1 is silent";
  lines = progress_block(view, 40);
  REQUIRE(lines.size() == 4);
  CHECK(lines[3] == "stands still: rank 0 waits for gather #3");
}

TEST_CASE("progress block: a run that has not begun has one", "[report]") {
  CHECK(progress_block({}, 20).size() == 3);
}

}  // namespace train::run
