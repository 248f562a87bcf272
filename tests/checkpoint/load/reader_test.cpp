#include "checkpoint/load/reader.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstring>
#include <random>
#include <thread>

#include "base/process/core_shares.hpp"
#include "checkpoint/save/retention.hpp"
#include "storage/files/digest.hpp"
#include "tests/checkpoint/checkpoint_fixture.hpp"
#include "tests/support/disks/failing_disk.hpp"

using namespace train;
using namespace train::checkpoint;
using train::test::names_in;
using train::test::SmallState;
using train::test::TempDirectory;
using train::test::write_at;

namespace {

std::string damage_of(const std::filesystem::path& checkpoint) {
  const auto found = verify_checkpoint(checkpoint);
  REQUIRE(found);
  REQUIRE(found->whole() == found->defect.empty());
  return found->defect;
}

}  // namespace

TEST_CASE("reader: any number of ranks reads what any other wrote", "[checkpoint][reader][CK-4]") {
  const SmallState original(5);
  for (const std::int64_t writers : {1, 2, 3, 4, 9}) {
    const TempDirectory directory;
    const auto outcome = write_at(directory.path(), 1, original, writers);
    for (const std::int64_t readers : {1, 2, 3, 5}) {
      SmallState read(0);
      for (std::int64_t rank = 0; rank < readers; ++rank) {
        auto views = read.views_of(rank, readers);
        REQUIRE(restore(outcome.path, outcome.manifest, views));
      }
      REQUIRE(read.all_values() == original.all_values());
    }
  }
}

TEST_CASE("reader: pieces that end where blocks do read nothing twice, on several threads",
          "[checkpoint][reader][CK-4]") {
  constexpr std::int64_t rows = 6000;  // Of 12 bytes: blocks of 4096 end at every 1024th row.
  for (const std::int64_t writers : {1, 3}) {
    const TempDirectory directory;
    SmallState original(5, rows);
    const auto outcome = write_at(directory.path(), 1, original, writers);
    SmallState read(0, rows);
    const engine::StateView whole = read.views().front();
    OpenCheckpoint checkpoint(outcome.path, outcome.manifest);
    for (const std::int64_t wanted : {std::int64_t{1}, std::int64_t{1500}, rows}) {
      CAPTURE(writers, wanted);
      std::vector<engine::StateView> pieces;
      for (std::int64_t row = 0; row < rows; row += pieces.back().rows) {
        engine::StateView piece = whole;
        piece.first_row = row;
        piece.rows = checkpoint.piece_end(whole.name, row, wanted) - row;
        REQUIRE(piece.rows > 0);
        piece.data += row * 12;
        piece.size_bytes = static_cast<std::size_t>(piece.rows) * 12;
        pieces.push_back(piece);
      }
      std::atomic<std::uint64_t> tensor_bytes{0};
      REQUIRE(try_on_cores(pieces.size(), [&](std::size_t i) -> Status {
        RestoreStatistics statistics;
        const Status done = checkpoint.restore(
            {&pieces[i], 1}, {.which = Restore::subset, .statistics = &statistics});
        tensor_bytes += statistics.tensor_bytes;
        return done;
      }));
      CHECK(tensor_bytes == whole.size_bytes);
      CHECK(std::memcmp(whole.data, original.views().front().data, whole.size_bytes) == 0);
      std::memset(whole.data, 0, whole.size_bytes);
    }
  }
}

TEST_CASE("reader: a subset may be asked for by name", "[checkpoint][reader][CK-4]") {
  const TempDirectory directory;
  const auto outcome = write_at(directory.path(), 1, SmallState(5), 2);
  SmallState read(0);
  auto views = read.views();
  views.resize(1);
  REQUIRE(restore(outcome.path, outcome.manifest, views, {.which = Restore::subset}));
  REQUIRE(read.all_values()[20] == SmallState(5).all_values()[20]);
  REQUIRE(read.all_values()[21] == SmallState(0).all_values()[21]);
  const Status status = restore(outcome.path, outcome.manifest, views);
  REQUIRE_FALSE(status);
  REQUIRE(status.error().exit_code() == 2);
  REQUIRE_THAT(status.error().message, Catch::Contains("model.norm"));
}

