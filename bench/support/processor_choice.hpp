#pragma once

#include "bench/ranks/ranks_support.hpp"

namespace train::bench {

/// If the last argument is "avx2", removes it and disables AVX-512 for this process, the program
/// that it runs and PyTorch; otherwise a no-op. Call it first in main(): later a library may have
/// read its variables.
[[nodiscard]] BenchPaths paths_for_processor(int& argc, char** argv);

}  // namespace train::bench
