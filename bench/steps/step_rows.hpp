#pragma once

#include "bench/ranks/ranks_support.hpp"

// Rows of bench_step; their output is described in step_bench.cpp.
namespace train::bench {

void gpt2_row(const Workplace& place);
void checkpointed_row(const Workplace& place);
void gpt2_lanes_row(const Workplace& place);
void short_row(const Workplace& place);
void quickstart_row(const Workplace& place);
void qwen3_row(const Workplace& place);
void determinism_price_row(const Workplace& place);
void bf16_row(const Workplace& place);
void shares_row(const Workplace& place);

}  // namespace train::bench
