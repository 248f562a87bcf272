// The whole program on devices that are not there: the kernels of the CPU on memory that the host
// may not touch (tests/guarded_device), so that a run has the bits of one on the CPU; and the
// kernels of CUDA, emulated on such memory (tests/cuda_emulation).

#include <algorithm>
#include <cmath>

#include "kernels/backend.hpp"
#include "tests/integration/sites/run_site.hpp"

using namespace train::test;
namespace kernels = train::kernels;

namespace {

const Words kDeviceKeys = {"run.digest_interval_steps=1", "optimizer.grad_clip=0.2",
                           "runtime.threads=2"};

Words keys_of(const std::string& name, const std::string& device) {
  Words keys = kDeviceKeys;
  keys.push_back("run.name=" + name);
  keys.push_back("runtime.device=" + device);
  return keys;
}

Ended call_program(const RunSite& site, const char* program, Words words) {
  words.insert(words.begin(), program);
  Process process(std::move(words), site.path());
  Ended ended = process.wait();
  INFO(ended.err);
  CHECK(ended.signal == 0);
  REQUIRE(ended.exit_code == 0);
  return ended;
}

Ended guarded(const RunSite& site, Words words) {
  return call_program(site, ACTORTRAIN_BINARY_DIR "/actortrain_guarded", std::move(words));
}

/// Few rows and steps: an emulated device takes milliseconds for each row.
Words few(const Words& keys) {
  Words all = {"run.steps=4",
               "data.sequence_length=8",
               "batch.micro_batch=1",
               "eval.interval_steps=2",
               "checkpoint.interval_steps=2",
               "run.digest_interval_steps=1",
               "schedule.warmup_steps=2"};
  all.insert(all.end(), keys.begin(), keys.end());
  return RunSite::run_words(all);
}

/// Results of the same run on the CPU.
const Words& cpu_results() {
  static const Words results = [] {
    const RunSite site;
    site.train(keys_of("cpu", "cpu"));
    return results_of(site.run("cpu"));
  }();
  return results;
}

Ended emulated(const RunSite& site, const Words& keys) {
  Words all = {"precision.compute=bf16", "runtime.device=cuda"};
  all.insert(all.end(), keys.begin(), keys.end());
  return call_program(site, ACTORTRAIN_BINARY_DIR "/actortrain_emulated", few(all));
}

}  // namespace

TEST_CASE("device: bf16 on emulated CUDA, with one rank, with several, and resumed",
          "[integration][.full][device][P1]") {
  const RunSite site;
  emulated(site, {"run.name=alone"});
  const Words expected = results_of(site.run("alone"));

  call_program(site, program(), few({"run.name=cpu"}));
  const auto fp32 = metrics_of(site.run("cpu"));
  const auto bf16 = metrics_of(site.run("alone"));
  REQUIRE(bf16.size() == fp32.size());
  double worst = 0.0;
  for (std::size_t i = 0; i < fp32.size(); ++i) {
    if (fp32[i].contains("loss")) {
      const double loss = fp32[i]["loss"];
      worst = std::max(worst, std::abs(bf16[i]["loss"].get<double>() - loss) / loss);
    }
  }
  CHECK(worst <= std::sqrt(8.0) / 256.0);  // Eight roundings of either sign.
  CHECK(worst > 1e-6);

  const std::vector<std::tuple<int, std::string, std::string>> plans = {
      {1, "none", "optimizer"}, {2, "full", "parameters"}, {3, "optimizer", "none"}};
  for (const auto& [ranks, strategy, offload] : plans) {
    INFO(ranks << " ranks, " << strategy << ", left to the host: " << offload);
    const std::string name = fmt::format("{}_{}", ranks, strategy);
    const Words keys = {"run.name=" + name,          fmt::format("parallel.ranks={}", ranks),
                        "parallel.transport=inproc", "parallel.strategy=" + strategy,
                        "memory.offload=" + offload, "runtime.threads=3"};
    emulated(site, keys);
    CHECK(results_of(site.run(name)) == expected);
    forget_after(site.run(name), 2);
    const Ended resumed = emulated(site, keys);
    CHECK(has(resumed.err, "resumed step=2 "));
    CHECK(results_of(site.run(name)) == expected);
  }
}

TEST_CASE("device: a run is that of the CPU, bit for bit, also where it is resumed",
          "[integration][.full][device][P1]") {
  const RunSite site;
  const Words& expected = cpu_results();
  guarded(site, RunSite::run_words(keys_of("device", "cuda")));
  CHECK(results_of(site.run("device")) == expected);
  CHECK(checkpoint_steps(site.run("device")) == std::vector<std::int64_t>{10, 20});

  forget_after(site.run("device"), 10);
  const Ended resumed = guarded(site, RunSite::run_words(keys_of("device", "cuda")));
  CHECK(has(resumed.err, "resumed step=10 "));
  CHECK(results_of(site.run("device")) == expected);

  // What the device has saved the CPU resumes from.
  forget_after(site.run("device"), 10);
  const Ended on_cpu = site.train(keys_of("device", "cpu"));
  CHECK(has(on_cpu.err, "kernel_set_changed saved with guarded"));
  CHECK(results_of(site.run("device")) == expected);
}

TEST_CASE("device: several ranks on it, in one process, have the bits of one on the CPU",
          "[integration][.full][device][P1]") {
  const RunSite site;
  const Words& expected = cpu_results();
  const auto [ranks, strategy] = GENERATE(
      table<int, std::string>({{2, "none"}, {2, "full"}, {3, "optimizer"}, {3, "gradient"}}));
  INFO(ranks << " ranks, " << strategy);
  Words keys = keys_of("device", "cuda");
  keys.insert(keys.end(), {fmt::format("parallel.ranks={}", ranks), "parallel.transport=inproc",
                           "parallel.strategy=" + strategy, "runtime.threads=3"});
  guarded(site, RunSite::run_words(keys));
  CHECK(results_of(site.run("device")) == expected);

  forget_after(site.run("device"), 10);
  const Ended resumed = guarded(site, RunSite::run_words(keys));
  CHECK(has(resumed.err, "resumed step=10 "));
  CHECK(results_of(site.run("device")) == expected);
}

TEST_CASE("device: evaluation, replay and text of a run on it", "[integration][.full][device]") {
  const RunSite site;
  guarded(site, RunSite::run_words(keys_of("device", "cuda")));
  site.train(keys_of("cpu", "cpu"));
  const Ended evaluated = guarded(site, {"eval", "runs/device"});
  CHECK(evaluated.out == site.call({"eval", "runs/cpu"}).out);
  CHECK(has(evaluated.out, "eval step=20 "));
  guarded(site, {"replay", "runs/device", "--from", "8", "--to", "12"});
  if (kernels::cuda_backend() == nullptr) {  // the program without that device
    for (const char* command : {"eval", "replay"}) {
      const Ended refused = site.call({command, "runs/device"});
      CHECK(refused.exit_code == 2);
      CHECK(has(refused.err, "give --device cpu"));
    }
  }
  const std::string cpu = "--device=cpu";
  CHECK(site.call({"eval", "runs/device", cpu}).out == evaluated.out);
  CHECK(site.call({"replay", "runs/device", "--from", "8", "--to", "12", cpu}).exit_code == 0);
  CHECK(guarded(site, {"generate", "runs/device", "--tokens", "8"}).out ==
        site.call({"generate", "runs/cpu", "--tokens", "8"}).out);
}
