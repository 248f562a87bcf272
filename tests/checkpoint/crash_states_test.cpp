// Power cuts: every state in which one can leave the disk during a save, by a model of the disk.

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <functional>
#include <set>
#include <string>

#include "checkpoint/index.hpp"
#include "checkpoint/reader.hpp"
#include "checkpoint/retention.hpp"
#include "storage/atomic_file.hpp"
#include "storage/digest.hpp"
#include "tests/checkpoint/checkpoint_fixture.hpp"
#include "tests/support/crashing_disk.hpp"
#include "tests/support/memory_store.hpp"

using namespace train;
using namespace train::checkpoint;
using train::test::CrashingDisk;
using train::test::MemoryStore;
using train::test::RecordedCall;
using train::test::RecordingDisk;
using train::test::SmallState;
using train::test::TempDirectory;
using train::test::UnsyncedBytes;
using train::test::UnsyncedEntries;
namespace fs = std::filesystem;

namespace {

using StoreContent = std::map<std::string, std::string, std::less<>>;

constexpr std::array kBytes = {UnsyncedBytes::kept,      UnsyncedBytes::lost,
                               UnsyncedBytes::torn_512,  UnsyncedBytes::torn_4096,
                               UnsyncedBytes::holed_512, UnsyncedBytes::holed_4096,
                               UnsyncedBytes::garbage};

// Large enough for tensors that are torn in their middle.
SmallState state_at(std::int64_t step) { return SmallState(static_cast<float>(step), 1000); }

// A store that remembers what it held after each of its writes, and marks them among the disk's.
class RememberingStore final : public storage::KvStore {
 public:
  Result<std::optional<std::string>> get(std::string_view key) override { return store.get(key); }
  Status write(const storage::WriteBatch& batch, storage::Durability durability) override {
    TRAIN_RETURN_IF_ERROR(store.write(batch, durability));
    contents.push_back(store.content);
    if (durability == storage::Durability::synced) {
      synced = contents.size() - 1;
    }
    storage::file_point(fmt::format("store {} {}", contents.size() - 1, synced), mark);
    return {};
  }
  Status scan(std::string_view prefix, const Visitor& visitor) override {
    return store.scan(prefix, visitor);
  }

  MemoryStore store;
  fs::path mark;
  std::vector<StoreContent> contents = {{}};
  std::size_t synced = 0;
};

// Where a save goes, and the index's head that its manifest carries.
struct SaveRequest {
  fs::path checkpoints;
  std::int64_t step = 0;
  std::int64_t ranks = 1;
  std::string index_head;
};

WriteOutcome write_in_place(const SaveRequest& request) {
  auto incoming = IncomingCheckpoint::create(request.checkpoints, request.step);
  REQUIRE(incoming);
  SmallState state = state_at(request.step);
  std::vector<ShardRecord> shards;
  for (std::int64_t rank = 0; rank < request.ranks; ++rank) {
    auto shard = incoming->write_shard(state.views_of(rank, request.ranks), {rank, request.ranks});
    REQUIRE(shard);
    shards.push_back(*shard);
  }
  auto fields = test::fields_at(request.step);
  fields.index_head = request.index_head;
  auto written = incoming->publish(fields, shards);
  REQUIRE(written);
  return *written;
}

// What one save does from a state with checkpoints of `before`; the newest of those is old.
struct Scenario {
  std::vector<std::int64_t> before = {10, 20};
  std::int64_t step = 30;
  std::int64_t ranks = 2;
  RetentionRule rule = {.keep_last = 1};
  std::function<void(const fs::path& checkpoints)> meddle = [](const fs::path&) {};
  std::function<WriteOutcome(const SaveRequest& request)> write = write_in_place;
};

void save(const Scenario& scenario, CheckpointIndex& index, const fs::path& checkpoints,
          std::int64_t step) {
  REQUIRE(index.note(step, CheckpointState::writing));
  const auto written = scenario.write({checkpoints, step, scenario.ranks, index.head()});
  storage::file_point("published", checkpoints);
  REQUIRE(index.commit(entry_of(written.manifest, written.manifest_digest)));
  for (const std::int64_t old : to_retire(index.committed(), scenario.rule)) {
    REQUIRE(retire(checkpoints, old));
    REQUIRE(index.retire(old));
  }
}

// One state of disk and store after a power cut.
struct CrashState {
  std::string name;
  std::map<std::string, std::string> tree;
  const StoreContent* store = nullptr;
  bool published = false;  // the save had been reported as done
};

std::string identity(const CrashState& state) {
  std::string text = state.published ? "new" : "any";
  const auto add = [&text](const auto& entries) {
    for (const auto& [key, value] : entries) {
      text += fmt::format("|{}={}", key, storage::digest_text(value));
    }
  };
  add(state.tree);
  add(*state.store);
  return storage::digest_text(text);
}

// What a recorded save can leave: each prefix of its calls, with what a power cut makes of it.
class CrashStates {
 public:
  CrashStates(const CrashingDisk& before, const std::vector<RecordedCall>& calls,
              const std::vector<StoreContent>& contents)
      : disk_(before), contents_(contents) {
    add_cuts("before all calls");
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const RecordedCall& call = calls[i];
      disk_.apply(call);
      published_ = published_ || call.to == "published";
      if (call.to.starts_with("store ")) {
        std::sscanf(call.to.c_str(), "store %zu %zu", &now_, &synced_);
      }
      add_cuts(fmt::format("after call {} ({} {} {})", i, storage::name_of(call.kind), call.path,
                           call.to));
    }
  }

