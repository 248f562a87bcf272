#include "checkpoint/models/export.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "checkpoint/load/reader.hpp"
#include "storage/safetensors.hpp"
#include "tests/checkpoint/checkpoint_fixture.hpp"
#include "tests/support/checkpoints/whole_safetensors.hpp"
#include "tests/support/disks/failing_disk.hpp"
#include "tests/support/disks/full_disk.hpp"
#include "tests/support/harness/sanitized.hpp"

using namespace train;
using namespace train::checkpoint;
using train::test::names_in;
using train::test::SmallState;
using train::test::stored_bytes;
using train::test::stored_floats;
using train::test::stored_names;
using train::test::TempDirectory;
using train::test::write_at;

namespace {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

/// The weights of SmallState, not in the order of their names.
ExportRequest small_request(const fs::path& directory) {
  return {.directory = directory,
          .tensors = {{"norm", {5}}, {"embedding", {7, 3}}},
          .config_text = "{}\n"};
}

/// What SmallState holds, by its definition.
std::vector<float> expected(const std::string& name, float base = 1.0F) {
  std::vector<float> values(name == "norm" ? 5 : 21);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = base + (name == "norm" ? 100.0F : 0.0F) + static_cast<float>(i) * 0.25F;
  }
  return values;
}

std::map<std::string, std::string> files_of(const fs::path& directory) {
  std::map<std::string, std::string> files;
  for (const std::string& name : names_in(directory)) {
    files[name] = test::read_bytes(directory / name);
  }
  return files;
}

/// A checkpoint of `count` weights of `rows` x 1024 elements, on one rank.
WriteOutcome write_wide(const fs::path& checkpoints, std::size_t count, std::int64_t rows) {
  std::vector<float> values(static_cast<std::size_t>(rows) * 1024);
  std::mt19937 random(5);
  for (float& value : values) {
    value = std::bit_cast<float>(static_cast<std::uint32_t>(random() % 0x7f000000U));
  }
  std::vector<engine::StateView> views;
  for (std::size_t i = 0; i < count; ++i) {
    views.push_back({fmt::format("model.w{}", i),
                     {rows, 1024},
                     0,
                     rows,
                     reinterpret_cast<std::byte*>(values.data()),
                     values.size() * sizeof(float)});
  }
  const auto outcome = test::write_checkpoint(checkpoints, test::fields_at(1), views);
  REQUIRE(outcome);
  return *outcome;
}

ExportRequest wide_request(const fs::path& directory, std::size_t count, std::int64_t rows) {
  ExportRequest request{.directory = directory, .tensors = {}, .config_text = "{}\n"};
  for (std::size_t i = 0; i < count; ++i) {
    request.tensors.push_back({fmt::format("w{}", i), {rows, 1024}});
  }
  return request;
}

std::uint64_t status_bytes(const std::string& key) {
  std::ifstream lines("/proc/self/status");
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(key + ":")) {
      return std::stoull(line.substr(key.size() + 1)) * 1024;
    }
  }
  FAIL("no " << key);
  return 0;
}

}  // namespace

TEST_CASE("export: the weights alone, whole, whatever the shards were", "[checkpoint][export]") {
  const TempDirectory directory;
  std::map<std::string, std::string> of_one_rank;
  for (const std::int64_t ranks : {1, 2, 3, 5}) {
    const auto written =
        write_at(directory / fmt::format("checkpoints{}", ranks), 3, SmallState(), ranks);
    const fs::path out = directory / fmt::format("out{}", ranks);
    const auto report = export_weights(written.path, written.manifest, small_request(out));
    REQUIRE(report);
    CHECK(report->tensors == 2);
    CHECK(report->compared == 2);
    CHECK(report->tensor_bytes == 26 * sizeof(float));
    CHECK(report->files == Names{"model.safetensors"});
    CHECK(names_in(out) == Names{"config.json", "model.safetensors"});
    CHECK(stored_names(out / "model.safetensors") == Names{"norm", "embedding"});
    for (const std::string name : {"norm", "embedding"}) {
      CHECK(stored_floats(out / "model.safetensors", name) == expected(name));
    }
    CHECK(storage::SafetensorsFile::open(out / "model.safetensors")->metadata() ==
          storage::TensorMetadata{{"format", "pt"}});
    of_one_rank = ranks == 1 ? files_of(out) : of_one_rank;
    CHECK(files_of(out) == of_one_rank);
  }
}

