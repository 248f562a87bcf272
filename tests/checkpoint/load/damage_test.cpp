// Whatever changed in a checkpoint's files is found before a weight is used.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/load/reader.hpp"
#include "storage/safetensors.hpp"
#include "tests/checkpoint/checkpoint_fixture.hpp"
#include "tests/support/disks/temp_directory.hpp"

using namespace train;
using namespace train::checkpoint;
using train::test::SmallState;
using train::test::TempDirectory;

namespace {

namespace fs = std::filesystem;

/// One change of one file (two, if shards are exchanged).
struct Damage {
  std::string what;
  std::map<std::string, std::string> files;  ///< New contents, by name.
  bool in_use = false;  ///< It hits bytes that every restore of the whole state needs.
};

/// A checkpoint of two shards of equal shape, another step of the same run, and ways to harm the
/// first with random numbers and with the second.
class Victim {
 public:
  explicit Victim(const fs::path& directory)
      : path_(test::write_at(directory, 10, SmallState(5), 2).path),
        other_(contents(test::write_at(directory, 20, SmallState(6), 2).path)),
        good_(contents(path_)) {
    for (const auto& [name, bytes] : good_) {
      names_.push_back(name);
      if (name != kManifestFileName) {
        const auto file = storage::SafetensorsFile::open(path_ / name);
        REQUIRE(file);
        data_start_[name] = file->data_start();
      }
    }
  }

  [[nodiscard]] const fs::path& path() const { return path_; }

  Damage next(std::mt19937_64& random) {
    const std::string& name = names_[random() % names_.size()];
    const std::string& good = good_.at(name);
    const std::size_t position = random() % good.size();
    std::string bad = good;
    switch (random() % 10) {
      case 0: {
        bad.resize(position);
        return {fmt::format("{} cut to {}", name, position), {{name, bad}}, true};
      }
      case 1: {
        bad += good.substr(position);
        return {fmt::format("{} grown by {}", name, good.size() - position), {{name, bad}}, true};
      }
      case 2: {
        const std::size_t length = 1 + random() % 64;
        for (std::size_t i = position; i < std::min(position + length, good.size()); ++i) {
          bad[i] = '\0';
        }
        return {fmt::format("{} zeroed from {} on", name, position),
                {{name, bad}},
                uses(name, position)};
      }
      case 3: {
        const std::string& shard = names_[1 + random() % 2];
        return {fmt::format("{} of another step", shard), {{shard, other_.at(shard)}}, true};
      }
      case 4:
        return random() % 2 == 0
                   ? Damage{"manifest of another step",
                            {{kManifestFileName, other_.at(kManifestFileName)}},
                            true}
                   : Damage{"shards exchanged",
                            {{names_[1], good_.at(names_[2])}, {names_[2], good_.at(names_[1])}},
                            true};
      default: {
        const unsigned bit = static_cast<unsigned>(random() % 8);
        bad[position] = static_cast<char>(static_cast<unsigned char>(bad[position]) ^ (1U << bit));
        return {fmt::format("{} byte {} bit {}", name, position, bit),
                {{name, bad}},
                uses(name, position)};
      }
    }
  }

  /// Whether the damage changes anything.
  [[nodiscard]] bool differs(const Damage& damage) const {
    for (const auto& [name, bytes] : damage.files) {
      if (bytes != good_.at(name)) {
        return true;
      }
    }
    return false;
  }

  void apply(const Damage& damage) const {
    for (const auto& [name, bytes] : damage.files) {
      test::overwrite_bytes(path_ / name, bytes);
    }
  }
  void heal(const Damage& damage) const {
    for (const auto& [name, bytes] : damage.files) {
      test::overwrite_bytes(path_ / name, good_.at(name));
    }
  }

 private:
  static std::map<std::string, std::string> contents(const fs::path& directory) {
    std::map<std::string, std::string> files;
    for (const std::string& name : test::names_in(directory)) {
      files[name] = test::read_bytes(directory / name);
    }
    return files;
  }

