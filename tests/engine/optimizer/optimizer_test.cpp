#include "engine/optimizer/optimizer.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "engine/optimizer/ademamix.hpp"
#include "tests/engine/optimizer/optimizer_fixture.hpp"

namespace train::engine::optimizer_test {
namespace {

using kernels::testing::Exact;
using kernels::testing::random_values;
using testing::matrix_of;
using testing::OneParameter;
using testing::Values;

constexpr double kTolerance = 1e-6;

/// Three steps worked out in float64 by hand from the papers' formulas.
struct Golden {
  const char* optimizer;
  Exact lr_coupled, schedule_only;
};

const std::vector<Golden> kGolden = {
    {"adana",
     {.4959906622, -.2118832564, .9598147800, .0027306305},
     {.2973677959, -.1265200238, .5804376727, .0054836999}},
    {"dana-mk4",
     {.4987167374, -.2229947000, .9694516790, .0022065579},
     {.2999791014, -.1339166833, .5868889752, .0041994513}},
    {"dana-star",
     {.4948973659, -.2194637036, .9684808110, .0043670420},
     {.2968386331, -.1320203077, .5865899439, .0057561601}},
    {"dana-star-mk4",
     {.4973595507, -.2274636553, .9751307647, .0039405301},
     {.2991231842, -.1372544295, .5909755711, .0048107001}},
    {"adamw-decaying-wd",
     {.4908743160, -.2348684408, .9853712596, -.0060814359},
     {.2969635990, -.1413492622, .5970554768, -.0033802474}},
    {"ademamix-decaying-wd",
     {.4900377288, -.2332550686, .9842204806, -.0066626340},
     {.2950990279, -.1370749603, .5938186008, -.0053456215}},
    {"ademamix", {.4890649255, -.2327762919, .9822724501, -.0066550295}, {}},
};

configs::OptimizerSection golden_section(const std::string& name) {
  configs::OptimizerSection section = configs::default_optimizer(name);
  section.lr = 0.01;
  section.weight_decay = 0.4;
  section.wd_ts = 5.0;
  section.clipsnr = 0.25;
  section.beta2 = 0.95;
  section.beta3 = 0.99;
  section.alpha = 5.0;
  return section;
}

OneParameter after_golden_steps(const configs::OptimizerSection& section) {
  OneParameter parameter(section, matrix_of(2, 2), {.5F, -.25F, 1.0F, .0F});
  const std::vector<Values> gradients = {
      {.1F, -.2F, 0.0F, 1e-3F}, {-.05F, -.1F, .3F, 0.0F}, {.2F, 0.0F, 0.0F, -2e-3F}};
  const std::vector<double> lr = {.001, .01, .005};
  for (std::size_t i = 0; i < lr.size(); ++i) {
    parameter.update(gradients[i], {.step = static_cast<std::int64_t>(i) + 1, .lr = lr[i]});
  }
  return parameter;
}

void check_near(const Values& found, const Exact& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    CAPTURE(i);
    CHECK(static_cast<double>(found[i]) == Approx(expected[i]).margin(kTolerance).epsilon(0.0));
  }
}

/// All that work on elements, one by one.
const char* const kElementWise[] = {"adamw",    "adamw-decaying-wd",   "adana",
                                    "dana-mk4", "dana-star",           "dana-star-mk4",
                                    "ademamix", "ademamix-decaying-wd"};

}  // namespace

TEST_CASE("optimizer: three steps of every formula as worked out in float64",
          "[engine][optimizer][golden]") {
  for (const Golden& golden : kGolden) {
    CAPTURE(golden.optimizer);
    configs::OptimizerSection section = golden_section(golden.optimizer);
    section.wd_coupling = std::string("lr_coupled");
    check_near(after_golden_steps(section).weights(), golden.lr_coupled);
    if (!golden.schedule_only.empty()) {
      section.wd_coupling = std::string("schedule_only");
      check_near(after_golden_steps(section).weights(), golden.schedule_only);
    }
  }
}

TEST_CASE("optimizer: the states of Dana-Star after three steps", "[engine][optimizer][golden]") {
  const OneParameter star = after_golden_steps(golden_section("dana-star"));
  check_near(star.states()[0], {.1393939394, -.0315151515, .0654545455, -.0014060606});
  check_near(star.states()[1],
             {3.0121212121e-2, 4.1212121212e-3, 1.9636363636e-2, 2.9575757576e-6});
  check_near(star.states()[2], {.5122069130, .1228273546, .1151703351, .4159869057});
}

TEST_CASE("optimizer: AdEMAMix warms its slow average up", "[engine][optimizer][golden]") {
  configs::OptimizerSection section = golden_section("ademamix");
  section.beta3_warmup = 10;
  section.alpha_warmup = 10;
  check_near(after_golden_steps(section).weights(),
             {.4889635088, -.2326658745, .9824486707, -.0068172873});
  const SlowAverage last = slow_average(section, 1000);
  const std::vector<double> beta3 = {.9473588149, .9642804349, .9729699909};
  for (std::size_t i = 0; i < beta3.size(); ++i) {
    const auto step = static_cast<std::int64_t>(i) + 1;
    CHECK(warmed_up(section, last, step).beta3 == Approx(beta3[i]).margin(1e-9).epsilon(0.0));
    CHECK(warmed_up(section, last, step).alpha == Approx(0.5 * static_cast<double>(step)));
  }
  CHECK(warmed_up(section, last, 10).beta3 == 0.99);
  CHECK(warmed_up(section, last, 10).alpha == 5.0);
}