TEST_CASE("reader: another model is named by its first tensor", "[checkpoint][reader][CK-4]") {
  const TempDirectory directory;
  const auto outcome = write_at(directory.path(), 1, SmallState(5));
  SmallState read(0);
  const auto before = read.all_values();
  auto views = read.views();
  views[1].global_shape = {6};
  views[2].global_shape = {8, 3};
  Status status = restore(outcome.path, outcome.manifest, views);
  REQUIRE_FALSE(status);
  REQUIRE(status.error().exit_code() == 2);
  REQUIRE_THAT(status.error().message, Catch::Contains("tensor model.norm: wanted shape [6]") &&
                                           Catch::Contains("found [5]") &&
                                           Catch::Contains("another model"));
  views = read.views();
  views[3].name = "optimizer.other";
  status = restore(outcome.path, outcome.manifest, views);
  REQUIRE_FALSE(status);
  REQUIRE_THAT(status.error().message, Catch::Contains("optimizer.other"));
  REQUIRE(read.all_values() == before);
}

TEST_CASE("reader: numbers of another type are not taken for floats",
          "[checkpoint][reader][CK-4]") {
  const TempDirectory directory;
  const auto outcome = write_at(directory.path(), 1, SmallState(5));
  SmallState read(0);
  const auto before = read.all_values();
  auto views = read.views();
  Manifest manifest = outcome.manifest;
  for (TensorRecord& record : manifest.tensors) {
    record.dtype = record.name == "model.norm" ? "I32" : record.dtype;  // as many bytes
  }
  const Status status = restore(outcome.path, manifest, views);
  REQUIRE_FALSE(status);
  REQUIRE(status.error().exit_code() == 2);
  REQUIRE_THAT(status.error().message,
               Catch::Contains("tensor model.norm: wanted shape [5] F32, found [5] I32"));
  REQUIRE(read.all_values() == before);
}

TEST_CASE("reader: a flipped byte in any file is found", "[checkpoint][reader][CK-3]") {
  const TempDirectory directory;
  const auto outcome = write_at(directory.path(), 1, SmallState(5), 2);
  REQUIRE(damage_of(outcome.path).empty());
  std::mt19937 random(Catch::rngSeed());
  for (const std::string& name : names_in(outcome.path)) {
    const std::size_t size = std::filesystem::file_size(outcome.path / name);
    for (int round = 0; round < 40; ++round) {
      const std::size_t position = round == 0 ? 0 : round == 1 ? size - 1 : random() % size;
      INFO(name << " byte " << position << " of " << size);
      test::flip_byte(outcome.path / name, position);
      REQUIRE_THAT(damage_of(outcome.path), Catch::Contains(name));
      test::flip_byte(outcome.path / name, position);
    }
  }
  REQUIRE(damage_of(outcome.path).empty());
}

TEST_CASE("reader: cut, grown, emptied, missing and swapped files are found",
          "[checkpoint][reader][CK-3]") {
  const TempDirectory directory;
  const auto outcome = write_at(directory.path(), 1, SmallState(5), 2);
  for (const std::string& name : names_in(outcome.path)) {
    INFO(name);
    const auto path = outcome.path / name;
    const std::string good = test::read_bytes(path);
    for (const std::string& bad : {std::string(), good.substr(0, good.size() / 2),
                                   good.substr(0, good.size() - 1), good + "x"}) {
      test::write_bytes(path, bad);
      REQUIRE_THAT(damage_of(outcome.path), Catch::Contains(name));
    }
    std::filesystem::remove(path);
    REQUIRE_THAT(damage_of(outcome.path), Catch::Contains(name + " is missing"));
    test::write_bytes(path, good);
  }
  REQUIRE(damage_of(outcome.path).empty());
  std::filesystem::rename(outcome.path, directory / "step-00000002");
  REQUIRE_THAT(damage_of(directory / "step-00000002"), Catch::Contains("manifest says step 1"));
}

