// Runs with precision.compute = "bf16" on the CPU, whose products are those of a kernel set of its
// own where the processor has AVX512_BF16.

#include <algorithm>
#include <cmath>

#include "kernels/backend.hpp"
#include "tests/integration/sites/killed_runs.hpp"

using namespace train::test;

namespace {

const Words kBf16 = {"precision.compute=bf16", "run.digest_interval_steps=1"};

bool has_products() {
  if (train::kernels::cpu_bf16_backend() != nullptr) {
    return true;
  }
  WARN("skipped: this processor has no AVX512_BF16, so no other kernel set");
  return false;
}

/// The program; the ranks that `roles` names run as on a processor without AVX-512.
Ended without_avx512(const RunSite& site, const std::string& roles, const Words& keys) {
  Process process(joined({"/usr/bin/env", "ACTORTRAIN_TEST_NO_AVX512=" + roles, faulty_program()},
                         RunSite::run_words(joined(kBf16, keys))),
                  site.path());
  return process.wait();
}

/// The largest difference between the losses of two runs, as a part of the latter's.
double largest_difference(const fs::path& run, const fs::path& reference) {
  const auto found = metrics_of(run);
  const auto expected = metrics_of(reference);
  REQUIRE(found.size() == expected.size());
  double largest = 0.0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (expected[i].contains("loss")) {
      const double loss = expected[i]["loss"];
      largest = std::max(largest, std::abs(found[i]["loss"].get<double>() - loss) / loss);
    }
  }
  return largest;
}

}  // namespace

TEST_CASE("bf16: a run has the same bits with one rank and with two, and any threads",
          "[integration][bf16][ranks][P1]") {
  const RunSite site;
  site.train(joined(kBf16, {"run.name=one"}));
  const Words expected = results_of(site.run("one"));
  site.train(joined(kBf16, {"run.name=threads", "runtime.threads=2"}));
  CHECK(results_of(site.run("threads")) == expected);
  for (const std::string strategy : {"none", "full"}) {
    INFO(strategy);
    site.train(rank_keys(2, strategy, joined(kBf16, {"run.name=" + strategy})));
    CHECK(results_of(site.run(strategy)) == expected);
  }
  const bool products = train::kernels::cpu_bf16_backend() != nullptr;
  CHECK(manifest_of(site.run("one"), 20).fields.kernel_set ==
        (products ? "cpu-bf16-2" : "cpu-fma-2"));

  site.train({"run.name=fp32", "run.digest_interval_steps=1"});
  CHECK(manifest_of(site.run("fp32"), 20).fields.kernel_set == "cpu-fma-2");
  const double difference = largest_difference(site.run("one"), site.run("fp32"));
  CHECK(difference > 0.0);
  CHECK(difference < 0.01);
}

TEST_CASE("bf16: a checkpoint goes on where its products are not to be had, with a note",
          "[integration][bf16]") {
  if (!has_products()) {
    return;
  }
  const RunSite site;
  site.train(kBf16);
  forget_after(site.run(), 10);
  const Ended resumed = without_avx512(site, "head", {});
  INFO(resumed.err);
  CHECK(resumed.exit_code == 0);
  CHECK(has(resumed.err, "kernel_set_changed saved with cpu-bf16-2, running on cpu-fma-2"));
  CHECK(manifest_of(site.run(), 20).fields.kernel_set == "cpu-fma-2");
}

TEST_CASE("bf16: ranks of which one lacks the products are refused in a line",
          "[integration][bf16][ranks]") {
  if (!has_products()) {
    return;
  }
  const RunSite site;
  const Ended ended = without_avx512(site, "1", rank_keys(2, "full"));
  INFO(ended.err);
  CHECK(ended.signal == 0);
  CHECK(ended.exit_code != 0);
  const Words lines = lines_of(ended.err);
  CHECK(std::count_if(lines.begin(), lines.end(),
                      [](const std::string& line) { return line.starts_with("error "); }) == 1);
  CHECK(has(ended.err, "rank 1 computes with cpu-fma-2, the head with cpu-bf16-2: "));
}

TEST_CASE("bf16: the quickstart's losses stay within a percent of fp32's",
          "[integration][.full][bf16]") {
  const RunSite site;
  for (const std::string compute : {"fp32", "bf16"}) {
    Words words = {"run", ACTORTRAIN_SOURCE_DIR "/configs/quickstart.toml"};
    for (const std::string& key :
         {std::string("run.steps=6"), std::string("eval.interval_steps=0"),
          std::string("schedule.warmup_steps=2"), "data.dir=" + prepared_data().string(),
          "run.name=" + compute, "precision.compute=" + compute,
          std::string("run.sample_tokens=0")}) {
      words.insert(words.end(), {"--set", key});
    }
    const Ended ended = site.call(words);
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
  }
  const double difference = largest_difference(site.run("bf16"), site.run("fp32"));
  CHECK(difference > 0.0);
  CHECK(difference < 0.01);
}
