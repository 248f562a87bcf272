#pragma once

#include <cstdint>

namespace train::kernels::cpu {

/// Probabilities of a row of a router's logits, softmax in single precision, and log sum exp of the
/// logits. All are NaN if a logit is NaN or +Inf or all are -Inf. In place if wanted.
double router_probabilities(const float* logits, std::int64_t experts, float* probabilities);

}  // namespace train::kernels::cpu