TEST_CASE("reader: damage after the check is found while copying", "[checkpoint][reader][CK-4]") {
  const TempDirectory directory;
  const auto outcome = write_at(directory.path(), 1, SmallState(5));
  const auto path = outcome.path / "shard-00000-of-00001.safetensors";
  test::flip_byte(path, std::filesystem::file_size(path) - 1);
  SmallState read(0);
  auto views = read.views();
  const Status status = restore(outcome.path, outcome.manifest, views);
  REQUIRE_FALSE(status);
  REQUIRE(status.error().kind == ErrorKind::damage);
  REQUIRE(status.error().exit_code() == 1);
  REQUIRE_THAT(status.error().message, Catch::Contains("does not match its digest"));
}

TEST_CASE("reader: damage is told from what cannot be read and from another model",
          "[checkpoint][reader][CK-3]") {
  const TempDirectory directory;
  const auto outcome = write_at(directory.path(), 1, SmallState(5));
  const auto path = outcome.path / "shard-00000-of-00001.safetensors";
  SmallState read(0);
  auto views = read.views();
  const auto kind = [&](const RestoreOptions& options = {}) {
    const Status status = restore(outcome.path, outcome.manifest, views, options);
    REQUIRE_FALSE(status);
    return status.error().kind;
  };
  SECTION("missing") {
    std::filesystem::remove(path);
    CHECK(kind() == ErrorKind::damage);
  }
  SECTION("cut") {
    std::filesystem::resize_file(path, 100);
    CHECK(kind() == ErrorKind::damage);
  }
  SECTION("a header that is none") {
    test::flip_byte(path, 7);
    CHECK(kind() == ErrorKind::damage);
  }
  SECTION("unreadable, at every read") {
    for (std::int64_t at = 0; at < 4; ++at) {
      const test::FailingReads reads("shard-", EIO, at);
      CHECK(kind() == ErrorKind::failure);
    }
  }
  SECTION("not asked for any more") {
    std::stop_source stop;
    stop.request_stop();
    CHECK(kind({.stop = stop.get_token()}) == ErrorKind::failure);
  }
  SECTION("another model") {
    views[1].global_shape = {6};
    CHECK(kind() == ErrorKind::user);
  }
  SECTION("the manifest") {
    test::flip_byte(outcome.path / kManifestFileName, 100);
    const auto manifest = read_manifest(outcome.path);
    REQUIRE_FALSE(manifest);
    CHECK(manifest.error().kind == ErrorKind::damage);
  }
}

TEST_CASE("reader: the newest whole one wins, damaged ones step aside",
          "[checkpoint][reader][CK-3]") {
  const TempDirectory directory;
  REQUIRE_FALSE(find_newest(directory / "none")->newest);
  REQUIRE_FALSE(find_newest(directory.path())->newest);
  for (const std::int64_t step : {10, 20, 30, 40}) {
    write_at(directory.path(), step, SmallState(static_cast<float>(step)));
  }
  std::filesystem::remove(directory / "step-00000040/manifest.json");
  test::flip_byte(directory / "step-00000030/shard-00000-of-00001.safetensors", 300);
  std::filesystem::create_directories(directory / ".incoming-1-step-00000050/x");
  std::filesystem::create_directories(directory / ".retired-1-step-00000001");
  std::filesystem::create_directories(directory / "unrelated");

  const auto looked = find_newest_read_only(directory.path());
  REQUIRE(looked);
  REQUIRE(looked->newest->candidate.step == 20);
  REQUIRE(names_in(directory.path()).size() == 7);

  const auto report = find_newest(directory.path());
  REQUIRE(report);
  REQUIRE(report->newest->candidate.step == 20);
  REQUIRE(report->newest->manifest.fields.tokens == 20 * 1024);
  REQUIRE(report->set_aside.size() == 2);
  REQUIRE_THAT(report->set_aside[0], Catch::Contains("step-00000040: manifest.json is missing") &&
                                         Catch::Contains("damaged-step-00000040"));
  REQUIRE_THAT(report->set_aside[1], Catch::Contains("shard-00000-of-00001.safetensors"));
  REQUIRE(names_in(directory.path()) ==
          std::vector<std::string>{"damaged-step-00000030", "damaged-step-00000040",
                                   "step-00000010", "step-00000020", "unrelated"});
}

