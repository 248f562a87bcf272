#include "run/report/machine_rates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/process/host_name.hpp"
#include "engine/rank/plan/run_device.hpp"
#include "run/plan/run_plan.hpp"
#include "storage/files/atomic_file.hpp"

namespace train::run {
namespace {

namespace fs = std::filesystem;

// Long enough to outlast a moment of other load.
constexpr double kPeakSeconds = 0.5;
constexpr std::uint64_t kMostBytes = 1 << 20;

/// Path of the kept rates; empty: the user has no such directory.
fs::path rates_file() {
  const auto variable = [](const char* name) {
    const char* const text = std::getenv(name);
    return fs::path(text == nullptr ? "" : text);
  };
  const fs::path cache = variable("XDG_CACHE_HOME");
  const fs::path home = variable("HOME");
  if (cache.empty() && home.empty()) {
    return {};
  }
  return (cache.empty() ? home / ".cache" : cache) / "actortrain" / "rates.json";
}

nlohmann::json read_all(const fs::path& path) {
  const auto text = storage::read_file(path, kMostBytes);
  auto json = nlohmann::json::parse(text ? *text : "", nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json : nlohmann::json::object();
}

// Compute threads of all ranks on this node.
int node_threads(const configs::RunConfig& config) {
  const std::int64_t ranks =
      std::max<std::int64_t>(1, config.parallel.ranks / config.parallel.nodes);
  const auto all = static_cast<int>(ranks) * threads_per_rank(config.runtime.threads, ranks);
  return std::min(all, resolve_threads(0));
}

std::string key_of(const configs::RunConfig& config) {
  const std::string& device = config.runtime.device;
  return fmt::format("{} {} {}{}", host_name(), device, config.precision.compute,
                     device == "cpu" ? fmt::format(" {} threads", node_threads(config)) : "");
}

bool has_own_devices(const configs::RunConfig& config) {
  return config.runtime.device != "cpu" && config.parallel.transport != "inproc";
}

}  // namespace

MachineRates kept_rates(const configs::RunConfig& config) {
  const auto all = read_all(rates_file());
  const auto entry = all.find(key_of(config));
  const auto number = [&](const char* name) {
    const auto value = entry == all.end() || !entry->is_object()
                           ? nlohmann::json()
                           : entry->value(name, nlohmann::json());
    return value.is_number() ? std::max(0.0, value.get<double>()) : 0.0;
  };
  return {.peak_flops = number("peak_flops"), .run_flops = number("run_flops")};
}

MachineRates keep_rates(const configs::RunConfig& config, const MachineRates& measured) {
  MachineRates kept = kept_rates(config);
  kept.peak_flops = std::max(kept.peak_flops, measured.peak_flops);
  kept.run_flops = measured.run_flops > 0.0 ? measured.run_flops : kept.run_flops;
  const fs::path path = rates_file();
  auto all = read_all(path);
  all[key_of(config)] = {{"peak_flops", kept.peak_flops}, {"run_flops", kept.run_flops}};
  std::error_code ignored;
  if (!path.empty() && (fs::create_directories(path.parent_path(), ignored), !ignored)) {
    (void)storage::write_file_atomically(path, all.dump(1) + "\n");
  }
  return kept;
}

double rate_count(const configs::RunConfig& config) {
  return static_cast<double>(has_own_devices(config) ? config.parallel.ranks
                                                     : config.parallel.nodes);
}

double measure_peak_flops(const configs::RunConfig& config) {
  if (std::getenv("ACTORTRAIN_TEST_NO_PEAK") != nullptr) {
    return 0.0;  // Skipped: tests start runs by the hundred.
  }
  const std::string& device = config.runtime.device;
  const double measured = engine::measure_peak_flops(device, config.precision.compute,
                                                     node_threads(config), kPeakSeconds);
  if (has_own_devices(config) && config.parallel.ranks > 1) {
    engine::release_device(device);  // The ranks are processes, each with its own device.
  }
  const double peak =
      measured > 0.0 ? keep_rates(config, {.peak_flops = measured, .run_flops = 0.0}).peak_flops
                     : 0.0;
  return peak * rate_count(config) / static_cast<double>(config.parallel.nodes);
}

}  // namespace train::run
