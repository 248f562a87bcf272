#pragma once

#include <string>
#include <string_view>

#include "configs/run_config.hpp"
#include "run/plan/run_plan.hpp"

// FLOP/s that this machine has reached, kept over runs in rates.json of the user's cache directory
// ($XDG_CACHE_HOME/actortrain or ~/.cache/actortrain), by host, device, precision and threads.
namespace train::run {

/// FLOP/s of one device, or of the CPU threads that the run uses on a node.
struct MachineRates {
  double peak_flops = 0.0;    ///< Fastest matrix product ever measured; 0: unknown.
  double run_flops = 0.0;     ///< Newest run of the same work, or else of any; 0: unknown.
  std::string run_work = {};  ///< work_of() that run; empty: unknown.
};

/// Facts that decide the FLOP/s of a run on a machine, as text: the model's shape, the shape of a
/// lane, the objective and which weights are trained. Never empty.
[[nodiscard]] std::string work_of(const RunPlan& plan);

/// Stored rates for runs with these keys, preferably of `work` (work_of()). Blocks. An unreadable
/// file counts as empty.
[[nodiscard]] MachineRates kept_rates(const configs::RunConfig& config, std::string_view work);

/// Stores the higher peak, and run_flops, unless it is 0, as the newest rate of run_work; rates of
/// the 32 newest kinds of work are kept. Returns the stored rates for run_work. Blocks. A file that
/// cannot be written stays unchanged.
MachineRates keep_rates(const configs::RunConfig& config, const MachineRates& measured);

/// Devices of the run, or nodes where the CPU computes: how often the rates are there.
[[nodiscard]] double rate_count(const configs::RunConfig& config);

/// Peak of this machine for MFU, of all that the run uses on one node: measured now, which blocks
/// for half a second, or the highest measured before. 0: not known.
[[nodiscard]] double measure_peak_flops(const configs::RunConfig& config);

}  // namespace train::run
