// Speed and memory of training published models on the CPU, against transformers on the same
// machine in the same run (bench/peers/README.md). Usage: bench_published [ROW] [avx2]; a row is
// one of those below. A missed target is reported, not a failure. Needs quiet cores.
#include "bench/published/import_rows.hpp"
#include "bench/published/scan_rows.hpp"
#include "bench/steps/step_bf16.hpp"
#include "bench/steps/step_compare.hpp"
#include "bench/steps/step_shares.hpp"
#include "bench/steps/step_sides.hpp"
#include "bench/support/bench_rows.hpp"
#include "bench/support/processor_choice.hpp"

namespace {

using namespace train::bench;

StepCase smollm2_case() { return published_case("smollm2-135m", 49152, /*seq_len=*/1024); }

void print_against_peer(const Workplace& place, const StepCase& one) {
  const Comparison result =
      compare(place, one, {.rounds = 5, .steps = 2, .dropped = 2, .thorough = false});
  print_speeds(place, one, result, 2.5);
  print_memory(one, result, std::nullopt);
}

void smollm2_row(const Workplace& place) { print_against_peer(place, smollm2_case()); }

void checkpointed_row(const Workplace& place) {
  StepCase one = smollm2_case();
  one.keys.push_back("memory.activation_checkpointing=10");
  one.keys.push_back("memory.checkpointed_part=\"mlp\"");
  print_against_peer(place, one);
}

/// OLMoE's form with 16 experts, 8 a token, 512 wide, 8 layers.
StepCase olmoe_case(const Workplace& place) {
  return published_case(place.paths().configs + "/../bench/published/olmoe_16.json", 50304,
                        /*seq_len=*/1024);
}

void olmoe_row(const Workplace& place) {
  const StepCase one = olmoe_case(place);
  const Comparison result =
      compare(place, one, {.rounds = 5, .steps = 2, .dropped = 2, .thorough = false});
  print_speeds(place, one, result, 1.5);
  print_memory(one, result, std::nullopt);
}

void olmoe_shares_row(const Workplace& place) {
  print_shares(place, olmoe_case(place), "OLMoE's form, 16 experts, T 1024", 4);
}

void shares_row(const Workplace& place) {
  print_shares(place, smollm2_case(), "smollm2-135m, T 1024", 4);
}

void bf16_row(const Workplace& place) {
  StepCase one = smollm2_case();
  print_bf16_gain(place, one, {.rounds = 5, .steps = 2, .dropped = 1}, 1.6);
  one.keys.push_back("precision.compute=\"bf16\"");
  print_shares(place, one, "smollm2-135m, T 1024, bf16", 4);
}

constexpr Row kRows[] = {
    {"smollm2", "SmolLM2-135M's shape, fresh weights, T = 1024, one sequence", smollm2_row},
    {"checkpointed", "the same, every tenth block computes its MLP again: less memory",
     checkpointed_row},
    {"bf16", "precision.compute = \"bf16\" against \"fp32\", and where its time goes", bf16_row},
    {"shares", "where the time of its step goes, kernel by kernel", shares_row},
    {"olmoe", "OLMoE's form with 16 experts, fresh weights, T = 1024, one sequence", olmoe_row},
    {"olmoe_shares", "where the time of its step goes, kernel by kernel", olmoe_shares_row},
    {"scans_short", "mamba-130m's and mamba2-130m's shapes, T = 128, one sequence",
     scans_short_row},
    {"scans_long", "the same, T = 1024, against GPT-2's shape in this engine", scans_long_row},
    {"scans_lengths", "four layers of them, T = 1024, 4096 and 16384", scans_lengths_row},
    {"scans_shares", "where the time of their steps goes, kernel by kernel", scans_shares_row},
    {"start", "a rank of four begins with a published model of 8 B weights", start_row},
};

}  // namespace

int main(int argc, char* argv[]) {
  const BenchPaths paths = paths_for_processor(argc, argv);
  return run_rows(kRows, argc, argv, paths);
}
