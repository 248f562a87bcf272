#include "run/report/machine_rates.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/process/host_name.hpp"
#include "engine/model/model_shape.hpp"
#include "engine/rank/plan/run_device.hpp"
#include "storage/files/atomic_file.hpp"

namespace train::run {
namespace {

namespace fs = std::filesystem;

// Long enough to outlast a moment of other load.
constexpr double kPeakSeconds = 0.5;
constexpr std::uint64_t kMostBytes = 1 << 20;
constexpr std::size_t kMostWorks = 32;  // Per device, precision and number of threads.

/// Path of the kept rates; empty: the user has no home directory.
fs::path rates_file() {
  const auto variable = [](const char* name) {
    const char* const text = std::getenv(name);
    return fs::path(text == nullptr ? "" : text);
  };
  const fs::path cache = variable("XDG_CACHE_HOME");
  const fs::path home = variable("HOME");
  std::error_code unknown;
  if (cache.empty() && !fs::is_directory(home, unknown)) {
    return {};  // A home is made by its machine's administrator.
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

// Entry of the rates of runs with these keys; an empty one where the file has none.
nlohmann::json entry_of(const nlohmann::json& all, const configs::RunConfig& config) {
  const auto entry = all.find(key_of(config));
  return entry != all.end() && entry->is_object() ? *entry : nlohmann::json::object();
}

double number_of(const nlohmann::json& entry, const char* name) {
  const auto value = entry.value(name, nlohmann::json());
  return value.is_number() ? std::max(0.0, value.get<double>()) : 0.0;
}

// Newest rate of each kind of work, the newest first; invalid entries are skipped.
std::vector<MachineRates> runs_of(const nlohmann::json& entry) {
  std::vector<MachineRates> runs;
  for (const auto& run : entry.value("runs", nlohmann::json())) {
    if (run.is_object() && run.value("work", nlohmann::json()).is_string()) {
      runs.push_back({.run_flops = number_of(run, "flops"), .run_work = run["work"]});
    }
  }
  return runs;
}

}  // namespace

std::string work_of(const RunPlan& plan) {
  const engine::ModelSpec& model = plan.engine.model;
  const configs::RunConfig& config = plan.config;
  return fmt::format(
      "{} of {} layers, width {}, {}, vocabulary {}, lanes of {} x {}, {}{}{}", model.architecture,
      model.layers.size(), model.embedding_dim, engine::block_sizes(model.layers.front()),
      model.vocab_size, config.batch.micro_batch, plan.engine.seq_len, config.objective.name,
      config.lora.rank > 0 ? ", LoRA" : "", config.train.freeze.empty() ? "" : ", a part frozen");
}

MachineRates kept_rates(const configs::RunConfig& config, std::string_view work) {
  const nlohmann::json entry = entry_of(read_all(rates_file()), config);
  const std::vector<MachineRates> runs = runs_of(entry);
  const auto same = std::ranges::find(runs, work, &MachineRates::run_work);
  MachineRates kept;
  if (same != runs.end()) {
    kept = *same;
  } else if (!runs.empty()) {
    kept = runs.front();
  } else {
    kept.run_flops = number_of(entry, "run_flops");  // As earlier versions kept it.
  }
  kept.peak_flops = number_of(entry, "peak_flops");
  return kept;
}

MachineRates keep_rates(const configs::RunConfig& config, const MachineRates& measured) {
  const fs::path path = rates_file();
  auto all = read_all(path);
  nlohmann::json entry = entry_of(all, config);
  std::vector<MachineRates> runs = runs_of(entry);
  if (measured.run_flops > 0.0) {
    std::erase_if(runs, [&](const auto& run) { return run.run_work == measured.run_work; });
    runs.insert(runs.begin(), measured);
    runs.resize(std::min(runs.size(), kMostWorks));
    entry["runs"] = nlohmann::json::array();
    for (const MachineRates& run : runs) {
      entry["runs"].push_back({{"work", run.run_work}, {"flops", run.run_flops}});
    }
    entry["run_flops"] = measured.run_flops;
  }
  entry["peak_flops"] = std::max(number_of(entry, "peak_flops"), measured.peak_flops);
  all[key_of(config)] = std::move(entry);
  std::error_code ignored;
  if (!path.empty() && (fs::create_directories(path.parent_path(), ignored), !ignored)) {
    (void)storage::write_file_atomically(path, all.dump(1) + "\n");
  }
  return kept_rates(config, measured.run_work);
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
      measured > 0.0 ? std::max(measured, keep_rates(config, {.peak_flops = measured}).peak_flops)
                     : 0.0;
  return peak * rate_count(config) / static_cast<double>(config.parallel.nodes);
}

}  // namespace train::run
