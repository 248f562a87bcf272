#include "base/process/descriptor_limit.hpp"

#include <sys/resource.h>

#include <algorithm>

namespace train {
namespace {

/// Limited, as child programs may iterate over all possible descriptors: without a limit, as in
/// some containers, that would take minutes.
constexpr rlim_t kMost = rlim_t{1} << 20;

}  // namespace

std::int64_t raise_descriptor_limit() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return 0;
  }
  const rlim_t before = limit.rlim_cur;
  limit.rlim_cur = std::max(before, std::min(limit.rlim_max, kMost));
  const bool raised = ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
  return static_cast<std::int64_t>(std::min(raised ? limit.rlim_cur : before, kMost));
}

}  // namespace train
