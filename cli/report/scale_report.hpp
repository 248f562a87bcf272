#pragma once

#include <string>

#include "base/result.hpp"
#include "cli/options.hpp"

namespace train::cli {

/// Results of the rule for each number of heads, as a table or as a JSON list. Blocks on the file
/// system if a file of rules is given. Errors (user): unknown rule, no learning rate for the
/// optimizer, heads that give no model.
[[nodiscard]] Result<std::string> describe_scaling(const ScaleOptions& options);

}  // namespace train::cli