namespace {

std::uint16_t round_to_bf16(float value) {
  std::uint16_t rounded = 0;
  (void)storage::from_floats(storage::WeightType::bf16, std::span(&value, 1),
                             std::as_writable_bytes(std::span(&rounded, 1)));
  return rounded;
}

}  // namespace

TEST_CASE("export: bf16 rounds to the nearest, halves to even", "[checkpoint][export]") {
  const auto rounds = [](std::uint32_t from, std::uint16_t to) {
    INFO(fmt::format("{:08x}", from));
    CHECK(round_to_bf16(std::bit_cast<float>(from)) == to);
  };
  rounds(0x3f800000, 0x3f80);
  rounds(0x3f807fff, 0x3f80);
  rounds(0x3f808000, 0x3f80);  // half, to even
  rounds(0x3f808001, 0x3f81);
  rounds(0x3f818000, 0x3f82);  // half, to even
  rounds(0xbf818000, 0xbf82);
  rounds(0x00000000, 0x0000);
  rounds(0x80000000, 0x8000);
  rounds(0x00008001, 0x0001);  // denormal
  rounds(0x7f7fffff, 0x7f80);  // beyond the largest: infinite
  rounds(0x7f800000, 0x7f80);
  rounds(0xff800000, 0xff80);
  rounds(0x7f800001, 0x7fc0);  // not a number stays none, though its upper half would be infinite
  rounds(0xffffffff, 0xffff);
  // Against the two neighbours: none is nearer.
  std::mt19937 random(Catch::rngSeed());
  for (int i = 0; i < 100'000; ++i) {
    const float value = std::bit_cast<float>(static_cast<std::uint32_t>(random() % 0x7f000000U));
    const auto widened = [](std::uint32_t half) {
      return static_cast<double>(std::bit_cast<float>(half << 16));
    };
    const std::uint32_t found = round_to_bf16(value);
    const double distance = std::fabs(widened(found) - static_cast<double>(value));
    REQUIRE(distance <= std::fabs(widened(found + 1) - static_cast<double>(value)));
    REQUIRE((found == 0 || distance <= std::fabs(widened(found - 1) - static_cast<double>(value))));
  }

  const TempDirectory directory;
  const auto written = write_at(directory / "checkpoints", 3, SmallState(1.001F), 2);
  auto request = small_request(directory / "out");
  request.type = ExportType::bf16;
  const auto report = export_weights(written.path, written.manifest, request);
  REQUIRE(report);
  CHECK(report->tensor_bytes == 26 * 2);
  for (const std::string name : {"norm", "embedding"}) {
    std::vector<std::uint16_t> wanted;
    for (const float value : expected(name, 1.001F)) {
      wanted.push_back(round_to_bf16(value));
    }
    const auto found = stored_bytes(directory / "out/model.safetensors", name);
    const auto bytes = std::as_bytes(std::span(wanted));
    CHECK(std::equal(found.begin(), found.end(), bytes.begin(), bytes.end()));
  }
}

TEST_CASE("export: weights that no file has are left out, by name", "[checkpoint][export]") {
  const TempDirectory directory;
  const auto written = write_at(directory / "checkpoints", 3, SmallState(), 2);
  auto request = small_request(directory / "out");
  std::erase_if(request.tensors, [](const ExportTensor& tensor) { return tensor.name == "norm"; });
  const auto refused = export_weights(written.path, written.manifest, request);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message.find("1 tensors too many, the first norm") != std::string::npos);
  request.left_out = {"norm"};
  REQUIRE(export_weights(written.path, written.manifest, request));
  CHECK(stored_names(directory / "out/model.safetensors") == Names{"embedding"});
}

