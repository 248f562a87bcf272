#pragma once

#include <cstdint>

namespace train {

/// Descriptors that this process may have open at once, from here on as many as the system lets it:
/// the soft limit, often 1024, is raised to the hard one. Children inherit it.
std::int64_t raise_descriptor_limit();

}  // namespace train
