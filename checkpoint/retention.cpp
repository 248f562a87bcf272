#include "checkpoint/retention.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "checkpoint/layout.hpp"
#include "storage/atomic_file.hpp"

namespace train::checkpoint {

Result<std::vector<std::string>> retire_old(const std::filesystem::path& checkpoints,
                                            std::int64_t keep_last) {
  std::vector<std::string> retired;
  if (keep_last <= 0) {
    return retired;
  }
  const auto found = list_checkpoints(checkpoints);
  if (!found) {
    return found.error();
  }
  // From the oldest on: whatever interrupts this, the newest are untouched.
  for (std::size_t i = found->size(); i > static_cast<std::size_t>(keep_last); --i) {
    const std::filesystem::path& path = (*found)[i - 1].path;
    const std::string name = path.filename().string();
    const auto hidden = checkpoints / fmt::format(".retired-{}-{}", ::getpid(), name);
    TRAIN_RETURN_IF_ERROR(storage::rename_durably(path, hidden));
    TRAIN_RETURN_IF_ERROR(storage::remove_tree(hidden));
    retired.push_back(name);
  }
  return retired;
}

}  // namespace train::checkpoint
