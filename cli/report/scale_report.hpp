#pragma once

#include <string>

#include "base/result.hpp"
#include "cli/options.hpp"

namespace train::cli {

/// What the rule makes of each number of heads, as a table for people or as a JSON list. Blocks on
/// the file system where a file of rules is named. Errors (user): no such rule, no learning rate
/// for the optimizer, heads that give no model.
[[nodiscard]] Result<std::string> describe_scaling(const ScaleOptions& options);

}  // namespace train::cli
