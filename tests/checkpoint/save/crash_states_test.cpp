// Power cuts: every state in which one can leave the disk during a save, by a model of the disk.

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <functional>
#include <string>

#include "checkpoint/index/index.hpp"
#include "checkpoint/load/reader.hpp"
#include "tests/checkpoint/save/crash_states.hpp"
#include "tests/checkpoint/save/save_fixture.hpp"
#include "tests/support/processes/script.hpp"

using namespace train;
using namespace train::checkpoint;
using train::test::CrashingDisk;
using train::test::CrashState;
using train::test::CrashStates;
using train::test::locations_beside;
using train::test::MemoryStore;
using train::test::RecordedCall;
using train::test::RecordingDisk;
using train::test::RememberingStore;
using train::test::SaveRequest;
using train::test::SmallState;
using train::test::state_at;
using train::test::TempDirectory;
namespace fs = std::filesystem;

namespace {

// What one save does from a state with checkpoints of `before`; the newest of those is old.
struct Scenario {
  std::vector<std::int64_t> before = {10, 20};
  std::int64_t step = 30;
  std::int64_t ranks = 2;
  std::int64_t rows = 1000;
  RetentionRule rule = {.keep_last = 1};
  std::function<void(const fs::path& checkpoints)> meddle = [](const fs::path&) {};
  std::function<Result<WriteOutcome>(const SaveRequest& request)> write = test::write_in_place;
  bool two_locations = false;
};

void save(const Scenario& scenario, CheckpointIndex& index, const fs::path& checkpoints,
          std::int64_t step) {
  REQUIRE(index.note(step, CheckpointState::writing));
  const SaveRequest request = {.checkpoints = checkpoints,
                               .step = step,
                               .ranks = scenario.ranks,
                               .rows = scenario.rows,
                               .index_head = index.head()};
  const auto written = scenario.write(request);
  REQUIRE(written);
  storage::file_point("published", checkpoints);
  REQUIRE(test::record_save(request, *written, index, scenario.rule));
}

// All of a checkpoint's numbers, restored.
std::vector<float> restored(const FoundCheckpoint& found, std::int64_t rows) {
  SmallState state = state_at(-1, rows);
  auto views = state.views();
  REQUIRE(restore(found.candidate.path, found.manifest, views));
  return state.all_values();
}

// The same for the local place; a newer checkpoint that is only there is published.
std::string local_defect(const fs::path& checkpoints, SearchReport& published,
                         const Scenario& scenario) {
  const Locations places = locations_beside(checkpoints);
  const auto found = find_newest(places.local);
  if (!found) {
    return "search of the local place fails: " + found.error().message;
  }
  if (!found->set_aside.empty()) {
    return "finds damage in the local place: " + found->set_aside[0];
  }
  if (!found->newest) {
    return {};
  }
  const std::int64_t step = found->newest->candidate.step;
  if (step != scenario.step && (scenario.before.empty() || step != scenario.before.back())) {
    return fmt::format("finds step {} in the local place", step);
  }
  if (restored(*found->newest, scenario.rows) != state_at(step, scenario.rows).all_values()) {
    return fmt::format("mixes into step {} of the local place", step);
  }
  if (!published.newest || published.newest->candidate.step < step) {
    const Status status =
        publish_local(places, "next", found->newest->candidate, found->newest->manifest, {});
    if (!status) {
      return "cannot publish the local checkpoint: " + status.error().message;
    }
    published = find_newest(checkpoints).value();
    if (!published.newest || published.newest->candidate.step != step) {
      return "the local checkpoint is not there after its publication";
    }
  }
  return {};
}

// What is wrong with a state: empty if a start finds the old or the new checkpoint there, whole,
// the index agrees, and the next save works.
std::string defect_of(const CrashState& state, const Scenario& scenario) {
  const TempDirectory home(test::quick_directory());
  const fs::path checkpoints = home / "checkpoints";
  fs::create_directory(checkpoints);
  test::materialise(state.tree, home.path());
  auto found = find_newest(checkpoints);
  if (!found) {
    return "search fails: " + found.error().message;
  }
  const std::int64_t old = scenario.before.empty() ? -1 : scenario.before.back();
  const std::int64_t newest = found->newest ? found->newest->candidate.step : -1;
  if (newest != scenario.step && (state.published || newest != old)) {
    return fmt::format("finds step {}", newest);
  }
  if (!found->set_aside.empty()) {
    return "finds damage: " + found->set_aside[0];
  }
  if (found->newest &&
      restored(*found->newest, scenario.rows) != state_at(newest, scenario.rows).all_values()) {
    return fmt::format("mixes into step {}", newest);
  }
  if (scenario.two_locations) {
    if (const std::string defect = local_defect(checkpoints, *found, scenario); !defect.empty()) {
      return defect;
    }
  }
  MemoryStore store;
  store.content = *state.store;
  auto index = CheckpointIndex::open(store, checkpoints);
  if (!index) {
    return "index fails: " + index.error().message;
  }
  const std::int64_t start = found->newest ? found->newest->candidate.step : -1;
  const auto placed = list_checkpoints(checkpoints);
  const auto committed = index->committed();
  if (!placed || placed->size() != committed.size() ||
      (start >= 0 && committed.back().step != start) || index->report().rebuilt) {
    return fmt::format("the index has {} checkpoints, {}", committed.size(),
                       index->report().rebuilt ? index->report().reason : "not those in place");
  }
  save(scenario, *index, checkpoints, scenario.step + 10);
  const auto next = find_newest_read_only(checkpoints);
  if (!next || !next->newest || next->newest->candidate.step != scenario.step + 10) {
    return "the next save is not found";
  }
  const std::vector<std::string> names = test::names_in(checkpoints);
  if (scenario.two_locations) {
    const auto local = test::names_in(locations_beside(checkpoints).local);
    if (local != std::vector<std::string>{checkpoint_name(scenario.step + 10)}) {
      return fmt::format("the local place keeps {} entries", local.size());
    }
  }
  for (const std::string& name : names) {
    if (name.starts_with('.')) {
      return "leaves " + name;
    }
  }
  return {};
}

struct Outcome {
  std::size_t calls = 0;
  std::size_t cuts = 0;
  std::size_t states = 0;
  std::vector<std::string> defects;
};

Outcome crash_everywhere(const Scenario& scenario, const Scenario& recovery) {
  const TempDirectory home(test::quick_directory());
  const fs::path checkpoints = home / "checkpoints";
  fs::create_directory(checkpoints);
  RememberingStore store;
  store.mark = checkpoints;
  auto index = CheckpointIndex::open(store, checkpoints);
  REQUIRE(index);
  for (const std::int64_t step : scenario.before) {
    Scenario earlier = scenario;
    earlier.rule = {};
    save(earlier, *index, checkpoints, step);
  }
  scenario.meddle(checkpoints);
  store.contents = {store.store.content};
  store.synced = 0;
  const CrashingDisk before(home.path());
  std::vector<RecordedCall> calls;
  {
    const RecordingDisk recording(home.path());
    save(scenario, *index, checkpoints, scenario.step);
    calls = recording.calls();
  }
  const CrashStates states(before, calls, store.contents);
  Outcome outcome{calls.size(), states.cuts(), states.all().size(), {}};
  for (const CrashState& state : states.all()) {
    if (const std::string defect = defect_of(state, recovery); !defect.empty()) {
      outcome.defects.push_back(fmt::format("{}: {}", state.name, defect));
    }
  }
  return outcome;
}

void require_no_defect(const char* what, const Scenario& scenario) {
  const Outcome outcome = crash_everywhere(scenario, scenario);
  fmt::print("crash states, {}: {} calls, {} power cuts, {} different states, {} with a defect\n",
             what, outcome.calls, outcome.cuts, outcome.states, outcome.defects.size());
  INFO((outcome.defects.empty() ? std::string() : outcome.defects[0]));
  CHECK(outcome.states > 30);
  CHECK(outcome.defects.size() == 0);
}

}  // namespace

