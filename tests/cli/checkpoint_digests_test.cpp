#include "cli/audit/run_audit.hpp"

#include <catch2/catch.hpp>
#include <fstream>
#include <string>

#include "engine/rank/state/state_rows.hpp"
#include "tests/checkpoint/checkpoint_fixture.hpp"

using namespace train;

namespace {

constexpr std::int64_t kRows = 200'000;  // of 12 bytes: 1 MiB, the length of a piece, cuts one

/// What this process has read so far.
std::uint64_t bytes_read() {
  std::ifstream file("/proc/self/io");
  std::string name;
  std::uint64_t bytes = 0;
  file >> name >> bytes;
  REQUIRE(name == "rchar:");
  return bytes;
}

std::uint64_t bytes_in(const std::filesystem::path& directory) {
  std::uint64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    bytes += entry.file_size();
  }
  return bytes;
}

}  // namespace

TEST_CASE("checkpoint digests: those of the state that was saved, from one reading",
          "[actors][audit][CK-3]") {
  test::SmallState state(1.0F, kRows);
  const auto tensors = engine::tensor_names(state.views());
  const auto digests = engine::tensor_digests(state.views(), tensors);
  for (const std::int64_t ranks : {1, 3}) {
    const test::TempDirectory home;
    const auto path = test::write_at(home.path(), 10, state, ranks).path;
    const std::uint64_t before = bytes_read();
    const auto content = cli::read_content(path);
    const std::uint64_t read = bytes_read() - before;
    REQUIRE(content);
    CHECK(content->found.whole());
    CHECK(content->tensors == tensors);
    CHECK(content->digests == digests);
    INFO(read << " bytes read of " << bytes_in(path));
    CHECK(read >= bytes_in(path));
    CHECK(read < bytes_in(path) + bytes_in(path) / 10);
  }
}

TEST_CASE("checkpoint digests: a byte that changed is a finding", "[actors][audit][CK-3]") {
  const test::TempDirectory home;
  const auto path = test::write_at(home.path(), 10, test::SmallState(1.0F, kRows), 2).path;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.path().extension() == ".safetensors") {
      test::flip_byte(entry.path(), entry.file_size() - 5);
    }
  }
  const auto content = cli::read_content(path);
  REQUIRE(content);
  CHECK_FALSE(content->found.whole());
  CHECK_FALSE(content->found.defect.empty());
  CHECK(content->digests.empty());
}
