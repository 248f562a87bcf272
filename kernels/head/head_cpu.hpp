#pragma once

#include "kernels/cpu_support.hpp"

namespace train::kernels::cpu {

/// The kernels of the head with the products of a kernel set.
void head_loss_with(const HeadLossParams& p, int threads, Product multiply);
void token_log_probs_with(const TokenLogProbsParams& p, int threads, Product multiply);

}  // namespace train::kernels::cpu
