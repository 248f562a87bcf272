#include "bench/gpu/gpu_site.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "engine/model/model_shape.hpp"
#include "kernels/device/cuda_device.hpp"

namespace train::bench {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// Few enough rows and channels for an emulated device to finish in a second.
const Words kTiny = {"model.layers=1",         "model.heads=2",       "model.head_dim=8",
                     "model.embedding_dim=16", "model.mlp_hidden=32", "batch.micro_batch=1",
                     "data.sequence_length=8"};

/// Keys of models trained for speed.
const Words kCommon = {"runtime.device=\"cuda\"", "precision.compute=\"bf16\"", "batch.lanes=1",
                       "run.digest_interval_steps=0", "run.steps=100000"};

constexpr std::int64_t kByteVocabulary = 320;

}  // namespace

GpuSite::GpuSite(const Options& options) : options_(options), place_(options.paths) {}

double GpuSite::seconds_left() const {
  return options_.seconds - std::chrono::duration<double>(Clock::now() - begin_).count();
}

double GpuSite::patience() const {
  constexpr double least_s = 60.0;  // Minimum for a call with few rows and little time.
  return std::max(least_s, seconds_left());
}

DeviceLimits GpuSite::limits() const {
  struct Known {
    const char* name;
    DeviceLimits limits;
  };
  constexpr Known known[] = {
      {"H200", {989e12, 4.8e12}}, {"H100", {989e12, 3.35e12}}, {"A100", {312e12, 2.04e12}}};
  const std::string name = kernels().kernel_set();
  for (const Known& each : known) {
    if (name.find(each.name) != std::string::npos) {
      return each.limits;
    }
  }
  return {};
}

double GpuSite::target(const CardTargets& targets) const {
  const std::string name = kernels().kernel_set();
  const auto is = [&](const char* card) { return name.find(card) != std::string::npos; };
  return is("H200") ? targets.h200 : is("H100") ? targets.h100 : 0.0;
}

double GpuSite::device_bytes_used() const {
  return static_cast<double>(kernels().device->memory_use().used_bytes);
}

double GpuSite::device_bytes_free() const {
  const kernels::DeviceMemory memory = kernels().device->memory_use();
  return static_cast<double>(memory.total_bytes - memory.used_bytes);
}

StepCase GpuSite::model(const std::string& name, const std::string& architecture,
                        std::int64_t vocabulary, const Words& full) const {
  const Words common = joined(kCommon, {fmt::format("model.arch=\"{}\"", architecture)});
  return {.name = name,
          .file = "quickstart.toml",
          .keys = joined(joined(common, full), options_.tiny ? kTiny : Words{}),
          .vocabulary = options_.tiny ? kByteVocabulary : vocabulary,
          .data = options_.data};
}

StepCase GpuSite::published(const std::string& name, const std::string& config,
                            std::int64_t vocabulary, const Words& keys) const {
  const Words tiny = {"batch.micro_batch=1", "data.sequence_length=8"};
  return {.name = name,
          .file = {},
          .keys = joined(joined(kCommon, keys), options_.tiny ? tiny : Words{}),
          .vocabulary = vocabulary,
          .published = config,
          .data = options_.data};
}

StepCase GpuSite::small_model() const {
  return {.name = "small",
          .file = "quickstart.toml",
          .keys = joined({"schedule.warmup_steps=2"},
                         options_.tiny ? joined(kTiny, {"batch.lanes=2"}) : Words{}),
          .vocabulary = kByteVocabulary,
          .data = options_.data};
}

Words GpuSite::words(const StepCase& one, const std::string& name, const Words& keys) const {
  Words words = {place_.paths().program, "run", file_of(place_, one)};
  for (const std::string& key :
       joined(joined(keys_of(place_, one), keys), {fmt::format("run.name=\"{}\"", name)})) {
    words.insert(words.end(), {"--set", key});
  }
  return words;
}

void GpuSite::run_to_end(const Words& words, const std::string& name) const {
  BenchChild child(words, place_.directory() / (name + ".err"));
  do {
    // A hanging device would hang the child, and so this process.
    if (!child.wait_readable(patience())) {
      throw std::runtime_error(
          fmt::format("a run has said nothing until the time was over: {}", child.errors()));
    }
  } while (child.read_line());
  if (const int code = child.wait(); code != 0) {
    throw std::runtime_error(fmt::format("a run failed ({}): {}", code, child.errors()));
  }
}

nlohmann::json GpuSite::profile(const StepCase& one, const std::string& name,
                                const Words& keys) const {
  run_to_end(joined(words(one, name, keys), {"--profile"}), name);
  std::ifstream file(run_directory(name) / "profile" / "summary.json");
  return nlohmann::json::parse(file).at("ranks").at(0);
}

FinishedRun GpuSite::run(const StepCase& one, const std::string& name, const Words& keys) const {
  run_to_end(words(one, name, keys), name);
  return {steps_of_run(name)};
}

void GpuSite::run_and_kill(const StepCase& one, const std::string& name, const Words& keys,
                           std::int64_t last) const {
  const auto begin = Clock::now();
  const double longest_s = patience();
  BenchChild child(words(one, name, keys), place_.directory() / (name + ".err"));
  for (;;) {
    const auto steps = steps_of_run(name);
    if (!steps.empty() && steps.back().at("step").get<std::int64_t>() >= last) {
      return;  // Ends the child.
    }
    if (!child.running()) {
      throw std::runtime_error(fmt::format("a run ended early: {}", child.errors()));
    }
    if (std::chrono::duration<double>(Clock::now() - begin).count() > longest_s) {
      throw std::runtime_error(
          fmt::format("a run came no further until the time was over: {}", child.errors()));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::vector<nlohmann::json> GpuSite::steps_of_run(const std::string& name) const {
  return steps_of(run_directory(name) / "metrics.jsonl");
}

bool GpuSite::has_checkpoint(const std::string& name, std::int64_t step) const {
  return fs::exists(run_directory(name) / "checkpoints" / fmt::format("step-{:08}", step));
}

void GpuSite::remove_run(const std::string& name) const { fs::remove_all(run_directory(name)); }

double GpuSite::state_bytes(const StepCase& one) const {
  constexpr double bytes_per_weight = 12.0;  // AdamW's state, in fp32.
  return bytes_per_weight *
         static_cast<double>(
             engine::count_parameters(plan_of_case(place_, one).engine.model).total);
}

double GpuSite::disk_bytes_free() const {
  return static_cast<double>(fs::space(place_.directory()).available);
}

std::string time_text(double seconds) { return fmt::format("{:9.1f} us", seconds * 1e6); }

std::string rate_text(double per_second, double scale, const char* unit, double limit) {
  std::string text = fmt::format("  {:8.1f} {}", per_second * scale, unit);
  if (limit > 0.0) {
    text += fmt::format("  {:5.1f} % of the device's", 100.0 * per_second / limit);
  }
  return text;
}

void print_skipped(const std::string& what, const std::string& why) {
  print_result(what, "skipped: " + why);
}

}  // namespace train::bench