TEST_CASE("optimizer: AdEMAMix takes what is not given from the length of the run",
          "[engine][optimizer]") {
  const configs::OptimizerSection section = configs::default_optimizer("ademamix");
  const SlowAverage slow = slow_average(section, 4000);
  CHECK(slow.beta3 == Approx(1.0 - 8.0 / 4000.0).epsilon(1e-15));
  CHECK(slow.alpha == Approx(std::pow(4000.0, 0.15)).epsilon(1e-15));
}

TEST_CASE("optimizer: weights without decay keep their size where no gradient comes",
          "[engine][optimizer]") {
  for (const char* name : kElementWise) {
    CAPTURE(name);
    Parameter decayed = matrix_of(1, 5);
    Parameter spared = decayed;
    spared.group = ParameterGroup::no_decay;
    OneParameter one(configs::default_optimizer(name), decayed, Values(5, 1.0F));
    OneParameter other(configs::default_optimizer(name), spared, Values(5, 1.0F));
    one.update(Values(5, 0.0F), {.lr = 1e-3});
    other.update(Values(5, 0.0F), {.lr = 1e-3});
    CHECK(one.weights()[4] < 1.0F);
    CHECK(other.weights() == Values(5, 1.0F));
  }
}

TEST_CASE("optimizer: a parameter's rate is the run's times its own factor",
          "[engine][optimizer][parameter]") {
  for (const char* name : kElementWise) {
    CAPTURE(name);
    const auto after = [&](double lr, double lr_scale) {
      configs::OptimizerSection section = configs::default_optimizer(name);
      section.lr = lr;
      Parameter parameter = matrix_of(3, 7);
      parameter.lr_scale = lr_scale;
      OneParameter one(section, parameter, random_values(21, 1));
      for (std::int64_t step = 1; step <= 3; ++step) {
        one.update(random_values(21, 1U + static_cast<unsigned>(step)), {.step = step, .lr = lr});
      }
      return one.all();
    };
    CHECK(after(4e-3, 0.25) == after(1e-3, 1.0));
    CHECK(after(4e-3, 0.25) != after(4e-3, 1.0));
  }
}

TEST_CASE("optimizer: a non-finite gate changes nothing", "[engine][optimizer]") {
  for (const char* name : kElementWise) {
    CAPTURE(name);
    OneParameter parameter(configs::default_optimizer(name), matrix_of(3, 7), random_values(21, 1));
    parameter.update(random_values(21, 2), {.step = 1});
    const Values before = parameter.all();
    parameter.update(Values(21, std::nanf("")), {.step = 2, .guard = {.nonfinite = 1}});
    CHECK(parameter.all() == before);
  }
}

TEST_CASE("optimizer: the gradient is what clipping leaves of it", "[engine][optimizer]") {
  const Values gradient = random_values(21, 2);
  Values halved = gradient;
  for (float& value : halved) {
    value *= 0.5F;
  }
  for (const char* name : kElementWise) {
    CAPTURE(name);
    const auto after = [name](const Values& given, float grad_scale) {
      OneParameter parameter(configs::default_optimizer(name), matrix_of(3, 7),
                             random_values(21, 1));
      for (const std::int64_t step : {1, 2}) {
        parameter.update(given, {.step = step, .guard = {.grad_scale = grad_scale}});
      }
      return parameter.all();
    };
    CHECK(after(gradient, 0.5F) == after(halved, 1.0F));
    CHECK(after(gradient, 0.5F) != after(gradient, 1.0F));
  }
}

TEST_CASE("optimizer: bits depend neither on threads nor on how rows are cut",
          "[engine][optimizer][P1]") {
  constexpr std::int64_t kRows = 301;
  constexpr std::int64_t kCols = 131;  // Pieces begin anywhere in a vector.
  for (const char* name : kElementWise) {
    CAPTURE(name);
    const auto run = [&](std::int64_t piece, int threads, bool diagnosed) {
      OneParameter parameter(configs::default_optimizer(name), matrix_of(kRows, kCols),
                             random_values(kRows * kCols, 5));
      for (std::int64_t step = 1; step <= 3; ++step) {
        parameter.update(random_values(kRows * kCols, 10U + static_cast<unsigned>(step)),
                         {.step = step,
                          .guard = {.grad_scale = 0.7F},
                          .rows_of_a_piece = piece,
                          .diagnosed = diagnosed,
                          .threads = threads});
      }
      return parameter.all();
    };
    const Values whole = run(0, 1, false);
    CHECK(std::none_of(whole.begin(), whole.end(), [](float x) { return std::isnan(x); }));
    for (const std::int64_t piece : {1, 2, 7, 100, 300}) {
      CAPTURE(piece);
      CHECK(run(piece, 2, false) == whole);
    }
    CHECK(run(0, 3, false) == whole);
    CHECK(run(0, 2, true) == whole);
    CHECK(run(5, 3, true) == whole);
  }
}

