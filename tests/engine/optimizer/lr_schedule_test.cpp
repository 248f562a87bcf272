#include "engine/optimizer/lr_schedule.hpp"

#include <quadmath.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "configs/load_config.hpp"

namespace train::engine::lr_schedule_test {
namespace {

configs::ScheduleSection schedule(const char* name, std::int64_t warmup) {
  configs::ScheduleSection section;
  section.name = name;
  section.warmup_steps = warmup;
  return section;
}

__extension__ using Quad = __float128;

Quad exact_cosine(Quad from, Quad to, Quad x) {
  return to + (from - to) / 2 * (1 + cosq(acosq(-1) * x));
}

/// The shipped schedules' formulas, with 113 bits.
Quad exact_rate(const configs::ScheduleSection& s, double peak, std::int64_t step,
                std::int64_t total) {
  const Quad low = Quad{1} / s.div_factor;
  const Quad floor = low / s.final_div_factor;
  const Quad warmup = static_cast<Quad>(s.warmup_steps);
  const Quad now = static_cast<Quad>(step);
  if (s.name == "cos_inf") {
    const Quad falling = static_cast<Quad>(total - s.constant_tail_steps) - warmup;
    const Quad x = (now - warmup) / falling;
    return peak * (now < warmup ? now / warmup + (1 - now / warmup) * low
                                : (x >= 1 ? floor : exact_cosine(1, floor, x)));
  }
  const Quad top = warmup - 1;
  const bool rises = now <= top;
  const Quad x = rises ? now / top : (now - top) / (static_cast<Quad>(total) - 1 - top);
  const Quad from = rises ? low : Quad{1};
  const Quad to = rises ? Quad{1} : floor;
  return peak * (s.name == "cos" ? exact_cosine(from, to, x) : from + (to - from) * x);
}

}  // namespace

TEST_CASE("lr schedule: every step of every shipped run is right to four units of the peak",
          "[engine][lr_schedule][P1]") {
  int runs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(ACTORTRAIN_SOURCE_DIR "/configs")) {
    if (entry.path().extension() != ".toml" || entry.path().stem() == "scaling_rules") {
      continue;
    }
    const auto config = configs::load_config(entry.path().string());
    REQUIRE(config.ok());
    ++runs;
    const double peak = config->optimizer.lr;
    for (std::int64_t step = 0; step < config->run.steps; ++step) {
      const double rate = learning_rate(config->schedule, peak, step, config->run.steps);
      const Quad truth = exact_rate(config->schedule, peak, step, config->run.steps);
      CAPTURE(entry.path().string(), step, rate, static_cast<double>(truth));
      REQUIRE(std::abs(static_cast<double>(rate - truth)) <= peak * 0x1p-51);
    }
  }
  CHECK(runs >= 9);
}

TEST_CASE("lr schedule: equals torch's schedulers at every step", "[engine][lr_schedule]") {
  std::ifstream file(std::string(ACTORTRAIN_SOURCE_DIR) +
                     "/tests/reference/fixtures/lr_schedules.json");
  REQUIRE(file.good());
  const nlohmann::json cases = nlohmann::json::parse(file);
  REQUIRE(cases.size() == 30);
  for (const auto& expected : cases) {
    configs::ScheduleSection section;
    section.name = expected.at("name");
    section.warmup_steps = expected.at("warmup");
    section.div_factor = expected.at("div");
    section.final_div_factor = expected.value("final_div", section.final_div_factor);
    section.constant_tail_steps = expected.value("tail", std::int64_t{0});
    section.decay_fraction = expected.value("decay_fraction", section.decay_fraction);
    section.decay_shape = expected.value("decay_shape", section.decay_shape);
    section.decay_floor = expected.value("decay_floor", section.decay_floor);
    const std::int64_t total = expected.at("total");
    const double peak = expected.at("peak");
    const auto values = expected.at("lr").get<std::vector<double>>();
    REQUIRE(static_cast<std::int64_t>(values.size()) > total);  // The step after the last as well.
    for (std::size_t step = 0; step < values.size(); ++step) {
      CAPTURE(section.name, section.decay_shape, section.warmup_steps, total, step);
      const double lr = learning_rate(section, peak, static_cast<std::int64_t>(step), total);
      CHECK(std::abs(lr - values[step]) <= 1e-12 * std::abs(values[step]));
    }
  }
}

