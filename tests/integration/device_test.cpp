// The whole program on a device that is not there (tests/guarded_device): the kernels of the CPU on
// memory that the host may not touch. So a run has the bits of one on the CPU.

#include "tests/integration/run_site.hpp"

using namespace train::test;

namespace {

const Words kKeys = {"run.digest_interval_steps=1", "optimizer.grad_clip=0.2", "runtime.threads=2"};

Words keys_of(const std::string& name, const std::string& device) {
  Words keys = kKeys;
  keys.push_back("run.name=" + name);
  keys.push_back("runtime.device=" + device);
  return keys;
}

Ended guarded(const RunSite& site, Words words) {
  words.insert(words.begin(), ACTORTRAIN_BINARY_DIR "/actortrain_guarded");
  Process process(std::move(words), site.path());
  Ended ended = process.wait();
  INFO(ended.err);
  CHECK(ended.signal == 0);
  REQUIRE(ended.exit_code == 0);
  return ended;
}

}  // namespace

TEST_CASE("device: a run is that of the CPU, bit for bit, also where it is resumed",
          "[integration][device][P1]") {
  const RunSite site;
  site.train(keys_of("cpu", "cpu"));
  const Words expected = results_of(site.run("cpu"));
  guarded(site, RunSite::run_words(keys_of("device", "cuda")));
  CHECK(results_of(site.run("device")) == expected);
  CHECK(checkpoint_steps(site.run("device")) == std::vector<std::int64_t>{10, 20});

  forget_after(site.run("device"), 10);
  const Ended resumed = guarded(site, RunSite::run_words(keys_of("device", "cuda")));
  CHECK(has(resumed.err, "resumed step=10 "));
  CHECK(results_of(site.run("device")) == expected);

  // What the device has saved the CPU goes on from.
  forget_after(site.run("device"), 10);
  const Ended on_cpu = site.train(keys_of("device", "cpu"));
  CHECK(has(on_cpu.err, "kernel_set_changed saved with guarded"));
  CHECK(results_of(site.run("device")) == expected);
}

TEST_CASE("device: evaluation, replay and text of a run on it", "[integration][device]") {
  const RunSite site;
  guarded(site, RunSite::run_words(keys_of("device", "cuda")));
  site.train(keys_of("cpu", "cpu"));
  const Ended evaluated = guarded(site, {"eval", "runs/device"});
  CHECK(evaluated.out == site.call({"eval", "runs/cpu"}).out);
  CHECK(has(evaluated.out, "eval step=20 "));
  guarded(site, {"replay", "runs/device", "--from", "8", "--to", "12"});
  CHECK(guarded(site, {"generate", "runs/device", "--tokens", "8"}).out ==
        site.call({"generate", "runs/cpu", "--tokens", "8"}).out);
}
