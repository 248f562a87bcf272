#include "checkpoint/save/first_identity.hpp"

#include <catch2/catch.hpp>

#include "checkpoint/save/retention.hpp"
#include "tests/checkpoint/save/save_fixture.hpp"
#include "tests/support/disks/memory_store.hpp"

using namespace train;
using namespace train::checkpoint;
using train::test::names_in;
using train::test::read_bytes;
using train::test::SmallState;
using train::test::TempDirectory;
using train::test::write_bytes;

namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

const std::string kMine(32, 'a');
const std::string kTheirs(32, 'b');

/// A checkpoint that names `run_id`.
fs::path save(const fs::path& checkpoints, std::int64_t step, const std::string& run_id) {
  const auto written = test::write_at(checkpoints, step, SmallState(static_cast<float>(step)));
  Manifest manifest = written.manifest;
  manifest.fields.run_id = run_id;
  write_bytes(written.path / kManifestFileName, manifest_text(manifest));
  return written.path;
}

GivenIdentity given_to(const TempDirectory& run) {
  const auto given = give_identity(run.path(), {run / "checkpoints", run / "local"}, kMine);
  REQUIRE(given.ok());
  return *given;
}

}  // namespace

TEST_CASE("identity: a run gets one at its first start and keeps it",
          "[checkpoint][identity][CK-11]") {
  const TempDirectory run;
  CHECK(new_run_id() != new_run_id());
  CHECK(is_run_id(new_run_id()));
  const auto first = given_to(run);
  CHECK((first.given && first.identity.id == kMine));
  const auto again = give_identity(run.path(), {run / "checkpoints"}, kTheirs);
  REQUIRE(again.ok());
  CHECK_FALSE(again->given);
  CHECK(again->identity.id == kMine);
}

TEST_CASE("identity: one whose file was lost is that of the newest checkpoint",
          "[checkpoint][identity][CK-11]") {
  const TempDirectory run;
  save(run / "checkpoints", 10, "");
  save(run / "checkpoints", 20, kTheirs);
  save(run / "local", 30, std::string(32, 'c'));  // may be anybody's
  const auto given = given_to(run);
  CHECK(given.identity.id == kTheirs);
  CHECK(given.adopted == Names{(run / "checkpoints/step-00000010").string()});
}

TEST_CASE("identity: checkpoints of earlier versions are adopted once",
          "[checkpoint][identity][CK-11]") {
  const TempDirectory run;
  const fs::path own = save(run / "checkpoints", 10, "");
  save(run / "local", 20, "");
  CHECK(given_to(run).adopted.size() == 2);
  const auto identity = given_to(run).identity;
  CHECK(identity.adopted.size() == 2);
  CHECK(check_all(run / "checkpoints", identity).ok());
  CHECK(check_all(run / "local", identity).ok());
  const fs::path later = save(run / "checkpoints", 30, "");
  const Status refused = check_all(run / "checkpoints", identity);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().kind == ErrorKind::user);
  CHECK_THAT(refused.error().message,
             Catch::StartsWith(later.string() + ": is a checkpoint of another run"));
}

TEST_CASE("identity: a file that is none is refused", "[checkpoint][identity]") {
  const TempDirectory run;
  const std::string text = GENERATE(std::string(), "x\n", kMine, kMine + "\nnothing\n");
  write_bytes(identity_file(run.path()), text);
  const auto refused = read_identity(run.path());
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().kind == ErrorKind::user);
  CHECK_THAT(refused.error().message, Catch::Contains("is not the identity of a run"));
}