  [[nodiscard]] const std::vector<CrashState>& all() const { return states_; }
  [[nodiscard]] std::size_t cuts() const { return cuts_; }

 private:
  void add_cuts(const std::string& when) {
    std::vector<UnsyncedEntries> entries = {{UnsyncedEntries::Mode::all, 0},
                                            {UnsyncedEntries::Mode::none, 0}};
    for (std::size_t which = 0; disk_.pending_entries() > 1 && which < disk_.pending_entries();
         ++which) {
      entries.push_back({UnsyncedEntries::Mode::only, which});
      entries.push_back({UnsyncedEntries::Mode::all_but, which});
    }
    for (const UnsyncedEntries& entry : entries) {
      for (const UnsyncedBytes bytes : kBytes) {
        for (const std::size_t store : std::set<std::size_t>{now_, synced_}) {
          ++cuts_;
          CrashState state{fmt::format("{}, entries {}.{}, bytes {}, store {}", when,
                                       static_cast<int>(entry.mode), entry.which,
                                       static_cast<int>(bytes), store),
                           disk_.after_power_cut(entry, bytes), &contents_[store], published_};
          if (seen_.insert(identity(state)).second) {
            states_.push_back(std::move(state));
          }
        }
      }
    }
  }

  CrashingDisk disk_;
  const std::vector<StoreContent>& contents_;
  std::size_t now_ = 0;
  std::size_t synced_ = 0;
  bool published_ = false;
  std::size_t cuts_ = 0;
  std::vector<CrashState> states_;
  std::set<std::string> seen_;
};

// All of a checkpoint's numbers, restored.
std::vector<float> restored(const FoundCheckpoint& found) {
  SmallState state = state_at(-1);
  auto views = state.views();
  REQUIRE(restore(found.candidate.path, found.manifest, views));
  return state.all_values();
}

// What is wrong with a state: empty if a start finds the old or the new checkpoint there, whole,
// the index agrees, and the next save works.
std::string defect_of(const CrashState& state, const Scenario& scenario) {
  const TempDirectory home(test::quick_directory());
  const fs::path checkpoints = home / "checkpoints";
  fs::create_directory(checkpoints);
  test::materialise(state.tree, home.path());
  const auto found = find_newest(checkpoints);
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
  if (found->newest && restored(*found->newest) != state_at(newest).all_values()) {
    return fmt::format("mixes into step {}", newest);
  }
  MemoryStore store;
  store.content = *state.store;
  auto index = CheckpointIndex::open(store, checkpoints);
  if (!index) {
    return "index fails: " + index.error().message;
  }
  const auto placed = list_checkpoints(checkpoints);
  const auto committed = index->committed();
  if (!placed || placed->size() != committed.size() ||
      (newest >= 0 && committed.back().step != newest) || index->report().rebuilt) {
    return fmt::format("the index has {} checkpoints, {}", committed.size(),
                       index->report().rebuilt ? index->report().reason : "not those in place");
  }
  save(scenario, *index, checkpoints, scenario.step + 10);
  const auto next = find_newest_read_only(checkpoints);
  if (!next || !next->newest || next->newest->candidate.step != scenario.step + 10) {
    return "the next save is not found";
  }
  for (const std::string& name : test::names_in(checkpoints)) {
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
    save({.before = {}, .rule = {}}, *index, checkpoints, step);
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
  CHECK(outcome.states > 50);
  CHECK(outcome.defects.size() == 0);
}

}  // namespace

TEST_CASE("crash states: a power cut during a save leaves the old checkpoint or the new one",
          "[checkpoint][crash][CK-1][CK-2][CK-6][CK-7]") {
  require_no_defect("2 ranks, one retired", {});
  require_no_defect("the first checkpoint", {.before = {}, .step = 10, .ranks = 1});
  require_no_defect("nothing retired", {.before = {10, 20}, .rule = {}});
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
  CHECK(outcome.states > 50);
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
      return write_in_place(request);
    }
    const Forgetful hook(forgotten);
    return write_in_place(request);
  };
  REQUIRE_FALSE(crash_everywhere(forgetful, Scenario{}).defects.empty());
}
