#include "run/report/step_rate.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "tests/support/harness/nanoseconds.hpp"

namespace train::run::step_rate_test {

constexpr std::int64_t kTokens = 1000;
constexpr double kNanosecond = 1e-9;

/// From `first` to `last`, the ends of steps, in tokens per second.
double tokens_over_time(const std::vector<std::int64_t>& ends, std::size_t first,
                        std::size_t last) {
  return static_cast<double>(kTokens) * static_cast<double>(last - first) /
         (static_cast<double>(ends[last] - ends[first]) * kNanosecond);
}

TEST_CASE("step rate: over the window it is tokens over the time between the ends of steps",
          "[run][step_rate]") {
  std::mt19937_64 random(Catch::rngSeed());
  const std::int64_t longest_ns = GENERATE(kSecond / 1000, kSecond / 4, 2 * kSecond, 100 * kSecond);
  CAPTURE(longest_ns);
  std::uniform_int_distribution<std::int64_t> time_ns(1, longest_ns);
  StepRate rate({.tokens_per_step = kTokens, .total_steps = 100'000});
  std::vector<std::int64_t> ends = {0};
  for (std::int64_t step = 1; step <= 40'000; ++step) {
    ends.push_back(ends.back() + (step == 1 ? 50 * kSecond : time_ns(random)));
    rate.end_step(step, ends.back());
    const std::size_t last = ends.size() - 1;
    if (last == 1) {
      REQUIRE(rate.tokens_per_second() == Approx(tokens_over_time(ends, 0, 1)));
      continue;
    }
    // The window begins with the end of some step: no later than 30 s and 10 steps ago, if there
    // are so many, and hardly earlier. Never with the first step's begin.
    const double window_ns = rate.window_seconds() / kNanosecond;
    const auto begin = std::min_element(ends.begin() + 1, ends.end(), [&](auto left, auto right) {
      const auto off = [&](std::int64_t end) {
        return std::abs(static_cast<double>(ends[last] - end) - window_ns);
      };
      return off(left) < off(right);
    });
    const auto first = static_cast<std::size_t>(begin - ends.begin());
    REQUIRE(rate.tokens_per_second() == Approx(tokens_over_time(ends, first, last)));
    const bool all = first == 1;
    REQUIRE((all || (ends[last] - ends[first] >= StepRate::kWindow_ns &&
                     last - first >= StepRate::kWindowSteps)));
    const std::int64_t too_long_ns = StepRate::kWindow_ns + StepRate::kWindow_ns / 100 + longest_ns;
    REQUIRE((ends[last] - ends[first] <= too_long_ns || last - first <= StepRate::kWindowSteps));
    if (step > 3000 && step % 100 != 0) {
      step += 99;  // the search above is long
      for (int more = 0; more < 99; ++more) {
        ends.push_back(ends.back() + time_ns(random));
        rate.end_step(static_cast<std::int64_t>(ends.size()) - 1, ends.back());
      }
    }
  }
}

TEST_CASE("step rate: the times of steps add up to the time between their ends",
          "[run][step_rate]") {
  std::mt19937_64 random(Catch::rngSeed());
  StepRate rate({.tokens_per_step = kTokens, .total_steps = 1000});
  std::int64_t trained_ns = 0, taken_step = 0;
  double sum = 0.0;
  for (std::int64_t step = 1; step <= 1000; ++step) {
    trained_ns += static_cast<std::int64_t>(random() % kSecond);
    rate.end_step(step, trained_ns);
    if (random() % 3 == 0 || step == 1000) {
      sum += rate.take_step_seconds() * static_cast<double>(step - taken_step);
      taken_step = step;
    }
  }
  CHECK(sum == Approx(static_cast<double>(trained_ns) * kNanosecond));
}

TEST_CASE("step rate: a slow first step is forgotten with the second", "[run][step_rate]") {
  StepRate rate({.tokens_per_step = kTokens, .total_steps = 11});
  rate.end_step(1, 20 * kSecond);
  CHECK(rate.tokens_per_second() == Approx(50.0));
  CHECK(rate.window_seconds() == Approx(20.0));
  CHECK(rate.remaining_seconds() == Approx(200.0));
  rate.end_step(2, 21 * kSecond);
  CHECK(rate.tokens_per_second() == Approx(1000.0));
  CHECK(rate.window_seconds() == Approx(1.0));
  CHECK(rate.remaining_seconds() == Approx(9.0));
}

TEST_CASE("step rate: what is left has the evaluations that are left", "[run][step_rate]") {
  StepRate rate({.tokens_per_step = kTokens,
                 .total_steps = 25,
                 .eval_interval = 10,
                 .choices_interval = 100});
  rate.end_evaluation(false, 2 * kSecond);
  for (std::int64_t step = 1; step <= 9; ++step) {
    rate.end_step(step, step * kSecond);
  }
  CHECK(rate.remaining_seconds() == Approx(16 + 3 * 2));  // after steps 10, 20 and 25
  rate.end_step(10, 10 * kSecond);
  rate.end_evaluation(false, 4 * kSecond);
  rate.end_evaluation(true, 5 * kSecond);
  CHECK(rate.remaining_seconds() == Approx(15 + 2 * 4 + 5));  // choices after the last alone
  for (std::int64_t step = 11; step <= 25; ++step) {
    rate.end_step(step, step * kSecond);
  }
  CHECK(rate.remaining_seconds() == 0.0);
}

TEST_CASE("step rate: a clock that does not move is no infinite rate", "[run][step_rate]") {
  StepRate rate({.tokens_per_step = kTokens, .total_steps = 2});
  for (std::int64_t step = 1; step <= 2; ++step) {
    rate.end_step(step, 0);
    CHECK(rate.tokens_per_second() < 1e13);
    CHECK(rate.take_step_seconds() > 0.0);
  }
}

}  // namespace train::run::step_rate_test
