// Runs of an earlier version can be resumed (CONTRIBUTING.md). earlier/VERSION: a run of that
// version that stopped after half of its steps on two ranks, strategy full, and its tokens.

#include <catch2/catch.hpp>

#include "tests/integration/sites/run_site.hpp"

using namespace train;
using namespace train::test;

TEST_CASE("earlier: a run of version 0.1 is verified, exported and resumed",
          "[integration][earlier][CK-1]") {
  const RunSite site;
  const fs::path from = fs::path(ACTORTRAIN_SOURCE_DIR) / "tests/integration/earlier/0.1";
  fs::create_directories(site / "runs");
  fs::copy(from / "run", site / "runs/run", fs::copy_options::recursive);
  fs::copy(from / "tokens", site / "data", fs::copy_options::recursive);
  fs::copy_file(from / "run.toml", site / "run.toml");
  CHECK(site.call({"checkpoints", "verify", "runs/run"}).exit_code == 0);
  CHECK(site.call({"export", "runs/run", "--out", "exported"}).exit_code == 0);
  const auto ranks = GENERATE(1, 2);
  const Ended ended =
      site.call({"run", "run.toml", "--set", fmt::format("parallel.ranks={}", ranks), "--json"});
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(site.call({"verify", "runs/run"}).exit_code == 0);  // Its index was rebuilt.
  const Words lines = lines_of(read_bytes(site / "runs/run/metrics.jsonl"));
  const auto last = nlohmann::json::parse(last_of(lines));
  CHECK(last.at("step") == 8);
  // The loss that version 0.1 reached. Bits may differ between versions.
  CHECK(last.at("val_loss").get<double>() == Approx(5.506254645905747).epsilon(1e-3));
}
