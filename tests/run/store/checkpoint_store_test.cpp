// The head's view of a run's checkpoints on disks that cannot be read, and on disks that are full.

#include "run/store/checkpoint_store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <filesystem>

#include "checkpoint/format/manifest.hpp"
#include "run/directory/run_events.hpp"
#include "tests/checkpoint/checkpoint_fixture.hpp"
#include "tests/support/disks/failing_disk.hpp"

namespace train::run {
namespace {

namespace fs = std::filesystem;
using checkpoint::checkpoint_name;
using storage::FileCallKind;
using test::SmallState;
using Names = std::vector<std::string>;
using Steps = std::vector<std::int64_t>;

/// A run in a directory, with one place or two, whose only rank has a small state.
struct StoreSite {
  test::TempDirectory directory{test::quick_directory()};
  std::unique_ptr<CheckpointStore> home;

  [[nodiscard]] fs::path project() const { return directory / "checkpoints"; }
  [[nodiscard]] fs::path local() const { return directory / "local"; }

  void open(const checkpoint::RetentionRule& keep, bool two_locations = false) {
    home.reset();  // one process has the index at a time
    CheckpointStore::Options options{.locations = {.project = project()},
                                     .index = directory / "index",
                                     .keep = keep,
                                     .tokens_per_step = 1024,
                                     .events = std::make_shared<EventLog>(directory.path()),
                                     .fields = test::fields_at(0)};
    if (two_locations) {
      options.locations.local = local();
    }
    options.surroundings.rsync.copy = [](const fs::path& from, const fs::path& to) {
      fs::copy_file(from, to, fs::copy_options::overwrite_existing);
      return Status();
    };
    auto opened = CheckpointStore::open(options);
    REQUIRE(opened);
    home = std::move(opened).value();
  }
  /// The step that a start resumes from, which its ranks have not restored yet.
  [[nodiscard]] std::int64_t find() const {
    const auto found = home->find_start();
    INFO((found ? std::string() : found.error().message));
    REQUIRE(found);
    return *found ? (*found)->step : -1;
  }
  /// The same, and they restore it.
  [[nodiscard]] std::int64_t start() const {
    const std::int64_t step = find();
    home->restored();
    return step;
  }
  [[nodiscard]] fs::path shard(std::int64_t step) const {
    return project() / checkpoint_name(step) / "shard-00000-of-00001.safetensors";
  }
  /// Writes the shard of `step`, as the rank does.
  [[nodiscard]] std::vector<ShardWritten> write(std::int64_t step) const {
    SmallState state(static_cast<float>(step));
    const auto record = checkpoint::write_shard(
        checkpoint::incoming_path(project(), home->tag(), step), state.views(), {});
    REQUIRE(record);
    return {{.step = step, .rank = 0, .record = checkpoint::shard_text(*record)}};
  }
  void save(std::int64_t step) const {
    REQUIRE(home->publish(step, write(step)));
    REQUIRE(home->record(step));
  }
  [[nodiscard]] Steps placed(const fs::path& place) const {
    const auto found = checkpoint::list_checkpoints(place);
    REQUIRE(found);
    Steps steps;
    for (const auto& candidate : *found) {
      steps.insert(steps.begin(), candidate.step);
    }
    return steps;
  }
  [[nodiscard]] Steps placed() const { return placed(project()); }
};

TEST_CASE("checkpoint_store: no run goes on from before what it cannot read",
          "[run][checkpoint_store][CK-3][P3]") {
  StoreSite site;
  site.open({});
  for (const std::int64_t step : {10, 20}) {
    site.save(step);
  }
  const int error_number = GENERATE(EIO, ESTALE, 0);
  const bool two_locations = GENERATE(false, true);
  if (two_locations) {  // an older one there is not taken in its place
    test::write_at(site.local(), 10, SmallState(10));
  }
  site.open({}, two_locations);
  const Names names = test::names_in(site.project());
  {
    const test::FailingReads reads("checkpoints/step-00000020/manifest", error_number, 0);
    const auto found = site.home->find_start();
    REQUIRE(reads.failed());
    REQUIRE_FALSE(found);
    CHECK(found.error().exit_code() == 1);
    CHECK_THAT(found.error().message, Catch::Contains("step-00000020 cannot be read"));
  }
  CHECK(test::names_in(site.project()) == names);
  CHECK(site.start() == 20);  // when it can be read again
}

TEST_CASE("checkpoint_store: what cannot be read in one place does not matter if the other has it",
          "[run][checkpoint_store][CK-9][P3]") {
  StoreSite site;
  site.open({.keep_last = 1});
  site.save(10);
  site.save(20);
  REQUIRE(site.placed() == Steps{20});
  fs::create_directories(site.local());
  fs::copy(site.project() / checkpoint_name(20), site.local() / checkpoint_name(20));
  site.open({.keep_last = 1}, true);
  const bool in_project = GENERATE(false, true);
  const test::FailingReads reads(in_project ? "checkpoints/step-00000020/shard" : "local/step-",
                                 EIO, 0);
  const auto found = site.home->find_start();
  REQUIRE(reads.failed());
  REQUIRE(found);
  CHECK((*found)->path == (in_project ? site.local() : site.project()) / checkpoint_name(20));
  CHECK(site.placed() == Steps{20});
}

TEST_CASE("checkpoint_store: what is whole nowhere before the first publication is begun anew",
          "[run][checkpoint_store][CK-9][P4]") {
  StoreSite site;
  const bool published = GENERATE(false, true);
  site.open({}, true);
  if (published) {
    site.save(10);
    fs::remove_all(site.project() / checkpoint_name(10));
  }
  // Killed before it was published: what ranks of another node wrote is not here.
  test::write_at(site.local(), 20, SmallState(20));
  for (const auto& file : fs::directory_iterator(site.local() / checkpoint_name(20))) {
    if (file.path().filename().string().starts_with("shard-")) {
      fs::remove(file.path());
    }
  }
  site.open({}, true);
  for (int start = 0; start < 2; ++start) {  // and it stays so
    const auto found = site.home->find_start();
    if (published) {
      REQUIRE_FALSE(found);
      CHECK_THAT(found.error().message, Catch::Contains("has no checkpoint any more"));
    } else {
      INFO((found ? std::string() : found.error().message));
      REQUIRE(found);
      CHECK_FALSE(*found);
    }
  }
}

TEST_CASE(
    "checkpoint_store: a start reads no byte of a tensor, but of what a local copy stands for",
    "[run][checkpoint_store][CK-3][P4]") {
  StoreSite site;
  site.open({});
  site.save(10);
  site.save(20);
  const bool two_locations = GENERATE(false, true);
  if (two_locations) {
    fs::create_directories(site.local());
    fs::copy(site.project() / checkpoint_name(20), site.local() / checkpoint_name(20));
  }
  site.open({}, two_locations);
  const test::CountedReads reads("/shard-");
  CHECK(site.start() == 20);
  const auto size = fs::file_size(site.shard(20));
  CHECK((two_locations ? reads.bytes() >= size : reads.bytes() == 0));
  CHECK(reads.bytes() < 2 * size);
  REQUIRE(site.home->find_start(checkpoint::Depth::bytes));
  CHECK(reads.bytes() >= (two_locations ? 2 : 1) * fs::file_size(site.shard(20)));
}

TEST_CASE("checkpoint_store: what a rank says is damaged is set aside only if it is",
          "[run][checkpoint_store][CK-3][P3]") {
  StoreSite site;
  site.open({});
  for (const std::int64_t step : {10, 20}) {
    site.save(step);
  }
  const auto doubted = site.home->find_start();
  REQUIRE(doubted);
  REQUIRE((*doubted)->step == 20);
  SECTION("it is not") {
    const auto damaged = site.home->set_aside_if_damaged(**doubted);
    REQUIRE(damaged);
    CHECK_FALSE(*damaged);
    CHECK(site.find() == 20);
  }
  SECTION("it is") {
    test::flip_byte(site.shard(20), fs::file_size(site.shard(20)) - 1);
    const auto damaged = site.home->set_aside_if_damaged(**doubted);
    REQUIRE(damaged);
    CHECK(*damaged);
    CHECK(site.find() == 10);
    CHECK(test::names_in(site.project()) == Names{"damaged-step-00000020", "step-00000010"});
  }
  SECTION("it cannot be read") {
    const test::FailingReads reads("checkpoints/step-00000020/shard", EIO, 1);
    const auto damaged = site.home->set_aside_if_damaged(**doubted);
    REQUIRE_FALSE(damaged);
    CHECK_THAT(damaged.error().message, Catch::Contains("step-00000020 cannot be read"));
    CHECK(site.placed() == Steps{10, 20});
  }
}

TEST_CASE("checkpoint_store: a local copy whose bytes cannot be read gives way to the project's",
          "[run][checkpoint_store][CK-9][P3]") {
  StoreSite site;
  site.open({});
  site.save(20);
  fs::create_directories(site.local());
  fs::copy(site.project() / checkpoint_name(20), site.local() / checkpoint_name(20));
  site.open({}, true);
  const auto doubted = site.home->find_start();
  REQUIRE(doubted);
  REQUIRE((*doubted)->path == site.local() / checkpoint_name(20));
  {
    const test::FailingReads reads("local/step-00000020/shard", EIO, 1);
    const auto gone = site.home->set_aside_if_damaged(**doubted);
    REQUIRE(gone);
    CHECK(*gone);
  }
  CHECK(fs::exists(site.local() / checkpoint_name(20)));
  const auto again = site.home->find_start();
  REQUIRE(again);
  CHECK((*again)->path == site.project() / checkpoint_name(20));
}

TEST_CASE("checkpoint_store: nothing goes before the ranks have restored what the run resumes from",
          "[run][checkpoint_store][CK-6][P3]") {
  StoreSite site;
  site.open({});
  for (const std::int64_t step : {10, 20, 30}) {
    site.save(step);
  }
  site.open({.keep_last = 1}, true);
  test::write_at(site.local(), 20, SmallState(20));
  const bool only_local = GENERATE(false, true);
  if (only_local) {  // a newer one, which is published first
    test::write_at(site.local(), 40, SmallState(40));
  }
  CHECK(site.find() == (only_local ? 40 : 30));
  CHECK(site.home->make_room(50) == 0);
  CHECK(site.placed() == (only_local ? Steps{10, 20, 30, 40} : Steps{10, 20, 30}));
  CHECK(site.placed(site.local()) == (only_local ? Steps{20, 40} : Steps{20}));
  site.home->restored();
  CHECK(site.placed() == (only_local ? Steps{40} : Steps{30}));
  CHECK(site.placed(site.local()) == (only_local ? Steps{40} : Steps{}));
}

TEST_CASE("checkpoint_store: where ranks restore the local copy, the project's is made whole again",
          "[run][checkpoint_store][CK-6][CK-9][P3]") {
  StoreSite site;
  site.open({});
  for (const std::int64_t step : {10, 20, 30}) {
    site.save(step);
  }
  fs::create_directories(site.local());
  fs::copy(site.project() / checkpoint_name(30), site.local() / checkpoint_name(30));
  const bool damaged = GENERATE(false, true);
  if (damaged) {
    test::flip_byte(site.shard(30), fs::file_size(site.shard(30)) - 1);
  }
  site.open({.keep_last = 2}, true);
  CHECK(site.start() == 30);
  CHECK(site.placed() == Steps{20, 30});
  CHECK(fs::exists(site.project() / "damaged-step-00000030") == damaged);
  CHECK(site.home->make_room(40) == 1);
  CHECK(site.placed() == Steps{30});
}

TEST_CASE("checkpoint_store: what the rule lets go of goes at the start",
          "[run][checkpoint_store][CK-6]") {
  StoreSite site;
  site.open({});
  for (const std::int64_t step : {10, 20, 30}) {
    site.save(step);
  }
  site.open({.keep_last = 2});
  CHECK(site.placed() == Steps{10, 20, 30});
  CHECK(site.start() == 30);
  CHECK(site.placed() == Steps{20, 30});
  const std::string events = test::read_bytes(events_path(site.directory.path()));
  CHECK(std::count(events.begin(), events.end(), '\n') == 1);
  CHECK(events.find(R"("event":"checkpoint_retired","step":10})") != std::string::npos);
}

TEST_CASE("checkpoint_store: room is made as the rule would after the save, never of the newest",
          "[run][checkpoint_store][CK-6][P3]") {
  const std::int64_t keep_last = GENERATE(0, 1, 2, 3);
  StoreSite site;
  site.open({});
  site.save(10);
  site.save(20);
  site.open({.keep_last = keep_last});
  CHECK(site.home->make_room(30) == 0);  // nothing is known to be whole yet
  CHECK(site.start() == 20);
  const bool before = keep_last == 1;  // 10 has gone at the start
  const bool goes = keep_last >= 2;    // 3 of them have no room
  CHECK(site.home->make_room(30) == (goes ? 1 : 0));
  CHECK(site.placed() == (before || goes ? Steps{20} : Steps{10, 20}));
  CHECK(site.home->make_room(30) == 0);
  site.save(30);
  CHECK(site.placed().back() == 30);
  site.open({});
  CHECK(site.start() == 30);
}

TEST_CASE("checkpoint_store: the best gives way to the newest where nothing else can",
          "[run][checkpoint_store][CK-6][P3]") {
  StoreSite site;
  site.open({.keep_last = 2, .keep_best = 1});
  for (const auto& [step, loss] : {std::pair(10, 1.0), std::pair(20, 2.0), std::pair(30, 3.0)}) {
    REQUIRE(site.home->evaluated(step, loss));
    site.save(step);
  }
  CHECK(site.placed() == Steps{10, 20, 30});
  CHECK(site.home->make_room(40) == 1);
  CHECK(site.placed() == Steps{10, 30});
  CHECK(site.home->make_room(40) == 1);
  CHECK(site.placed() == Steps{30});
  CHECK(site.home->make_room(40) == 0);
}

TEST_CASE("checkpoint_store: where the disk is full the oldest of the newest go, then the best",
          "[run][checkpoint_store][CK-6][P3]") {
  StoreSite site;
  site.open({.keep_last = 4, .keep_best = 1});
  for (const auto& [step, loss] : {std::pair(10, 1.0), std::pair(20, 2.0), std::pair(30, 3.0)}) {
    REQUIRE(site.home->evaluated(step, loss));
    site.save(step);
  }
  CHECK(site.home->make_room(40) == 1);
  CHECK(site.placed() == Steps{10, 30});
  CHECK(site.home->make_room(40) == 1);
  CHECK(site.placed() == Steps{30});
  CHECK(site.home->make_room(40) == 0);
}

TEST_CASE("checkpoint_store: landmarks, and all where all are to stay, outlive a full disk",
          "[run][checkpoint_store][CK-6][P3]") {
  const std::int64_t keep_last = GENERATE(0, 3);
  StoreSite site;
  site.open({.keep_last = keep_last, .keep_every = 10});
  for (const std::int64_t step : {10, 20}) {
    site.save(step);
  }
  CHECK(site.home->make_room(30) == 0);
  CHECK(site.placed() == Steps{10, 20});
}

TEST_CASE("checkpoint_store: a start keeps as the best what is the best on disk",
          "[run][checkpoint_store][CK-6][P3]") {
  const checkpoint::RetentionRule rule{.keep_last = 1, .keep_best = 1};
  StoreSite site;
  site.open(rule);
  for (const auto& [step, loss] : {std::pair(10, 1.0), std::pair(20, 2.0)}) {
    REQUIRE(site.home->evaluated(step, loss));
    site.save(step);
  }
  CHECK(site.placed() == Steps{10, 20});
  // Killed between the publication of an even better one and its record.
  REQUIRE(site.home->evaluated(30, 0.5));
  REQUIRE(site.home->publish(30, site.write(30)));
  site.open(rule);
  CHECK(site.start() == 30);
  CHECK(site.placed() == Steps{30});
}

TEST_CASE("checkpoint_store: a step that is evaluated and saved again may be the best",
          "[run][checkpoint_store][CK-6][P3]") {
  const checkpoint::RetentionRule rule{.keep_last = 1, .keep_best = 1};
  StoreSite site;
  site.open(rule);
  const auto pass = [&site](std::int64_t step, double loss) {
    REQUIRE(site.home->evaluated(step, loss));
    site.save(step);
  };
  pass(10, 1.0);
  pass(20, 2.0);
  pass(30, 3.0);
  CHECK(site.placed() == Steps{10, 30});
  fs::resize_file(site.shard(30), fs::file_size(site.shard(30)) - 1);
  site.open(rule);
  CHECK(site.start() == 10);
  pass(20, 0.5);  // on other rows: eval.lanes may change
  pass(30, 3.0);
  CHECK(site.placed() == Steps{20, 30});
}

TEST_CASE("checkpoint_store: a publication that meets a full disk makes room and is tried again",
          "[run][checkpoint_store][CK-6][P3]") {
  const std::int64_t keep_last = GENERATE(1, 2);
  StoreSite site;
  site.open({});
  site.save(10);
  site.save(20);
  site.open({.keep_last = keep_last});
  CHECK(site.start() == 20);
  const auto shards = site.write(30);
  {
    const test::FailingDisk disk(
        {.error_number = ENOSPC, .at = 0, .only = FileCallKind::open});  // of the manifest
    const auto published = site.home->publish(30, shards);
    CHECK(disk.failed() == 1);
    REQUIRE(published.ok() == (keep_last == 2));
    if (!published) {  // the newest verified one may not go for it
      CHECK_THAT(published.error().message, Catch::Contains("disk full"));
      CHECK(site.placed() == Steps{20});
      return;
    }
  }
  REQUIRE(site.home->record(30));
  CHECK(site.placed() == Steps{20, 30});
  site.open({.keep_last = keep_last});
  CHECK(site.start() == 30);
}

}  // namespace
}  // namespace train::run
