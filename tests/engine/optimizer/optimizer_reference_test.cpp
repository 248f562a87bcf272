// Fifty updates against PyTorch's own AdamW and Muon, and D-Muon written out in PyTorch
// (tests/reference/training/make_optimizer_fixtures.py). Tolerance: 1e-5.

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/engine/optimizer/optimizer_fixture.hpp"

namespace train::engine::optimizer_reference_test {
namespace {

using Json = nlohmann::json;
using testing::matrix_of;
using testing::OneParameter;
using testing::Values;

constexpr double kTolerance = 1e-5;

/// As in the script: the upper 24 bits of a hash, in [-1, 1).
Values drawn(std::int64_t count, std::uint32_t salt) {
  Values values;
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(count); ++i) {
    std::uint32_t hash = (i + 1U) * 2654435761U + salt * 40503U + 12345U;
    hash = (hash ^ (hash >> 15U)) * 2246822519U;
    hash = (hash ^ (hash >> 13U)) * 3266489917U;
    values.push_back(static_cast<float>(hash >> 8U) / 8388608.0F - 1.0F);
  }
  return values;
}

void check_near(const Values& found, const Json& expected) {
  REQUIRE(found.size() == expected.size());
  double worst = 0.0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(found[i]) - expected[i].get<double>()));
  }
  CHECK(worst <= kTolerance);
}

}  // namespace

TEST_CASE("optimizer: fifty updates are PyTorch's", "[engine][optimizer][parity]") {
  std::ifstream file(ACTORTRAIN_SOURCE_DIR "/tests/reference/fixtures/optimizers.json");
  REQUIRE(file.good());
  const Json fixture = Json::parse(file);
  const auto steps = fixture.at("steps").get<std::int64_t>();
  for (const Json& reference : fixture.at("cases")) {
    const std::int64_t rows = reference.at("rows");
    const std::int64_t cols = reference.at("cols");
    for (const char* name : {"adamw", "muon", "d-muon"}) {
      CAPTURE(name, rows, cols);
      configs::OptimizerSection section = configs::default_optimizer(name);
      section.lr = fixture.at("lr");
      section.weight_decay = 0.1;
      OneParameter parameter(section, matrix_of(rows, cols), drawn(rows * cols, 1000));
      for (std::int64_t step = 1; step <= steps; ++step) {
        parameter.update(
            drawn(rows * cols, static_cast<std::uint32_t>(step)),
            {.step = step, .lr = section.lr * (1.0 - static_cast<double>(step) / 100.0)});
      }
      const Json& expected = reference.at(name);
      check_near(parameter.weights(), expected.at("weights"));
      REQUIRE(parameter.states().size() == expected.at("states").size());
      for (std::size_t i = 0; i < parameter.states().size(); ++i) {
        CAPTURE(i);
        check_near(parameter.states()[i], expected.at("states")[i]);
      }
    }
  }
}

}  // namespace train::engine::optimizer_reference_test