TEST_CASE("reader: a search by files finds all damage but that of bytes, and reads none of them",
          "[checkpoint][reader][CK-3]") {
  const TempDirectory directory;
  for (const std::int64_t step : {10, 20, 30, 40, 50}) {
    write_at(directory.path(), step, SmallState(static_cast<float>(step)), 2);
  }
  const auto shard = [&](std::int64_t step) {
    return directory / checkpoint_name(step) / "shard-00001-of-00002.safetensors";
  };
  std::filesystem::remove(shard(50));
  test::write_bytes(shard(40), test::read_bytes(shard(40)) + "x");
  test::flip_byte(directory / "step-00000030/manifest.json", 100);
  test::flip_byte(shard(20), std::filesystem::file_size(shard(20)) - 1);
  const test::CountedReads reads("/shard-");
  const auto report = find_newest(directory.path(), Depth::files);
  REQUIRE(report);
  CHECK(report->newest->candidate.step == 20);
  CHECK(report->newest->manifest.fields.step == 20);
  CHECK(reads.bytes() == 0);
  REQUIRE(report->set_aside.size() == 3);
  CHECK_THAT(report->set_aside[0], Catch::Contains("shard-00001-of-00002.safetensors is missing") &&
                                       Catch::Contains("set aside as damaged-step-00000050"));
  CHECK_THAT(report->set_aside[1], Catch::Contains("step-00000040: shard-00001"));
  CHECK_THAT(report->set_aside[2], Catch::Contains("step-00000030: "));
  CHECK(names_in(directory.path()) ==
        std::vector<std::string>{"damaged-step-00000030", "damaged-step-00000040",
                                 "damaged-step-00000050", "step-00000010", "step-00000020"});
}

TEST_CASE("reader: of a file that cannot be opened a search by files says so, and leaves it",
          "[checkpoint][reader][CK-3]") {
  const TempDirectory directory;
  write_at(directory.path(), 10, SmallState());
  write_at(directory.path(), 20, SmallState());
  const auto names = names_in(directory.path());
  const std::string part = GENERATE("step-00000020/manifest", "step-00000020/shard");
  const test::FailingReads reads(part, EIO, 0);
  const auto report = find_newest(directory.path(), Depth::files);
  REQUIRE(reads.failed());
  REQUIRE_FALSE(report);
  CHECK_THAT(report.error().message, Catch::Contains("step-00000020 cannot be read"));
  CHECK(names_in(directory.path()) == names);
}

TEST_CASE("reader: what a run retires meanwhile is neither damage nor the end of the search",
          "[checkpoint][reader][CK-3]") {
  const TempDirectory directory(test::quick_directory());
  std::vector<std::filesystem::path> made;
  for (std::int64_t step = 1; step <= 300; ++step) {
    made.push_back(write_at(directory / "made", step, SmallState(5)).path);
  }
  const auto checkpoints = directory / "checkpoints";
  std::filesystem::create_directory(checkpoints);
  const auto place = [&](std::size_t number) {
    std::filesystem::rename(made[number], checkpoints / made[number].filename());
  };
  place(0);
  place(1);
  std::atomic<bool> over{false};
  std::atomic<int> searches{0};
  bool retired = true;
  // Keeps two, as fast as it can, but lets each search find one at last: a run takes its time.
  std::thread run([&] {
    for (std::size_t i = 2; i < made.size(); ++i) {
      place(i);
      retired = retire(checkpoints, static_cast<std::int64_t>(i) - 1).ok() && retired;
      for (const int done = searches; i % 10 == 0 && searches < done + 2;) {
        std::this_thread::yield();
      }
    }
    over = true;
  });
  std::int64_t newest = 0;
  std::string wrong;
  while (!over) {
    const auto found = find_newest_read_only(checkpoints);
    ++searches;
    wrong += !found ? found.error().message + "\n" : "";
    for (const std::string& line : found ? found->set_aside : std::vector<std::string>{}) {
      wrong += line + "\n";
    }
    const bool later = found && found->newest && found->newest->candidate.step >= newest;
    wrong += later ? "" : "nothing newer\n";
    newest = later ? found->newest->candidate.step : newest;
  }
  run.join();
  CHECK(retired);
  INFO(wrong);
  CHECK(wrong.empty());
}

