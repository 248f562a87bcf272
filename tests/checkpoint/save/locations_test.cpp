#include "checkpoint/save/locations.hpp"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <stop_token>
#include <thread>

#include "checkpoint/load/reader.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/files/digest.hpp"
#include "tests/checkpoint/save/save_fixture.hpp"
#include "tests/support/harness/hang_limit.hpp"
#include "tests/support/processes/script.hpp"

using namespace train;
using namespace train::checkpoint;
using train::test::comes_true;
using train::test::EnvironmentVariable;
using train::test::names_in;
using train::test::read_bytes;
using train::test::SaveRequest;
using train::test::TempDirectory;
using train::test::write_bytes;
using train::test::write_script;

namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

/// A run's two places.
struct LocationSite {
  TempDirectory home;
  Locations places = test::locations_beside(home / "checkpoints");

  [[nodiscard]] SaveRequest request(std::int64_t step) const {
    return {.checkpoints = places.project, .step = step};
  }
  [[nodiscard]] bool whole(const fs::path& place, std::int64_t step) const {
    const auto found = verify_checkpoint(place / checkpoint_name(step));
    return found.ok() && found->whole();
  }
};

}  // namespace

TEST_CASE("places: what checkpoint.local_dir means", "[checkpoint][places]") {
  CHECK(local_directory("auto", "") == fs::path());
  CHECK(local_directory("auto", "/scratch/job") == fs::path("/scratch/job"));
  CHECK(local_directory("none", "/scratch/job") == fs::path());
  CHECK(local_directory("fast", "/scratch/job") == fs::path("fast"));
}

TEST_CASE("places: runs of one name do not meet in a local place", "[checkpoint][places]") {
  CHECK_FALSE(places_of("runs/x", "").two());
  CHECK(places_of("runs/x", "").project == fs::path("runs/x/checkpoints"));
  const Locations places = places_of("/home/a/runs/x", "/fast");
  CHECK(places.project == fs::path("/home/a/runs/x/checkpoints"));
  const std::string digest = storage::digest_text("/home/a/runs/x");
  CHECK(places.local ==
        fs::path("/fast/actortrain-x-" + digest.substr(digest.size() - 8) + "/checkpoints"));
  CHECK(places_of("/home/b/runs/x", "/fast").local != places.local);
  CHECK(places_of("/home/a/./runs/../runs/x", "/fast").local == places.local);
  // However a process names it.
  CHECK(places_of("runs/x", "fast").local ==
        places_of(fs::current_path() / "runs/x", fs::current_path() / "fast").local);
}

TEST_CASE("places: a run that is reached through a link has one local place",
          "[checkpoint][places]") {
  const TempDirectory home;
  fs::create_directories(home / "disk/runs/x");
  fs::create_directory_symlink(home / "disk", home / "link");
  const fs::path place = places_of(home / "disk/runs/x", home / "fast").local;
  CHECK(places_of(home / "link/runs/x", home / "fast").local == place);
  // Also before the run's directory is made.
  CHECK(places_of(home / "link/runs/y", home / "fast").local ==
        places_of(home / "disk/runs/y", home / "fast").local);
  CHECK(places_of(home / "link/runs/x/", home / "fast").local == place);
}

TEST_CASE("places: the local one is this user's alone, and one that is not is refused",
          "[checkpoint][places][ST-11]") {
  const TempDirectory home;
  const Locations places = places_of(home / "runs/x", home / "fast");
  const fs::path own = places.local.parent_path();
  const ShardCarrier carrier({.places = places, .tag = "job"});
  std::string wanted;
  SECTION("made anew") {
    REQUIRE(carrier.prepare().ok());
    for (const fs::path& part : {own, places.local}) {
      CHECK(fs::status(part).permissions() == fs::perms::owner_all);
    }
    CHECK(fs::status(home / "fast").permissions() != fs::perms::owner_all);
    return;
  }
  SECTION("a link to another run's") {
    const Locations other = places_of(home / "runs/y", home / "fast");
    REQUIRE(ShardCarrier({.places = other, .tag = "job"}).prepare().ok());
    fs::create_directories(other.local / ".incoming-job-step-00000010");
    fs::create_directory_symlink(other.local.parent_path(), own);
    wanted = own.string() + ": is a symbolic link";
    CHECK_FALSE(carrier.prepare().ok());
    CHECK(names_in(other.local).size() == 1);
  }
  SECTION("others may write") {
    fs::create_directories(places.local);
    fs::permissions(places.local, fs::perms::all);
    wanted = places.local.string() + ": other users may write to it (mode 777)";
  }
  SECTION("a link in it") {
    REQUIRE(carrier.prepare().ok());
    fs::create_directory_symlink(home.path(), places.local / "step-00000010");
    wanted = "step-00000010: is a symbolic link";
  }
  const auto refused = carrier.prepare();
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().kind == ErrorKind::user);
  CHECK_THAT(refused.error().message,
             Catch::Contains(wanted) && Catch::Contains("checkpoint.local_dir"));
}

