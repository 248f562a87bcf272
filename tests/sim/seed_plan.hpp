#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "configs/run_config.hpp"

namespace train::sim {

using Random = std::mt19937_64;

enum class FaultKind : std::uint8_t {
  kill_rank,              ///< kill -9 of a worker between two pieces of its work.
  kill_rank_in_call,      ///< In the middle of what it does to the disk.
  cut_rank,               ///< A worker reaches nobody any more, and goes on all the same.
  stall_network,          ///< A rank's bytes stand still for a while, and come then.
  full_disk,              ///< For some calls nothing more fits.
  signal,                 ///< SIGTERM.
  kill_launcher,          ///< kill -9: its workers end with it.
  kill_launcher_in_call,  ///< In the middle of what it does to the disk.
  power_cut,              ///< Everything ends, and what was not synced may be gone.
  power_cut_in_call,      ///< In the middle of a change of the disk.
  stale_message,          ///< Something of an older generation arrives.
};
inline constexpr std::size_t kFaultKinds = 11;

[[nodiscard]] std::string_view name_of(FaultKind kind);

struct Fault {
  FaultKind kind = FaultKind::kill_rank;
  std::int64_t after = 0;    ///< Events since the fault before.
  std::uint64_t number = 0;  ///< Picks whom it hits and how long it lasts.
};

/// All that a seed decides before its run begins. The order of events comes from the same seed.
struct SeedPlan {
  std::uint64_t seed = 0;
  configs::RunConfig config;  ///< Without the directories.
  std::vector<Fault> faults;
  std::int64_t tick_ns = 0;  ///< Longest time that an event takes.
  /// Of 100 actors, streams and connections so many are slow for a while, then others.
  std::uint64_t slow_percent = 0;
};

/// Pure: the same on every machine.
[[nodiscard]] SeedPlan plan_of_seed(std::uint64_t seed);

/// What a run that unlearns loses; empty: another one.
[[nodiscard]] std::string describe_objective(const configs::RunConfig& config);

/// "3 ranks full sync last_lane, 4 steps, ...; faults: ...", one line.
[[nodiscard]] std::string describe(const SeedPlan& plan);

}  // namespace train::sim
