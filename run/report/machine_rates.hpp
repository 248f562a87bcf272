#pragma once

#include <string>
#include <string_view>

#include "configs/run_config.hpp"
#include "run/plan/run_plan.hpp"

// FLOP/s that this machine has reached, kept over runs in rates.json of the user's cache directory
// ($XDG_CACHE_HOME/actortrain or ~/.cache/actortrain), by host, device, precision and threads.
namespace train::run {

/// FLOP/s of what a rate is kept for: one device, or the CPU's threads that the run uses on a node.
struct MachineRates {
  double peak_flops = 0.0;    ///< Best matrix product ever measured; 0: none was.
  double run_flops = 0.0;     ///< The newest run's of the same work, or else of any; 0: none was.
  std::string run_work = {};  ///< That run's work_of(); empty: not known.
};

/// Facts that decide the FLOP/s of a run on a machine, as text: the model's shape, the shape of a
/// lane, the objective and which weights are trained. Never empty.
[[nodiscard]] std::string work_of(const RunPlan& plan);

/// Rates kept for runs with these keys; `work`: work_of() of the run that they are for. Blocks. An
/// unreadable file has none.
[[nodiscard]] MachineRates kept_rates(const configs::RunConfig& config, std::string_view work);

/// Keeps the higher peak, and unless it is 0 run_flops as the newest of run_work, for the 32 newest
/// different works; returns what is kept for run_work then. Blocks. A file that cannot be written
/// is left as it is.
MachineRates keep_rates(const configs::RunConfig& config, const MachineRates& measured);

/// Devices of the run, or nodes where the CPU computes: how often the rates are there.
[[nodiscard]] double rate_count(const configs::RunConfig& config);

/// Peak of this machine for MFU, of all that the run uses on one node: measured now, which blocks
/// for half a second, or the highest measured before. 0: not known.
[[nodiscard]] double measure_peak_flops(const configs::RunConfig& config);

}  // namespace train::run
