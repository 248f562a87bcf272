#include "checkpoint/load/compare.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "checkpoint/load/reader.hpp"
#include "tests/checkpoint/checkpoint_fixture.hpp"

using namespace train;
using namespace train::checkpoint;
using train::test::SmallState;
using train::test::TempDirectory;
using train::test::write_at;

namespace {

CheckpointDifference compared(const TempDirectory& directory, const char* a, const char* b) {
  const auto manifest_a = read_manifest(directory / a);
  const auto manifest_b = read_manifest(directory / b);
  REQUIRE(manifest_a);
  REQUIRE(manifest_b);
  auto difference = compare_checkpoints(directory / a, *manifest_a, directory / b, *manifest_b);
  REQUIRE(difference);
  return std::move(difference).value();
}

/// A checkpoint of one tensor "x" of `rows` x 3.
void write_values(const std::filesystem::path& directory, std::int64_t step,
                  std::vector<float> values) {
  const auto rows = static_cast<std::int64_t>(values.size()) / 3;
  std::vector<engine::StateView> views = {{"x",
                                           {rows, 3},
                                           0,
                                           rows,
                                           reinterpret_cast<std::byte*>(values.data()),
                                           values.size() * sizeof(float)}};
  REQUIRE(test::write_checkpoint(directory, test::fields_at(step), views));
}

}  // namespace

TEST_CASE("compare: the same bits, however they are sharded", "[checkpoint][compare]") {
  const TempDirectory directory;
  write_at(directory.path(), 10, SmallState(), 1);
  write_at(directory.path(), 20, SmallState(), 3);
  const auto same = compared(directory, "step-00000010", "step-00000020");
  REQUIRE(same.same_bits());
  REQUIRE(same.tensors == 4);
  REQUIRE(same.keys.empty());
  write_at(directory.path(), 30, SmallState(1.5F), 2);
  const auto other = compared(directory, "step-00000010", "step-00000030");
  REQUIRE_FALSE(other.same_bits());
  REQUIRE(other.differing.size() == 4);
  REQUIRE(other.differing.front().name == "model.embedding");
  REQUIRE(other.differing.front().elements == 21);
  REQUIRE(other.differing.front().differing == 21);
  REQUIRE(other.differing.front().max_abs == 0.5);
}

TEST_CASE("compare: counts elements in tensors larger than what is read at a time",
          "[checkpoint][compare]") {
  const TempDirectory directory;
  std::vector<float> values(3 * 1'500'001, 1.0F);
  write_values(directory.path(), 10, values);
  values.front() = 1.25F;
  values[2'100'000] = -0.75F;
  values.back() = 2.0F;
  write_values(directory.path(), 20, values);
  const auto found = compared(directory, "step-00000010", "step-00000020");
  REQUIRE(found.differing.size() == 1);
  REQUIRE(found.differing.front().elements == 4'500'003);
  REQUIRE(found.differing.front().differing == 3);
  REQUIRE(found.differing.front().max_abs == 1.75);
}

TEST_CASE("compare: bits count, not values", "[checkpoint][compare]") {
  const TempDirectory directory;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  write_values(directory.path(), 10, {0.0F, nan, 1.0F});
  write_values(directory.path(), 20, {-0.0F, nan, 1.0F});
  write_values(directory.path(), 30, {0.0F, nan, nan});
  const auto zeros = compared(directory, "step-00000010", "step-00000020");
  REQUIRE(zeros.differing.front().differing == 1);
  REQUIRE(zeros.differing.front().max_abs == 0.0);
  REQUIRE(std::isnan(compared(directory, "step-00000010", "step-00000030").differing[0].max_abs));
}

TEST_CASE("compare: tensors of one side, other shapes, damage", "[checkpoint][compare]") {
  const TempDirectory directory;
  write_at(directory.path(), 10, SmallState());
  write_values(directory.path(), 20, {1, 2, 3});
  write_values(directory.path(), 30, {1, 2, 3, 4, 5, 6});
  const auto apart = compared(directory, "step-00000010", "step-00000020");
  REQUIRE(apart.tensors == 0);
  REQUIRE(apart.differing.size() == 5);
  REQUIRE(apart.differing.front().defect == "only in the first");
  REQUIRE(apart.differing.back().defect == "only in the second");
  const auto shapes = compared(directory, "step-00000020", "step-00000030");
  REQUIRE(shapes.differing.front().defect == "shape [1, 3] and [2, 3]");
  const auto manifest = read_manifest(directory / "step-00000020");
  REQUIRE(manifest);
  const auto file = directory / "step-00000020" / manifest->files.front().name;
  std::string bytes = test::read_bytes(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  test::write_bytes(file, bytes);
  REQUIRE_FALSE(compare_checkpoints(directory / "step-00000020", *manifest,
                                    directory / "step-00000020", *manifest));
}

TEST_CASE("compare: keys of configurations", "[checkpoint][compare]") {
  const auto keys = compare_configs("# made\n[run]\nname = \"a\"\nsteps = 3\n[model]\nsteps = 3\n",
                                    "[run]\n  name=\"b\"\nsteps = 3\n[model]\nlayers = 2\n");
  REQUIRE(keys.size() == 3);
  REQUIRE(keys[0].key == "model.layers");
  REQUIRE(keys[0].a.empty());
  REQUIRE(keys[0].b == "2");
  REQUIRE(keys[1].key == "model.steps");
  REQUIRE(keys[2].key == "run.name");
  REQUIRE(keys[2].a == "\"a\"");
  REQUIRE(keys[2].b == "\"b\"");
}
