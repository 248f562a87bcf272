#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace train::actors {

/// One kind of credit: how many there are, and which other kinds its holder may wait for before it
/// gives it back.
struct Credit {
  std::string name;
  std::int64_t count = 0;
  std::vector<std::string> waits_for;
};

/// EX-4: with every queue bounded by credits, a run can only come to a standstill if holders wait
/// for each other in a circle. Fails, naming the circle, if the credits allow one; also if a kind
/// has no credit at all or waits for an unknown one. Pure.
[[nodiscard]] Status check_credits(std::span<const Credit> credits);

/// The credits of a one-rank run with `lane_slots` lane slots.
[[nodiscard]] std::vector<Credit> credits_of_run(std::int64_t lane_slots);

}  // namespace train::actors