TEST_CASE("export: above the limit, several files and their index", "[checkpoint][export]") {
  const TempDirectory directory;
  const auto written = write_wide(directory / "checkpoints", 5, 1);  // 4096 bytes each
  auto request = wide_request(directory / "out", 5, 1);
  request.max_file_bytes = 2 * 4096;
  const auto report = export_weights(written.path, written.manifest, request);
  REQUIRE(report);
  const Names files = {"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                       "model-00003-of-00003.safetensors"};
  CHECK(report->files == files);
  CHECK(stored_names(directory / "out" / files[0]) == Names{"w0", "w1"});
  CHECK(stored_names(directory / "out" / files[1]) == Names{"w2", "w3"});
  CHECK(stored_names(directory / "out" / files[2]) == Names{"w4"});
  const auto index =
      nlohmann::json::parse(test::read_bytes(directory / "out/model.safetensors.index.json"));
  CHECK(index.at("metadata").at("total_size") == 5 * 4096);
  CHECK(index.at("weight_map").size() == 5);
  for (const auto& [name, file] : index.at("weight_map").items()) {
    const Names there = stored_names(directory / "out" / file.get<std::string>());
    CHECK(std::find(there.begin(), there.end(), name) != there.end());
  }
  // A tensor above the limit is a file of its own; the exact limit still is one file.
  request.directory = directory / "each";
  request.max_file_bytes = 100;
  CHECK(export_weights(written.path, written.manifest, request)->files.size() == 5);
  request.directory = directory / "one";
  request.max_file_bytes = 5 * 4096;
  CHECK(export_weights(written.path, written.manifest, request)->files ==
        Names{"model.safetensors"});
}

TEST_CASE("export: a tensor that is dropped, renamed or of another shape is noticed",
          "[checkpoint][export]") {
  const TempDirectory directory;
  const auto written = write_at(directory / "checkpoints", 3, SmallState());
  const auto refused = [&](std::vector<ExportTensor> tensors, const std::string& part) {
    auto request = small_request(directory / "out");
    request.tensors = std::move(tensors);
    const auto report = export_weights(written.path, written.manifest, request);
    REQUIRE_FALSE(report);
    CHECK(report.error().kind == ErrorKind::user);
    CHECK_THAT(report.error().message, Catch::Contains(part));
    CHECK_FALSE(fs::exists(directory / "out"));
  };
  refused({{"norm", {5}}}, "1 tensors too many, the first embedding");
  refused({{"norm", {5}}, {"wte", {7, 3}}}, "tensor wte: wanted shape [7, 3], found none");
  refused({{"norm", {5}}, {"embedding", {3, 7}}}, "wanted shape [3, 7], found [7, 3]");
}

TEST_CASE("export: what is there is never touched", "[checkpoint][export]") {
  const TempDirectory directory;
  const auto written = write_at(directory / "checkpoints", 3, SmallState());
  fs::create_directory(directory / "out");
  REQUIRE(export_weights(written.path, written.manifest, small_request(directory / "out")));
  const auto before = files_of(directory / "out");
  CHECK(before.size() == 2);
  test::write_bytes(directory / "file", "mine");
  fs::create_directory_symlink(directory / "checkpoints", directory / "link");
  for (const char* taken : {"out", "out/", "file", "link"}) {
    INFO(taken);
    const auto again =
        export_weights(written.path, written.manifest, small_request(directory / taken));
    REQUIRE_FALSE(again);
    CHECK(again.error().kind == ErrorKind::user);
    CHECK_THAT(again.error().message,
               Catch::Contains("already exists and is not an empty directory"));
  }
  CHECK(files_of(directory / "out") == before);
  CHECK(names_in(directory.path()) == Names{"checkpoints", "file", "link", "out"});
  REQUIRE(export_weights(written.path, written.manifest, small_request(directory / "new/deep/")));
}

TEST_CASE("export: a disk that fails at any call leaves nothing, or all of it",
          "[checkpoint][.full][export]") {
  const TempDirectory directory;
  const auto written = write_wide(directory / "checkpoints", 3, 1);
  auto request = wide_request(directory / "out", 3, 1);
  request.max_file_bytes = 4096;
  const Names before = names_in(directory.path());
  std::int64_t calls = 0;
  {
    const test::FailingDisk counting;
    REQUIRE(export_weights(written.path, written.manifest, request));
    calls = counting.seen();
  }
  const auto whole = files_of(directory / "out");
  fs::remove_all(directory / "out");
  REQUIRE(calls > 20);
  int failed = 0;
  for (const int error_number : {ENOSPC, EIO}) {
    for (std::int64_t at = 0; at < calls; ++at) {
      INFO("error " << error_number << " at call " << at << " of " << calls);
      bool finished = false;
      {
        const test::FailingDisk disk({.error_number = error_number, .at = at});
        finished = export_weights(written.path, written.manifest, request).ok();
        REQUIRE(disk.failed() == 1);
      }
      failed += finished ? 0 : 1;
      if (fs::exists(directory / "out")) {
        CHECK(files_of(directory / "out") == whole);
        fs::remove_all(directory / "out");
      } else {
        CHECK_FALSE(finished);
      }
      CHECK(names_in(directory.path()) == before);
    }
  }
  CHECK(failed > 20);
}

TEST_CASE("export: a full disk is named and left as it was", "[checkpoint][export]") {
  const TempDirectory directory;
  const auto written = write_wide(directory / "checkpoints", 4, 64);  // 1 MiB
  const test::SmallDisk disk(directory / "disk", "512k");
  if (!disk.mounted()) {
    return;
  }
  const auto report =
      export_weights(written.path, written.manifest, wide_request(disk.path() / "out", 4, 64));
  REQUIRE_FALSE(report);
  CHECK(report.error().kind == ErrorKind::failure);
  CHECK_THAT(report.error().message, Catch::Contains("disk full"));
  CHECK(names_in(disk.path()).empty());
}

TEST_CASE("export: what is read back is compared with the checkpoint", "[checkpoint][export]") {
  /// A disk that changes the last byte of the tensors when their file has its name.
  class ChangingDisk final : public storage::FileCallHook {
   public:
    int before(storage::FileCall& /*call*/) override { return 0; }
    void after(const storage::FileCall& call, int error_number) override {
      if (call.kind == storage::FileCallKind::rename && error_number == 0 &&
          call.to.ends_with("model.safetensors")) {
        test::flip_byte(call.to, fs::file_size(call.to) - 1);
      }
    }
  };
  const TempDirectory directory;
  const auto written = write_at(directory / "checkpoints", 3, SmallState());
  for (const ExportType type : {ExportType::f32, ExportType::bf16}) {
    auto request = small_request(directory / "out");
    request.type = type;
    ChangingDisk disk;
    storage::FileCallHook* const before = storage::install_file_call_hook(&disk);
    const auto report = export_weights(written.path, written.manifest, request);
    storage::install_file_call_hook(before);
    REQUIRE_FALSE(report);
    CHECK_THAT(report.error().message,
               Catch::Contains("tensor embedding read back differs from what was written"));
    CHECK(names_in(directory.path()) == Names{"checkpoints"});
  }
}

TEST_CASE("export: damage of the checkpoint is found, a stop is obeyed", "[checkpoint][export]") {
  const TempDirectory directory;
  const auto written = write_at(directory / "checkpoints", 3, SmallState());
  auto request = small_request(directory / "out");
  request.stop = [] { return true; };
  const auto stopped = export_weights(written.path, written.manifest, request);
  REQUIRE_FALSE(stopped);
  CHECK_THAT(stopped.error().message, Catch::Contains("stopped"));

  const fs::path shard = written.path / "shard-00000-of-00001.safetensors";
  // The first tensor is model.embedding; its bytes end long before the optimizer's.
  const auto opened = storage::SafetensorsFile::open(shard);
  REQUIRE(opened);
  test::flip_byte(shard, opened->data_start() + opened->find("model.embedding")->begin);
  const auto damaged =
      export_weights(written.path, written.manifest, small_request(directory / "out"));
  REQUIRE_FALSE(damaged);
  CHECK(damaged.error().kind == ErrorKind::damage);
  CHECK_THAT(damaged.error().message, Catch::Contains("digest"));
  CHECK(names_in(directory.path()) == Names{"checkpoints"});
}

TEST_CASE("export: needs memory for some tensors, not for the model", "[checkpoint][export]") {
  const TempDirectory directory;
  constexpr std::int64_t rows = 6 * 1024;  // 24 MiB a tensor, 192 MiB in all
  const auto written = write_wide(directory / "checkpoints", 8, rows);
  const auto request = wide_request(directory / "out", 8, rows);
  test::write_bytes("/proc/self/clear_refs", "5");  // the peak starts anew
  const std::uint64_t before = status_bytes("VmRSS");
  REQUIRE(export_weights(written.path, written.manifest, request));
  const std::uint64_t peak = status_bytes("VmHWM");
  INFO("before " << before << " peak " << peak);
  CHECK((test::sanitized() || peak < before + (std::uint64_t{80} << 20)));
}
