#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "storage/kv_store.hpp"

namespace train::cli {

/// Range of steps: the first, and one past the last.
struct StepSpan {
  std::int64_t first = 0;
  std::int64_t end = std::numeric_limits<std::int64_t>::max();
};

/// Configuration changes between starts of a run after the steps of `range`: texts of
/// change_text(), oldest first, as far as the index in `store` has them. Blocks. Errors: the
/// store's.
[[nodiscard]] Result<std::vector<std::string>> changed_keys(storage::KvStore& store,
                                                            StepSpan range = {});

/// "changed between starts: step=20 key=run.steps old=20 new=40", the newest few; empty: no
/// changes.
[[nodiscard]] std::string changed_keys_text(const std::vector<std::string>& changes);

}  // namespace train::cli