TEST_CASE("optimizer: averages still move after a million steps", "[engine][optimizer]") {
  constexpr double kStep = 1e6;
  OneParameter parameter(configs::default_optimizer("dana-star"), matrix_of(1, 3),
                         {0.0F, 0.0F, 0.0F});
  parameter.update({1.0F, 2.0F, -4.0F}, {.step = static_cast<std::int64_t>(kStep), .lr = 1e-4});
  const double a = 8.0 / (8.0 + kStep);
  const Exact g = {1.0, 2.0, -4.0};
  for (std::size_t i = 0; i < g.size(); ++i) {
    const double s = std::sqrt(a * g[i] * g[i]) + 1e-8;
    const double tau = a * std::abs(g[i]) / (std::abs(g[i]) + s);
    const double share = std::max(tau / (1.0 - tau), 1.0 / (1.0 + kStep));
    const double n = std::sqrt(share) / s;
    const double m = a * g[i];
    const double alpha = std::pow(std::max(tau * kStep, 1.0), 0.15) * std::abs(m) * n / share;
    const double sign = g[i] > 0.0 ? 1.0 : -1.0;
    const double moved = -1e-4 * (g[i] * n + sign * (share * alpha + std::abs(m) * n));
    CHECK(parameter.states()[0][i] == Approx(m).epsilon(1e-6));
    CHECK(parameter.states()[2][i] == Approx(tau).epsilon(1e-6));
    CHECK(parameter.weights()[i] == Approx(moved).epsilon(2e-6));
  }
}

TEST_CASE("optimizer: the sums of rows are those of the formulas", "[engine][optimizer]") {
  constexpr std::int64_t kRows = 5;
  constexpr std::int64_t kCols = 45;
  for (const char* name : {"adana", "dana-mk4", "dana-star", "dana-star-mk4"}) {
    CAPTURE(name);
    const configs::OptimizerSection section = golden_section(name);
    const bool star = std::string(name).find("star") != std::string::npos;
    const bool clipped = std::string(name).find("mk4") != std::string::npos;
    OneParameter parameter(section, matrix_of(kRows, kCols), random_values(kRows * kCols, 1));
    for (const std::int64_t step : {1, 2, 3, 4}) {
      parameter.update(random_values(kRows * kCols, 20U + static_cast<unsigned>(step)),
                       {.step = step, .rows_of_a_piece = 2, .diagnosed = step == 4});
    }
    Exact totals(4, 0.0);
    const double t = 4.0;
    for (std::int64_t row = 0; row < kRows; ++row) {
      Exact expected(4, 0.0);
      for (std::int64_t i = row * kCols; i < (row + 1) * kCols; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const double m = parameter.states()[0][at];
        const double s = std::sqrt(static_cast<double>(parameter.states()[1][at])) + 1e-8;
        double ratio = std::abs(m) / s;
        double growth = std::pow(1.0 + t, 0.15);
        if (star) {
          const double tau = parameter.states()[2][at];
          const double c = std::min(tau, 0.5);
          const double share = std::max(c / (1.0 - c), 1.0 / (1.0 + t));
          ratio /= std::sqrt(share);
          growth = std::pow(std::max(tau * t, 1.0), 0.15);
        }
        expected[0] += clipped ? std::min(growth * ratio, 0.25) : growth * ratio;
        expected[1] += ratio;
        expected[2] += m * m;
        expected[3] += 1.0;
      }
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const double found = parameter.sums()[static_cast<std::size_t>(row) * 4 + i];
        CHECK(found == Approx(expected[i]).epsilon(1e-6));
        totals[i] += found;
      }
    }
    const auto diagnostics = parameter.optimizer().diagnose(totals);
    REQUIRE(diagnostics.size() == 4);
    CHECK(diagnostics[0].name == "alpha");
    CHECK(diagnostics[0].value == totals[0] / totals[3]);
    CHECK(diagnostics[2].value == Approx(totals[0] / totals[1]));
    CHECK(diagnostics[3].value == std::sqrt(totals[2]));
    CHECK((!clipped || diagnostics[0].value <= 0.25));
  }
}

TEST_CASE("optimizer: the registry has the optimizers of the run file", "[engine][optimizer]") {
  std::set<std::string> registered;
  for (const RegisteredOptimizer& optimizer : registered_optimizers()) {
    registered.insert(std::string(optimizer.name));
    const auto made = make_optimizer(configs::default_optimizer(optimizer.name), 100);
    CHECK(made->states(matrix_of(4, 4)).size() <= kMostStates);
    CHECK_FALSE(made->states(matrix_of(4, 4)).empty());
  }
  std::set<std::string> known;
  for (const configs::NamedOptions& entry : configs::all_optimizers()) {
    known.insert(std::string(entry.name));
  }
  CHECK(registered == known);
}

}  // namespace train::engine::optimizer_test