TEST_CASE("identity: the index adopts no other run's checkpoint, nor begins anew with one",
          "[checkpoint][identity][index][CK-11]") {
  const TempDirectory run;
  const RunIdentity mine{.id = kMine};
  save(run / "checkpoints", 10, kMine);
  test::MemoryStore store;
  REQUIRE(CheckpointIndex::open(store, run / "checkpoints", mine).ok());
  auto index = CheckpointIndex::open(store, run / "checkpoints", mine);
  REQUIRE(index.ok());
  CHECK(index->committed().size() == 1);
  const std::int64_t step = GENERATE(5, 20);  // older or newer than its own
  save(run / "checkpoints", step, kTheirs);
  CHECK_FALSE(index->look_again().ok());
  CHECK_FALSE(index->rebuild("asked for").ok());
  CHECK(index->committed().size() == 1);
  CHECK_FALSE(CheckpointIndex::open(store, run / "checkpoints", mine).ok());
  test::MemoryStore empty;
  const auto anew = CheckpointIndex::make_anew(empty, run / "checkpoints", {}, "lost", mine);
  REQUIRE_FALSE(anew.ok());
  CHECK_THAT(anew.error().message, Catch::Contains("is a checkpoint of another run"));
  CHECK(CheckpointIndex::open(empty, run / "checkpoints").ok());  // of who compares nothing
}

TEST_CASE("identity: no other run's checkpoint is retired, here or on a node's disk",
          "[checkpoint][identity][CK-11]") {
  const TempDirectory run;
  const RunIdentity mine{.id = kMine};
  save(run / "checkpoints", 10, kTheirs);
  save(run / "checkpoints", 20, kMine);
  CHECK_FALSE(retire(run / "checkpoints", 10, mine).ok());
  CHECK(retire(run / "checkpoints", 20, mine).ok());
  CHECK(names_in(run / "checkpoints") == Names{"step-00000010"});
  const Locations places{.project = run / "checkpoints", .local = run / "local"};
  const ShardCarrier carrier({.places = places, .tag = "job", .identity = mine});
  REQUIRE(carrier.prepare().ok());
  save(places.local, 10, kTheirs);
  CHECK_FALSE(carrier.finalize(30).ok());
  const auto refused = carrier.prepare();
  REQUIRE_FALSE(refused.ok());
  CHECK_THAT(refused.error().message, Catch::Contains("move it out of " + places.local.string()));
  CHECK(names_in(places.local) == Names{"step-00000010"});
  // A run that begins has none of its own there: all of it is set aside, or nothing.
  const ShardCarrier first({.places = places, .tag = "job", .identity = mine, .begins = true});
  save(places.local, 20, kMine);
  CHECK_FALSE(first.prepare().ok());
  CHECK(names_in(places.local) == Names{"step-00000010", "step-00000020"});
  REQUIRE(retire(places.local, 20, mine).ok());
  const auto aside = first.prepare();
  REQUIRE(aside.ok());
  const fs::path before = run / ("before-" + std::string(kMine).substr(0, 8));
  CHECK(*aside == before.string() +
                      ": has step-00000010 of a run that had this directory before; "
                      "remove it when that run is not needed");
  CHECK(names_in(before) == Names{"step-00000010"});
  CHECK(names_in(places.local).empty());
  CHECK(first.prepare().value().empty());
}

TEST_CASE("identity: a local place by a name with links gets the name without, if it is the run's",
          "[checkpoint][identity][places][CK-11]") {
  const TempDirectory home;
  fs::create_directories(home / "disk/x");
  fs::create_directory_symlink(home / "disk", home / "link");
  const Locations places = places_of(home / "link/x", home / "fast");
  REQUIRE_FALSE(places.former.empty());
  CHECK(places_of(home / "disk/x", home / "fast").former.empty());
  const RunIdentity mine{.id = kMine};
  CHECK_FALSE(rename_former(places, mine).value());
  const bool own = GENERATE(true, false);
  save(places.former, 10, own ? kMine : kTheirs);
  CHECK(rename_former(places, mine).value() == own);
  CHECK(names_in(own ? places.local : places.former) == Names{"step-00000010"});
  CHECK(fs::exists(own ? places.former : places.local) == false);
}
