#pragma once

#include <utility>

#include "tests/integration/sites/held_runs.hpp"
#include "tests/support/inputs/packed_rows.hpp"

// Runs of one objective on packed rows, and what must hold of each.
namespace train::test {

/// A site whose run trains on rows/.
struct RowSite : RunSite {
  explicit RowSite(const RowSet& rows) {
    write_rows(path() / "rows", rows);
    write_config("rows");
  }
};

/// metrics.jsonl of the unbroken run of one rank.
inline Words row_results(const RowSet& rows, const Words& keys) {
  const RowSite site(rows);
  site.train(keys);
  return results_of(site.run());
}

/// The same on 2 and 3 ranks.
inline void check_ranks(const RowSet& rows, const Words& keys, const Words& results) {
  for (const auto& [ranks, strategy] : {std::pair(2, "full"), std::pair(3, "none")}) {
    CAPTURE(ranks, strategy);
    const RowSite site(rows);
    site.train(joined(rank_keys(ranks, strategy), keys));
    CHECK(results_of(site.run()) == results);
  }
}

/// Kills a run in the middle of its step 11, with a checkpoint of step 8 in place. REQUIRES: `keys`
/// save every 4 steps, of 3 lanes of 2 blocks.
inline void kill_in_step_11(const RowSite& site, const Words& keys) {
  const auto run = start_held(site, "head", 63, keys);
  const bool saved = run->until(
      [&] { return fs::exists(site.run() / "checkpoints/step-00000008/manifest.json"); });
  REQUIRE(saved);
  run->send(SIGKILL);
  CHECK(run->wait().signal == SIGKILL);
  let_go(site);
}

/// What `actortrain` says of the site's run, which must find nothing wrong.
inline Ended check_called(const RowSite& site, const Words& words) {
  Ended ended = site.call(words);
  INFO(ended.out << ended.err);
  CHECK(ended.exit_code == 0);
  return ended;
}

}  // namespace train::test
