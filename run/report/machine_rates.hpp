#pragma once

#include "configs/run_config.hpp"

// FLOP/s that this machine has reached, kept over runs in rates.json of the user's cache directory
// ($XDG_CACHE_HOME/actortrain or ~/.cache/actortrain), by host, device, precision and threads.
namespace train::run {

/// FLOP/s of what a rate is kept for: one device, or the CPU's threads that the run uses on a node.
struct MachineRates {
  double peak_flops = 0.0;  ///< Best matrix product ever measured; 0: none was.
  double run_flops = 0.0;   ///< The newest run's, of its model; 0: none was.
};

/// Rates kept for runs with these keys. Blocks. An unreadable file has none.
[[nodiscard]] MachineRates kept_rates(const configs::RunConfig& config);

/// Keeps the higher peak, and run_flops unless it is 0; returns what is kept then. Blocks. A file
/// that cannot be written is left as it is.
MachineRates keep_rates(const configs::RunConfig& config, const MachineRates& measured);

/// Devices of the run, or nodes where the CPU computes: how often the rates are there.
[[nodiscard]] double rate_count(const configs::RunConfig& config);

/// Peak of this machine for MFU, of all that the run uses on one node: measured now, which blocks
/// for half a second, or the highest measured before. 0: not known.
[[nodiscard]] double measure_peak_flops(const configs::RunConfig& config);

}  // namespace train::run
