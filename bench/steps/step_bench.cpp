// Speed and memory of a training step on the CPU, against PyTorch on the same machine in the same
// run (bench/peers/README.md). Usage: bench_step [ROW] [avx2]; a row is one of those below. A
// missed target is reported, not a failure. Needs quiet cores; figures from a busy machine are
// misleading.
#include "bench/steps/step_rows.hpp"
#include "bench/support/bench_rows.hpp"
#include "bench/support/processor_choice.hpp"

namespace {

using namespace train::bench;

constexpr Row kRows[] = {
    {"gpt2_124m", "Enoki, 124 M weights, T = 1024, one lane of one sequence", gpt2_row},
    {"checkpointed", "the same, every third block computes its MLP again: less memory",
     checkpointed_row},
    {"gpt2_lanes", "Enoki, 124 M weights, with 4 lanes", gpt2_lanes_row},
    {"short", "the same model, T = 64, one lane of 4 sequences", short_row},
    {"quickstart", "configs/quickstart.toml: 1 M weights, 4 lanes of 4 x 256", quickstart_row},
    {"qwen3_2h", "qwen3 with 2 heads, 29 M weights, 4 lanes of 2 x 512", qwen3_row},
    {"determinism", "precision.determinism = \"world\" against \"run\", 8 lanes",
     determinism_price_row},
    {"bf16", "precision.compute = \"bf16\" against \"fp32\", and where its time goes", bf16_row},
    {"shares", "where the time of a step goes, kernel by kernel", shares_row},
};

}  // namespace

int main(int argc, char* argv[]) {
  const BenchPaths paths = paths_for_processor(argc, argv);
  return run_rows(kRows, argc, argv, paths);
}