TEST_CASE("reader: only damaged ones is an error every time, never a fresh start",
          "[checkpoint][reader][CK-3]") {
  const TempDirectory directory;
  write_at(directory.path(), 10, SmallState());
  write_at(directory.path(), 20, SmallState());
  std::filesystem::remove(directory / "step-00000010/manifest.json");
  test::write_bytes(directory / "step-00000020/manifest.json", "{}");
  for (int start = 0; start < 3; ++start) {
    const auto report = find_newest(directory.path());
    REQUIRE_FALSE(report);
    REQUIRE(report.error().exit_code() == 1);
    REQUIRE_THAT(report.error().message,
                 Catch::Contains("step-00000010") && Catch::Contains("step-00000020"));
    REQUIRE(report.error().message.find('\n') == std::string::npos);
  }
}

TEST_CASE("reader: what cannot be read is not damaged: it stays, and no older one is taken",
          "[checkpoint][reader][CK-3]") {
  const TempDirectory directory;
  for (const std::int64_t step : {10, 20}) {
    write_at(directory.path(), step, SmallState(static_cast<float>(step)), 2);
  }
  const auto newest = directory / "step-00000020";
  const auto names = names_in(directory.path());
  const int error_number = GENERATE(EIO, ESTALE, ETIMEDOUT, 0);
  const std::string cause = error_number != 0 ? std::strerror(error_number) : "shrank to";
  std::int64_t at = 0;
  for (bool over = false; !over; ++at) {
    INFO("read " << at << " fails with " << error_number);
    {
      const test::FailingReads reads("step-00000020", error_number, at);
      const auto found = verify_checkpoint(newest);
      over = !reads.failed();
      REQUIRE(found);
      REQUIRE(found->verdict == (over ? Verdict::good : Verdict::unreadable));
      REQUIRE(found->defect.empty() == over);
      REQUIRE_THAT(found->defect, Catch::Contains(over ? "" : cause));
    }
    for (const bool change_disk : {true, false}) {
      const test::FailingReads reads("step-00000020", error_number, at);
      const auto report =
          change_disk ? find_newest(directory.path()) : find_newest_read_only(directory.path());
      REQUIRE(report.ok() == over);
      if (!over) {
        REQUIRE(report.error().exit_code() == 1);
        REQUIRE_THAT(report.error().message, Catch::Contains("step-00000020 cannot be read") &&
                                                 Catch::Contains(newest.string() + "/") &&
                                                 Catch::Contains(cause));
        REQUIRE(report.error().message.find('\n') == std::string::npos);
      }
    }
    REQUIRE(names_in(directory.path()) == names);
  }
  REQUIRE(at > 8);  // manifest and two shards: opened, header, table, rows
  REQUIRE(find_newest(directory.path())->newest->candidate.step == 20);
}

TEST_CASE("reader: a newer format stops the search and stays in place",
          "[checkpoint][reader][CK-3]") {
  const TempDirectory directory;
  const auto outcome = write_at(directory.path(), 10, SmallState());
  std::string text = manifest_text(outcome.manifest);
  const std::string version = "\"version\": 2";
  text.replace(text.find(version), version.size(), "\"version\": 9");
  const std::string key = "\"manifest_digest\": \"";
  const std::size_t at = text.rfind(key) + key.size();
  text.replace(at, 41, "xxh3-128:00000000000000000000000000000000");
  text.replace(at, 41, storage::digest_text(text));
  test::write_bytes(outcome.path / kManifestFileName, text);
  const auto report = find_newest(directory.path());
  REQUIRE_FALSE(report);
  REQUIRE(report.error().exit_code() == 2);
  REQUIRE_THAT(report.error().message, Catch::Contains("format version 9"));
  REQUIRE(names_in(directory.path()) == std::vector<std::string>{"step-00000010"});
}