TEST_CASE("crash states: a power cut during a save leaves the old checkpoint or the new one",
          "[checkpoint][crash][CK-1][CK-2][CK-6][CK-7][exhaustive]") {
  require_no_defect("2 ranks, one retired", {});
  require_no_defect("the first checkpoint", {.before = {}, .step = 10, .ranks = 1});
  require_no_defect("nothing retired", {.before = {10, 20}, .rule = {}});
  // 4.8 MB: two pieces past the page cache and a rest.
  require_no_defect("in pieces", {.before = {10}, .step = 20, .ranks = 1, .rows = 200'000});
}

TEST_CASE("crash states: a power cut during a save in two places leaves each place whole",
          "[checkpoint][.full][crash][CK-1][CK-2][CK-6][CK-7][exhaustive]") {
  // Thousands of copies: by something quicker to start than rsync.
  const TempDirectory programs;
  const auto copy = test::write_script(
      programs / "copy", "while [ $# -gt 2 ]; do shift; done\nexec cp -- \"$1\" \"$2\"");
  const test::EnvironmentVariable rsync("ACTORTRAIN_RSYNC", copy.string());
  Scenario scenario;
  scenario.write = test::write_in_two_locations;
  scenario.two_locations = true;
  require_no_defect("two places, 2 ranks, one retired", scenario);
  scenario.before = {};
  require_no_defect("two places, the first checkpoint", scenario);
}

TEST_CASE("crash states: a save over a damaged checkpoint of its step leaves nothing half",
          "[checkpoint][crash][CK-1][CK-3]") {
  Scenario scenario;
  scenario.before = {10, 20};
  scenario.meddle = [](const fs::path& checkpoints) {
    fs::create_directory(checkpoints / "step-00000030");
    test::write_bytes(checkpoints / "step-00000030/manifest.json", "{}");
  };
  const Outcome outcome = crash_everywhere(scenario, scenario);
  // The damaged one itself is found, by name, until it has been set aside; nothing else is wrong.
  CHECK(outcome.states > 30);
  for (const std::string& defect : outcome.defects) {
    INFO(defect);
    REQUIRE_THAT(defect,
                 Catch::Contains(": finds damage: ") && Catch::Contains("/step-00000030: "));
  }
}

TEST_CASE("crash states: the model finds a writer that forgets to sync", "[checkpoint][crash]") {
  // The product's own calls, but for the syncs of one kind.
  class Forgetful final : public storage::FileCallHook {
   public:
    explicit Forgetful(storage::FileCallKind kind)
        : kind_(kind), outer_(storage::install_file_call_hook(this)) {}
    ~Forgetful() override { storage::install_file_call_hook(outer_); }
    int before(storage::FileCall& call) override { return outer_->before(call); }
    void after(const storage::FileCall& call, int error_number) override {
      if (call.kind != kind_) {
        outer_->after(call, error_number);
      }
    }

   private:
    storage::FileCallKind kind_;
    storage::FileCallHook* outer_;
  };
  const auto forgotten =
      GENERATE(storage::FileCallKind::sync, storage::FileCallKind::sync_directory);
  Scenario forgetful;
  forgetful.write = [forgotten](const SaveRequest& request) {
    if (request.step != 30) {
      return test::write_in_place(request);
    }
    const Forgetful hook(forgotten);
    return test::write_in_place(request);
  };
  REQUIRE_FALSE(crash_everywhere(forgetful, Scenario{}).defects.empty());
}