TEST_CASE("places: no save goes through a link that is put there during a run",
          "[checkpoint][places][ST-11]") {
  const LocationSite site;
  const fs::path other = site.home / "other";
  fs::create_directory(other);
  auto carriers = test::carriers_of(site.request(10));
  REQUIRE(test::write_locally(site.request(10), carriers).ok());
  const fs::path incoming = incoming_path(site.places.local, "job", 20);
  test::SmallState state;
  SECTION("the step that is written") {
    fs::create_directory_symlink(other, incoming);
    CHECK_FALSE(carriers[0].write(20, state.views_of(0, 2)).ok());
  }
  SECTION("the step that is sent") {
    fs::rename(site.places.local / "step-00000010", site.home / "moved");
    fs::create_directory_symlink(site.home / "moved", site.places.local / "step-00000010");
    CHECK_FALSE(carriers[0].send(10).ok());
  }
  SECTION("all of it") {
    fs::rename(site.places.local, site.home / "moved");
    fs::create_directory_symlink(site.home / "moved", site.places.local);
    CHECK_FALSE(carriers[0].write(20, state.views_of(0, 2)).ok());
    CHECK_FALSE(carriers[0].seal(10, "text").ok());
    CHECK_FALSE(carriers[0].send(10).ok());
    CHECK_FALSE(carriers[0].finalize(20).ok());
    CHECK(site.whole(site.home / "moved", 10));
  }
  CHECK(names_in(other).empty());
  CHECK_FALSE(fs::exists(site.places.project / "step-00000010"));
}

TEST_CASE("places: sealed locally, sent, published: the same bytes in both",
          "[checkpoint][places][CK-9]") {
  const LocationSite site;
  for (const std::int64_t step : {10, 20}) {
    REQUIRE(test::write_in_two_locations(site.request(step)).ok());
    CHECK(site.whole(site.places.local, step));
    CHECK(site.whole(site.places.project, step));
    for (const std::string& name : names_in(site.places.local / checkpoint_name(step))) {
      CHECK(read_bytes(site.places.local / checkpoint_name(step) / name) ==
            read_bytes(site.places.project / checkpoint_name(step) / name));
    }
  }
  auto carriers = test::carriers_of(site.request(20));
  CHECK(carriers[1].finalize(20).ok());
  CHECK(names_in(site.places.local).size() == 2);  // not the lowest rank of its node
  CHECK(carriers[0].finalize(20).ok());
  CHECK(names_in(site.places.local) == Names{"step-00000020"});
  CHECK(names_in(site.places.project) == Names{"step-00000010", "step-00000020"});
}

TEST_CASE("places: a step that is done again takes the place of what an earlier start sealed",
          "[checkpoint][places]") {
  const LocationSite site;
  SaveRequest request = site.request(10);
  request.index_head = "another start's";
  auto carriers = test::carriers_of(request);
  REQUIRE(test::write_locally(request, carriers).ok());
  const std::string before = read_bytes(site.places.local / "step-00000010/manifest.json");
  auto again = test::carriers_of(site.request(10));
  const auto draft = test::write_locally(site.request(10), again);
  REQUIRE(draft.ok());
  CHECK(draft->text != before);
  CHECK(read_bytes(site.places.local / "step-00000010/manifest.json") == draft->text);
  CHECK(names_in(site.places.local) == Names{"step-00000010"});
  // Another node's lowest rank that has the same place finds it done.
  CHECK(again[0].seal(10, draft->text).ok());
  CHECK_FALSE(again[0].seal(10, before).ok());
  CHECK(read_bytes(site.places.local / "step-00000010/manifest.json") == draft->text);
}

