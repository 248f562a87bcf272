#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <vector>

#include "tests/support/harness/soak.hpp"

namespace train::test {

/// `count` of many cases of one test, which follow from --rng-seed; all of them, in any order,
/// where tests soak.
template <class Case>
std::vector<Case> drawn(std::vector<Case> cases, std::size_t count) {
  std::mt19937 random(Catch::rngSeed());
  std::shuffle(cases.begin(), cases.end(), random);
  if (soak_factor() == 1) {
    cases.resize(std::min(count, cases.size()));
  }
  return cases;
}

}  // namespace train::test
