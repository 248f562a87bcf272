#include "checkpoint/format/reference_file.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "storage/files/atomic_file.hpp"
#include "tests/support/disks/temp_directory.hpp"

namespace train::checkpoint {
namespace {

ReferenceFile file_of_three() {
  return {.key = {.data = "rows-a",
                  .compute = "fp32",
                  .model = "weights-a",
                  .kernel_set = "avx2",
                  .training_rows = 12,
                  .validation_rows = 4},
          .weights_digest = 0xFEDCBA9876543210U,
          .values = {-1.25, std::numeric_limits<double>::quiet_NaN(), -0x1.fffffffffffffp3}};
}

void check_refused(const std::filesystem::path& path, const ReferenceKey& key,
                   const std::string& part) {
  const auto read = read_reference(path, key);
  REQUIRE_FALSE(read.ok());
  INFO(read.error().message);
  CHECK(read.error().kind == ErrorKind::user);
  CHECK(read.error().message.find(path.string()) == 0);
  CHECK(read.error().message.find(part) != std::string::npos);
  CHECK(read.error().message.find('\n') == std::string::npos);
}

}  // namespace

TEST_CASE("reference file: what is written is read, bit for bit", "[checkpoint][reference_file]") {
  const test::TempDirectory directory;
  const auto path = reference_path(directory.path());
  const ReferenceFile written = file_of_three();
  REQUIRE(write_reference(path, written).ok());
  // A run that reads fewer rows can go on with it.
  ReferenceKey fewer = written.key;
  fewer.training_rows = 3;
  fewer.validation_rows = 0;
  for (const ReferenceKey& key : {written.key, fewer}) {
    const auto read = read_reference(path, key);
    REQUIRE(read.ok());
    CHECK(read->weights_digest == written.weights_digest);
    REQUIRE(read->values.size() == written.values.size());
    CHECK(std::memcmp(read->values.data(), written.values.data(), 3 * sizeof(double)) == 0);
  }
}

TEST_CASE("reference file: a sweep that was killed goes on with its own rows, weights and kernels",
          "[checkpoint][reference_file]") {
  const test::TempDirectory directory;
  const auto path = partial_reference_path(directory.path());
  ReferenceFile written = file_of_three();
  CHECK_FALSE(read_partial_reference(path, written.key));
  REQUIRE(write_reference(path, written).ok());
  CHECK_FALSE(read_partial_reference(path, written.key));  // no command is done
  written.commands = 5;
  REQUIRE(write_reference(path, written).ok());
  ReferenceKey of_other_rank = written.key;
  of_other_rank.model.clear();
  for (const ReferenceKey& key : {written.key, of_other_rank}) {
    const auto read = read_partial_reference(path, key);
    REQUIRE(read);
    CHECK(read->commands == 5);
    CHECK(read->weights_digest == written.weights_digest);
    CHECK(std::memcmp(read->values.data(), written.values.data(), 3 * sizeof(double)) == 0);
  }
  const auto starts_anew = [&](auto change) {
    ReferenceKey key = written.key;
    change(key);
    return !read_partial_reference(path, key);
  };
  CHECK(starts_anew([](ReferenceKey& key) { key.data = "rows-b"; }));
  CHECK(starts_anew([](ReferenceKey& key) { key.compute = "bf16"; }));
  CHECK(starts_anew([](ReferenceKey& key) { key.model = "weights-b"; }));
  CHECK(starts_anew([](ReferenceKey& key) { key.kernel_set = "avx512"; }));
  CHECK(starts_anew([](ReferenceKey& key) { key.training_rows = 11; }));
  CHECK(starts_anew([](ReferenceKey& key) { key.validation_rows = 5; }));
  const auto text = storage::read_file(path, 1U << 20U);
  REQUIRE(text.ok());
  REQUIRE(storage::write_file_atomically(path, text->substr(0, text->size() - 1)).ok());
  CHECK_FALSE(read_partial_reference(path, written.key));  // torn
}

TEST_CASE("reference file: of a sampled digest of weights nothing is compared",
          "[checkpoint][reference_file]") {
  const test::TempDirectory directory;
  const auto path = reference_path(directory.path());
  const auto refused = [&](const char* version, const char* model) {
    ReferenceFile written = file_of_three();
    written.key.model = model;
    REQUIRE(write_reference(path, written).ok());
    auto text = storage::read_file(path, 1U << 20U).value();
    const std::string key = "\"version\":";
    text.replace(text.find(key) + key.size(), 1, version);
    REQUIRE(storage::write_file_atomically(path, text).ok());
    return !read_reference(path, file_of_three().key).ok();
  };
  CHECK_FALSE(refused("1", "sampled"));
  CHECK(refused("1", "seed 7"));
  CHECK(refused("2", "other"));
  CHECK(refused("3", "weights-a"));  // not ours to read
}

TEST_CASE("reference file: another key, more rows and no file are refused",
          "[checkpoint][reference_file]") {
  const test::TempDirectory directory;
  const auto path = reference_path(directory.path());
  check_refused(path, file_of_three().key, "is missing");
  REQUIRE(write_reference(path, file_of_three()).ok());
  const auto with = [](auto change) {
    ReferenceKey key = file_of_three().key;
    change(key);
    return key;
  };
  check_refused(path, with([](ReferenceKey& key) { key.data = "rows-b"; }), "rows-b");
  check_refused(path, with([](ReferenceKey& key) { key.compute = "bf16"; }), "precision.compute");
  check_refused(path, with([](ReferenceKey& key) { key.model = "weights-b"; }), "weights-b");
  // A model's directory may be gone by now.
  CHECK(read_reference(path, with([](ReferenceKey& key) { key.model.clear(); })).ok());
  check_refused(path, with([](ReferenceKey& key) { key.kernel_set = "avx512"; }), "kernels");
  check_refused(path, with([](ReferenceKey& key) { key.training_rows = 13; }), "12 training");
  check_refused(path, with([](ReferenceKey& key) { key.validation_rows = 5; }), "4 validation");
}

TEST_CASE("reference file: any damage is found", "[checkpoint][reference_file]") {
  const test::TempDirectory directory;
  const auto path = reference_path(directory.path());
  REQUIRE(write_reference(path, file_of_three()).ok());
  const std::string bytes = storage::read_file(path, 1 << 20).value();
  const auto damaged = [&](const std::string& content) {
    REQUIRE(storage::write_file_atomically(path, content).ok());
    check_refused(path, file_of_three().key, "is damaged");
  };
  damaged("");
  damaged(bytes.substr(0, bytes.size() - 1));
  damaged(bytes.substr(0, bytes.size() - 8));
  damaged(bytes + "12345678");
  damaged(bytes.substr(1));
  std::string flipped = bytes;
  flipped.back() = static_cast<char>(flipped.back() ^ 1);
  damaged(flipped);
}

}  // namespace train::checkpoint
