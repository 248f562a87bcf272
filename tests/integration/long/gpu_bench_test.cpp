// The benchmark of a GPU (`./dev bench gpu`) from its first line to its last, on emulated CUDA and
// models of a few weights: every row measures something or says why not. Without a device the same
// program says so, and no more.

#include "tests/integration/sites/run_site.hpp"

using namespace train::test;

TEST_CASE("gpu bench: every row has a figure or a reason", "[integration][.full][bench]") {
  const RunSite site;
  Process process({ACTORTRAIN_BINARY_DIR "/emulated_bench_gpu", "--tiny", "--program",
                   ACTORTRAIN_BINARY_DIR "/actortrain_emulated"},
                  site.path());
  const Ended ended = process.wait();
  INFO(ended.out << ended.err);
  CHECK(ended.exit_code == 0);
  CHECK_FALSE(has(ended.out, "could not be measured"));
  for (const char* const figure : {"attention backward",
                                   "adamw_update",
                                   "head_loss",
                                   "matmul dW",
                                   "124M: ours, tokens/s",
                                   "1.5B: ours, tokens/s",
                                   "0.6B: ours, tokens/s",
                                   "8B: ours, tokens/s",
                                   "8B: predicted memory, GB",
                                   "0.6B, T 4096: ours, share of what a product reaches",
                                   "Qwen2.5-0.5B: ours, tokens/s",
                                   "Qwen2.5-1.5B: ours, tokens/s",
                                   "Qwen2.5-3B: ours, tokens/s",
                                   "attention backward 1 x T 16, 1 x 128",
                                   "124M, 4 lanes: price of determinism",
                                   "1.5B: price of a checkpoint every 3 steps",
                                   "1.5B: its checkpoint, GB",
                                   "124M: a step of the plain loop",
                                   "124M: a step with actors / one of the plain loop",
                                   "124M: longest time without work"}) {
    INFO(figure);
    CHECK(has(ended.out, figure));
  }
  for (const Words& parts : {Words{"fp32: loss off that of the CPU by", "target <= 1e-05: met"},
                             Words{"resumed: steps with other bits", "0 of 6   target 0: met"},
                             Words{"2 ranks on a device, \"none\"", "0 of 3   target 0: met"},
                             Words{"2 ranks on a device, \"full\"", "0 of 3   target 0: met"},
                             Words{"124M: steps measured; left out, the first ones", "4; 3"}}) {
    INFO(parts[0]);
    const std::size_t at = ended.out.find(parts[0]);
    REQUIRE(at != std::string::npos);
    CHECK(has(ended.out.substr(at, ended.out.find('\n', at) - at), parts[1]));
  }
  CHECK(has(ended.out, "124M: measured memory"));  // Nobody counts an emulated device's.
}

TEST_CASE("gpu bench: a row alone, and rows that there is no time for",
          "[integration][.full][bench]") {
  const RunSite site;
  const auto call = [&](const Words& words) {
    Words all = {ACTORTRAIN_BINARY_DIR "/emulated_bench_gpu", "--tiny"};
    all.insert(all.end(), words.begin(), words.end());
    return Process(all, site.path()).wait();
  };
  const Ended late = call({"--seconds", "1", "8b"});
  CHECK(late.exit_code == 0);
  CHECK(has(late.out, "skipped: "));
  CHECK_FALSE(has(late.out, "kernels:"));
  const Ended wrong = call({"gpt5"});
  CHECK(wrong.exit_code == 2);
  CHECK(has(wrong.out, "no row or option \"gpt5\"; rows: kernels"));
}