TEST_CASE("lr schedule: cos reaches its peak at the end of the warm-up", "[engine][lr_schedule]") {
  const auto cos = schedule("cos", 10);
  CHECK(learning_rate(cos, 0.01, 0, 100) == Approx(1e-4));
  CHECK(learning_rate(cos, 0.01, 1, 100) == Approx(3.985215271e-4).epsilon(1e-9));
  CHECK(learning_rate(cos, 0.01, 9, 100) == Approx(0.01));
  CHECK(learning_rate(cos, 0.01, 50, 100) == Approx(5.738906850e-3).epsilon(1e-9));
}

TEST_CASE("lr schedule: a warm-up of one step starts at the peak", "[engine][lr_schedule]") {
  for (std::int64_t total = 2; total < 200; ++total) {
    CHECK(learning_rate(schedule("cos", 1), 0.5, 0, total) == Approx(0.5));
    CHECK(learning_rate(schedule("cos", 1), 0.5, total - 1, total) == Approx(0.005));
  }
}

TEST_CASE("lr schedule: past the end the floor stays", "[engine][lr_schedule]") {
  const std::string name = GENERATE("cos", "linear", "cos_inf");
  for (const std::int64_t step : {99, 101, 150, 5000}) {
    CAPTURE(name, step);
    const double lr = learning_rate(schedule(name.c_str(), 10), 0.01, step, 100);
    CHECK(lr == Approx(1e-4).epsilon(name == "cos_inf" && step == 99 ? 0.1 : 1e-12));
  }
}

TEST_CASE("lr schedule: linear is straight up and down", "[engine][lr_schedule]") {
  const auto linear = schedule("linear", 11);
  CHECK(learning_rate(linear, 1.0, 0, 111) == Approx(0.01));
  CHECK(learning_rate(linear, 1.0, 5, 111) == Approx(0.505));
  CHECK(learning_rate(linear, 1.0, 10, 111) == Approx(1.0));
  CHECK(learning_rate(linear, 1.0, 60, 111) == Approx(0.505));
  CHECK(learning_rate(linear, 1.0, 110, 111) == Approx(0.01));
}

TEST_CASE("lr schedule: wsd is flat until its last tenth", "[engine][lr_schedule]") {
  const auto wsd = schedule("wsd", 4);
  CHECK(learning_rate(wsd, 1.0, 0, 100) == Approx(0.01));
  CHECK(learning_rate(wsd, 1.0, 4, 100) == 1.0);
  CHECK(learning_rate(wsd, 1.0, 90, 100) == 1.0);
  CHECK(learning_rate(wsd, 1.0, 95, 100) == Approx(0.5));
  CHECK(learning_rate(wsd, 1.0, 99, 100) == Approx(0.1));
  CHECK(learning_rate(wsd, 1.0, 100, 100) == 0.0);
}

TEST_CASE("lr schedule: constant warms up linearly and stays", "[engine][lr_schedule]") {
  const auto constant = schedule("constant", 4);
  CHECK(learning_rate(constant, 1.0, 0, 10) == Approx(0.01));
  CHECK(learning_rate(constant, 1.0, 2, 10) == Approx(0.505));
  CHECK(learning_rate(constant, 1.0, 4, 10) == 1.0);
  CHECK(learning_rate(constant, 1.0, 999, 10) == 1.0);
  CHECK(learning_rate(schedule("constant", 0), 1.0, 0, 10) == 1.0);
}

}  // namespace train::engine::lr_schedule_test
