#pragma once

#include "bench/ranks_support.hpp"

namespace train::bench {

/// Where the last word is "avx2", takes it away and lets this process, the program that it runs and
/// PyTorch do without AVX-512 from now on; otherwise changes nothing. First thing in main(): later
/// a library may have looked at its variables.
[[nodiscard]] BenchPaths paths_for_processor(int& argc, char** argv);

}  // namespace train::bench
