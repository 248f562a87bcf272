#pragma once

#include <cstdint>

#include "base/result.hpp"
#include "checkpoint/format/reference_file.hpp"
#include "run/plan/run_plan.hpp"

namespace train::run {

/// Key of the run's reference: the inputs that its log-probabilities depend on. Blocks; see
/// weights_fingerprint(). Without `with_model` the key omits the weights, and nothing is read.
[[nodiscard]] Result<checkpoint::ReferenceKey> reference_key(const RunPlan& plan, bool with_model);

/// Number of commands of the reference sweep that a killed start of the run has stored; 0: there is
/// no sweep, or it begins again. Blocks. Errors: those of reference_key().
[[nodiscard]] Result<std::int64_t> references_done(const RunPlan& plan);

}  // namespace train::run