TEST_CASE("places: bytes that change on the way are found before anything is published",
          "[checkpoint][places][CK-9]") {
  const LocationSite site;
  const auto script = write_script(site.home / "rsync",
                                   "rsync \"$@\" || exit 1\nfor to; do :; done\n"
                                   "for shard in \"$to\"/shard*; do\n"
                                   "  printf x | dd of=\"$shard\" bs=1 seek=700 conv=notrunc 2>&1\n"
                                   "done");
  const EnvironmentVariable rsync("ACTORTRAIN_RSYNC", script.string());
  const auto outcome = test::write_in_two_locations(site.request(10));
  REQUIRE_FALSE(outcome.ok());
  CHECK_THAT(outcome.error().message, Catch::Contains("is not what was sent"));
  CHECK(list_checkpoints(site.places.project)->empty());
  CHECK(site.whole(site.places.local, 10));
}

TEST_CASE("places: a file that is missing or cut short is never published",
          "[checkpoint][places][CK-1]") {
  const LocationSite site;
  auto carriers = test::carriers_of(site.request(10));
  auto draft = test::write_locally(site.request(10), carriers);
  REQUIRE(draft.ok());
  IncomingCheckpoint incoming(site.places.project, "job", 10);
  REQUIRE(carriers[0].send(10).ok());
  std::string wanted = "is not there";
  SECTION("cut short") {
    REQUIRE(carriers[1].send(10).ok());
    const fs::path shard = incoming.path() / "shard-00001-of-00002.safetensors";
    fs::resize_file(shard, fs::file_size(shard) - 1);
    wanted = "bytes of";
  }
  SECTION("missing") {}
  const auto outcome = incoming.publish(*draft);
  REQUIRE_FALSE(outcome.ok());
  CHECK_THAT(outcome.error().message, Catch::Contains(wanted));
  CHECK(list_checkpoints(site.places.project)->empty());
}

TEST_CASE("places: a copy that is told to stop stops", "[checkpoint][places]") {
  const LocationSite site;
  std::stop_source stop;
  auto carriers = test::carriers_of(site.request(10));
  REQUIRE(test::write_locally(site.request(10), carriers).ok());
  const auto found = find_newest(site.places.local);
  REQUIRE((found.ok() && found->newest));
  const auto script = write_script(
      site.home / "rsync", "touch " + (site.home / "copies").string() + "; exec tail -f /dev/null");
  const EnvironmentVariable rsync("ACTORTRAIN_RSYNC", script.string());
  bool copied = false;
  std::jthread later([&] {
    copied = comes_true([&] { return fs::exists(site.home / "copies"); });
    stop.request_stop();
  });
  const Status published = publish_local(site.places, "next", found->newest->candidate,
                                         found->newest->manifest, {.stop = stop.get_token()});
  later.join();
  CHECK(copied);
  CHECK_FALSE(published.ok());
  CHECK(names_in(site.places.project).empty());  // nothing of it is left
}

TEST_CASE("places: what was sealed and not published is published as it is",
          "[checkpoint][places][CK-9]") {
  const LocationSite site;
  auto carriers = test::carriers_of(site.request(10));
  REQUIRE(test::write_locally(site.request(10), carriers).ok());
  REQUIRE(carriers[0].send(10).ok());  // and then the run was killed
  REQUIRE(remove_leftovers(site.places.project).ok());
  const auto found = find_newest(site.places.local);
  REQUIRE((found.ok() && found->newest));
  REQUIRE(publish_local(site.places, "next", found->newest->candidate, found->newest->manifest, {})
              .ok());
  CHECK(site.whole(site.places.project, 10));
  CHECK(read_bytes(site.places.local / "step-00000010/manifest.json") ==
        read_bytes(site.places.project / "step-00000010/manifest.json"));
  CHECK(names_in(site.places.project) == Names{"step-00000010"});
}

TEST_CASE("places: leftovers in the local place go at the next start, or when a save is given up",
          "[checkpoint][places][CK-2]") {
  const LocationSite site;
  SaveRequest request = site.request(10);
  auto carriers = test::carriers_of(request);
  test::SmallState state;
  REQUIRE(carriers[0].prepare().ok());
  REQUIRE(carriers[0].write(10, state.views_of(0, 2)).ok());
  REQUIRE(names_in(site.places.local).size() == 1);
  SECTION("given up") {
    CHECK(carriers[1].discard(10).ok());
    CHECK(names_in(site.places.local).size() == 1);
    CHECK(carriers[0].discard(10).ok());
  }
  SECTION("the next start") {
    CHECK(carriers[1].prepare().ok());
    CHECK(names_in(site.places.local).size() == 1);
    CHECK(carriers[0].prepare().ok());
  }
  CHECK(names_in(site.places.local).empty());
}
