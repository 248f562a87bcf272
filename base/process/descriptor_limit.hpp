#pragma once

#include <cstdint>

namespace train {

/// Raises the soft limit of open descriptors, often 1024, to the hard one, and returns it. Children
/// inherit it.
std::int64_t raise_descriptor_limit();

}  // namespace train
