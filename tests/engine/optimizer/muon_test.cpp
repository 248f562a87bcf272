#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "engine/model/model.hpp"
#include "tests/engine/optimizer/optimizer_fixture.hpp"
#include "tests/engine/rank/small_model.hpp"

namespace train::engine::muon_test {
namespace {

using kernels::testing::random_values;
using testing::matrix_of;
using testing::OneParameter;
using testing::Values;

/// Without decay and with lr = 1: the weights are what the first update takes away.
configs::OptimizerSection bare(const char* name) {
  configs::OptimizerSection section = configs::default_optimizer(name);
  section.lr = 1.0;
  section.weight_decay = 0.0;
  return section;
}

/// The orthogonalised first momentum of a gradient.
std::vector<double> direction_of(const char* name, std::int64_t rows, std::int64_t cols,
                                 const Values& gradient) {
  const configs::OptimizerSection section = bare(name);
  OneParameter parameter(section, matrix_of(rows, cols), Values(gradient.size(), 0.0F));
  parameter.update(gradient, {.step = 1, .lr = 1.0});
  const double size = section.matched_rms * std::sqrt(static_cast<double>(std::max(rows, cols)));
  std::vector<double> direction;
  for (const float weight : parameter.weights()) {
    direction.push_back(-static_cast<double>(weight) / size);
  }
  return direction;
}

}  // namespace

TEST_CASE("muon: Newton-Schulz as in float64, but for the rounding to bf16",
          "[engine][optimizer][golden]") {
  const Values gradient = {1.0F, 2.0F, -1.0F, 0.5F, -0.3F, 0.7F};
  const std::vector<double> wide = {.4044611015, .6088080297,  -.2197403261,
                                    .8150802066, -.0888197773, .7716707385};
  for (const char* name : {"muon", "d-muon"}) {
    CAPTURE(name);
    const auto found = direction_of(name, 2, 3, gradient);
    // The transposed matrix is worked on from its other side and must give the same.
    const auto tall = direction_of(name, 3, 2, {1.0F, 0.5F, 2.0F, -0.3F, -1.0F, 0.7F});
    for (std::size_t row = 0; row < 2; ++row) {
      for (std::size_t col = 0; col < 3; ++col) {
        CHECK(found[row * 3 + col] == Approx(wide[row * 3 + col]).margin(0.02));
        CHECK(tall[col * 2 + row] == Approx(wide[row * 3 + col]).margin(0.02));
      }
    }
  }
}

TEST_CASE("muon: rows of the update are about orthonormal, whatever the gradient's scale",
          "[engine][optimizer]") {
  constexpr std::int64_t kRows = 16;
  constexpr std::int64_t kCols = 48;
  for (const float scale : {1e-3F, 1.0F, 1e3F}) {
    CAPTURE(scale);
    const auto x = direction_of("muon", kRows, kCols, random_values(kRows * kCols, 4, scale));
    for (std::int64_t i = 0; i < kRows; ++i) {
      for (std::int64_t j = 0; j < kRows; ++j) {
        double product = 0.0;
        for (std::int64_t c = 0; c < kCols; ++c) {
          product += x[static_cast<std::size_t>(i * kCols + c)] *
                     x[static_cast<std::size_t>(j * kCols + c)];
        }
        // Five steps leave singular values in about 0.7 .. 1.2.
        CHECK(product == Approx(i == j ? 1.0 : 0.0).margin(0.5));
      }
    }
  }
}

TEST_CASE("muon: the matrices of blocks are its own, all else is AdamW's", "[engine][optimizer]") {
  for (const Architecture architecture : {Architecture::enoki, Architecture::dstar_qwen3}) {
    const std::vector<UnitParameters> units = describe_units(testing::small_shape(architecture));
    for (const char* name : {"muon", "d-muon"}) {
      const auto optimizer = make_optimizer(configs::default_optimizer(name), 100);
      const std::vector<std::string> whole = whole_parameters(*optimizer, units);
      std::size_t matrices = 0;
      for (std::size_t i = 0; i < units.size(); ++i) {
        const bool block = i > 0 && i + 1 < units.size();
        for (const Parameter& parameter : units[i].parameters) {
          CAPTURE(name, parameter.name);
          const bool mine = block && !parameter.is_vector();
          matrices += mine ? 1 : 0;
          CHECK(optimizer->whole(parameter) == mine);
          CHECK((std::find(whole.begin(), whole.end(), parameter.name) != whole.end()) == mine);
          CHECK(optimizer->states(parameter).size() == (mine ? 1U : 2U));
          CHECK((optimizer->scratch_bytes(parameter, false) > 0) == mine);
        }
      }
      CHECK(whole.size() == matrices);
    }
  }
  const auto adamw = make_optimizer(configs::default_optimizer("adamw"), 100);
  CHECK(
      whole_parameters(*adamw, describe_units(testing::small_shape(Architecture::enoki))).empty());
}

TEST_CASE("muon: matrices with very many rows are AdamW's", "[engine][optimizer]") {
  const auto muon = make_optimizer(configs::default_optimizer("muon"), 100);
  const auto d_muon = make_optimizer(configs::default_optimizer("d-muon"), 100);
  CHECK(muon->whole(matrix_of(49999, 8)));
  CHECK_FALSE(muon->whole(matrix_of(50000, 8)));
  CHECK(d_muon->whole(matrix_of(9999, 8)));
  CHECK_FALSE(d_muon->whole(matrix_of(10000, 8)));
}

TEST_CASE("muon: what is not a matrix moves as AdamW moves it", "[engine][optimizer]") {
  Parameter norm = matrix_of(40, 1);
  norm.shape = {40};
  norm.muon = false;
  norm.group = ParameterGroup::no_decay;
  const auto run = [&](const char* name, double eps) {
    configs::OptimizerSection section = configs::default_optimizer(name);
    section.beta1 = 0.9;
    section.beta2 = 0.95;
    section.eps = eps;
    OneParameter parameter(section, norm, random_values(40, 1));
    for (std::int64_t step = 1; step <= 5; ++step) {
      parameter.update(random_values(40, 10U + static_cast<unsigned>(step)), {.step = step});
    }
    return parameter.all();
  };
  CHECK(run("muon", 1e-8) == run("adamw", 1e-8));
  // d-muon adds eps before the bias correction: visible with a large one alone.
  CHECK(run("d-muon", 0.5) != run("adamw", 0.5));
  const Values near = run("d-muon", 1e-8);
  const Values adamw = run("adamw", 1e-8);
  for (std::size_t i = 0; i < near.size(); ++i) {
    CHECK(near[i] == Approx(adamw[i]).margin(1e-6));
  }
}

TEST_CASE("muon: threads do not show, poison changes nothing", "[engine][optimizer][P1]") {
  constexpr std::int64_t kRows = 96;
  constexpr std::int64_t kCols = 160;
  for (const char* name : {"muon", "d-muon"}) {
    CAPTURE(name);
    const auto run = [&](int threads, bool nonfinite) {
      OneParameter parameter(configs::default_optimizer(name), matrix_of(kRows, kCols),
                             random_values(kRows * kCols, 1));
      parameter.update(random_values(kRows * kCols, 2), {.step = 1, .threads = threads});
      if (nonfinite) {
        parameter.update(Values(static_cast<std::size_t>(kRows * kCols), std::nanf("")),
                         {.step = 2, .guard = {.nonfinite = 1}, .threads = threads});
      }
      return parameter.all();
    };
    const Values one = run(1, false);
    CHECK(run(2, false) == one);
    CHECK(run(3, false) == one);
    CHECK(run(2, true) == one);
  }
}

}  // namespace train::engine::muon_test