  /// A byte of the manifest, or of a tensor.
  [[nodiscard]] bool uses(const std::string& name, std::size_t position) const {
    return name == kManifestFileName || position >= data_start_.at(name);
  }

  fs::path path_;
  std::map<std::string, std::string> other_;
  std::map<std::string, std::string> good_;
  std::vector<std::string> names_;  ///< The manifest, then the shards.
  std::map<std::string, std::uint64_t> data_start_;
};

/// Restores as a start does that did not verify before; false: an error said so.
bool restored(const fs::path& path, std::vector<engine::StateView> views) {
  const auto manifest = read_manifest(path);
  return manifest && restore(path, *manifest, views).ok();
}

bool same_bytes(const std::vector<engine::StateView>& a, const std::vector<engine::StateView>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(a[i].data, b[i].data, b[i].size_bytes) != 0) {
      return false;
    }
  }
  return a.size() == b.size();
}

void require_all_found(std::mt19937_64& random, int trials) {
  const TempDirectory directory;
  Victim victim(directory.path());
  REQUIRE(verify_checkpoint(victim.path())->whole());
  SmallState right(5);
  const auto original = right.all_values();
  int found = 0;
  int harmless = 0;
  for (int trial = 0; trial < trials;) {
    const Damage damage = victim.next(random);
    if (!victim.differs(damage)) {
      continue;
    }
    ++trial;
    INFO(damage.what);
    victim.apply(damage);
    const auto verified = verify_checkpoint(victim.path());
    REQUIRE(verified);
    REQUIRE_FALSE(verified->whole());
    REQUIRE_FALSE(verified->defect.empty());
    ++found;

    SmallState whole(0);
    if (restored(victim.path(), whole.views())) {
      // Only bytes that nobody reads a weight from may go unnoticed.
      REQUIRE_FALSE(damage.in_use);
      REQUIRE(whole.all_values() == original);
      ++harmless;
    }
    const auto rank = static_cast<std::int64_t>(random() % 3);
    SmallState part(0);
    if (restored(victim.path(), part.views_of(rank, 3))) {
      REQUIRE(same_bytes(part.views_of(rank, 3), right.views_of(rank, 3)));
    }
    victim.heal(damage);
  }
  REQUIRE(verify_checkpoint(victim.path())->whole());
  SmallState whole(0);
  REQUIRE(restored(victim.path(), whole.views()));
  REQUIRE(whole.all_values() == original);
  std::printf(
      "damage: %d of %d found by verify (seed %u); restore alone: all but %d in bytes that hold no "
      "tensor\n",
      found, trials, Catch::rngSeed(), harmless);
}

}  // namespace

TEST_CASE("damage: flips, cuts, swapped and stale files are found, by verifying and by restoring",
          "[checkpoint][damage][CK-3]") {
  std::mt19937_64 random(Catch::rngSeed());
  require_all_found(random, 1'000);
}

TEST_CASE("damage: of nine times as many flips and cuts none goes unnoticed",
          "[checkpoint][damage][CK-3][exhaustive]") {
  std::mt19937_64 random(Catch::rngSeed() + (std::uint64_t{1} << 32));
  require_all_found(random, 9'000);
}

TEST_CASE("damage: a file that shrinks while it is read is an error, not a signal",
          "[checkpoint][damage][CK-3]") {
  const TempDirectory directory;
  const auto path = directory / "file";
  test::write_bytes(path, std::string(100'000, 'x'));
  const auto file = storage::InputFile::open(path);
  REQUIRE(file);
  std::filesystem::resize_file(path, 5000);
  std::vector<std::byte> bytes(100'000);
  const Status status = file->read(0, bytes);
  REQUIRE_FALSE(status);
  REQUIRE_THAT(status.error().message, Catch::Contains("shrank to"));
  REQUIRE(file->read(0, std::span(bytes).first(5000)));
  REQUIRE_FALSE(file->read(99'999, std::span(bytes).first(2)));
  REQUIRE_FALSE(file->read(~std::uint64_t{0}, std::span(bytes).first(2)));
  REQUIRE_FALSE(file->read_text(200'000));
  REQUIRE_FALSE(file->read_text(99'999));
}
