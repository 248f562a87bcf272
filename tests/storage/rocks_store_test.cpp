#include "storage/rocks_store.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>

#include "tests/support/disks/memory_store.hpp"
#include "tests/support/disks/temp_directory.hpp"

using namespace train;
using namespace train::storage;
using train::test::TempDirectory;

namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

Pairs pairs_of(KvStore& store, std::string_view prefix) {
  Pairs pairs;
  REQUIRE(store.scan(prefix, [&](std::string_view key, std::string_view value) {
    pairs.emplace_back(key, value);
    return true;
  }));
  return pairs;
}

std::optional<std::string> value_of(KvStore& store, std::string_view wanted) {
  std::optional<std::string> found;
  REQUIRE(store.scan(wanted, [&](std::string_view key, std::string_view value) {
    found = key == wanted ? std::optional<std::string>(value) : std::nullopt;
    return false;
  }));
  return found;
}

/// What every store has to do; the double is held to it as well.
void check_store(KvStore& store) {
  REQUIRE_FALSE(value_of(store, "a/1"));
  WriteBatch batch;
  batch.put("a/2", "two");
  batch.put("a/1", std::string("o\0ne", 4));
  batch.put("b/1", "");
  batch.put("a/3", "gone");
  batch.remove("a/3");
  REQUIRE(store.write(batch, Durability::synced));
  REQUIRE(value_of(store, "a/1") == std::string("o\0ne", 4));
  REQUIRE(value_of(store, "b/1") == "");
  REQUIRE_FALSE(value_of(store, "a/3"));
  REQUIRE(pairs_of(store, "a/") == Pairs{{"a/1", std::string("o\0ne", 4)}, {"a/2", "two"}});
  REQUIRE(pairs_of(store, "").size() == 3);
  REQUIRE(pairs_of(store, "c").empty());
  int visited = 0;
  REQUIRE(store.scan("", [&](auto, auto) { return ++visited < 2; }));
  REQUIRE(visited == 2);
  REQUIRE(store.put("a/2", "new", Durability::buffered));
  REQUIRE(store.remove("a/1", Durability::buffered));
  REQUIRE(pairs_of(store, "a/") == Pairs{{"a/2", "new"}});
}

}  // namespace

TEST_CASE("memory_store: behaves as a store", "[storage][kv_store]") {
  test::MemoryStore store;
  check_store(store);
}

TEST_CASE("rocks_store: behaves as a store and remembers", "[storage][kv_store]") {
  const TempDirectory directory;
  {
    auto store = RocksStore::open(directory / "deep/index");
    REQUIRE(store);
    check_store(**store);
  }
  auto store = RocksStore::open(directory / "deep/index");
  REQUIRE(store);
  REQUIRE(pairs_of(**store, "") == Pairs{{"a/2", "new"}, {"b/1", ""}});
}

TEST_CASE("rocks_store: a killed process loses nothing acknowledged", "[storage][kv_store][fork]") {
  const TempDirectory directory;
  const pid_t child = ::fork();
  if (child == 0) {
    auto store = RocksStore::open(directory / "index");
    const bool done = store && (*store)->put("k", "v", Durability::synced).ok();
    ::kill(::getpid(), done ? SIGKILL : SIGTERM);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  REQUIRE(WIFSIGNALED(status));
  REQUIRE(WTERMSIG(status) == SIGKILL);
  auto store = RocksStore::open(directory / "index");
  REQUIRE(store);
  REQUIRE(value_of(**store, "k") == "v");
}

TEST_CASE("rocks_store: trouble is one line with the fix", "[storage][kv_store]") {
  const TempDirectory directory;
  {
    auto store = RocksStore::open(directory / "index");
    REQUIRE(store);
    REQUIRE((*store)->put("k", "v", Durability::synced));
    const auto second = RocksStore::open(directory / "index");
    REQUIRE_FALSE(second);
    REQUIRE(second.error().exit_code() == 2);
    REQUIRE_THAT(second.error().message, Catch::Contains("already in use"));
    REQUIRE(second.error().message.find('\n') == std::string::npos);
  }
  test::write_bytes(directory / "index/CURRENT", "nonsense\n");
  const auto damaged = RocksStore::open(directory / "index");
  REQUIRE_FALSE(damaged);
  REQUIRE(damaged.error().exit_code() == 1);
  REQUIRE_THAT(damaged.error().message, Catch::Contains("index") && Catch::Contains("is damaged"));
  REQUIRE(damaged.error().message.find('\n') == std::string::npos);
  test::write_bytes(directory / "file", "x");
  REQUIRE(RocksStore::open(directory / "file").error().exit_code() == 2);
}

TEST_CASE("rocks_store: an error of the world is not taken for damage", "[storage][kv_store]") {
  for (const char* text :
       {"IO error: While open a file for random read: index/000012.sst: Stale file handle",
        "IO error: While pread offset 0 len 48: index/000012.sst: Connection timed out",
        "IO error: While reading file sequentially: index/CURRENT: Remote I/O error",
        "IO error: While open a file for random read: index/000012.sst: Input/output error",
        "IO error: While open a file for random read: index/000012.sst: Too many open files",
        "IO error: While lock file: index/LOCK: Resource temporarily unavailable",
        "IO error: No space left on device: While appending to file: index/000013.log",
        "Corruption: Can't access /000012.sst: IO error: while stat a file: Stale file handle",
        "Operation timed out: ", "Resource busy: ", "Result incomplete: ", "OK"}) {
    INFO(text);
    CHECK_FALSE(means_damage(text));
  }
  for (const char* text :
       {"Corruption: block checksum mismatch: stored = 1, computed = 2 in index/000012.sst",
        "Corruption: CURRENT file does not end with newline",
        "Corruption: Can't access /000012.sst: IO error: No such file or directory: while stat",
        "IO error: No such file or directory: While opening a file: index/MANIFEST-000009",
        "Invalid argument: test: does not match existing comparator",
        "Not implemented: Unknown Footer version. Maybe this file was created with newer "
        "version"}) {
    INFO(text);
    CHECK(means_damage(text));
  }
}
