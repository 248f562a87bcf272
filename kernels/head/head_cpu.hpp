#pragma once

#include "kernels/cpu_support.hpp"

namespace train::kernels {

struct HeadLossParams;
struct TokenLogProbsParams;

}  // namespace train::kernels

namespace train::kernels::cpu {

/// Kernels of the head, with the product of a kernel set.
void head_loss_with(const HeadLossParams& p, int threads, Product multiply);
void token_log_probs_with(const TokenLogProbsParams& p, int threads, Product multiply);

}  // namespace train::kernels::cpu
