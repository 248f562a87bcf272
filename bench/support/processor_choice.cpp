#include "bench/support/processor_choice.hpp"

#include <cstdlib>
#include <string>

#include "tests/support/devices/instruction_sets.hpp"

namespace train::bench {

BenchPaths paths_for_processor(int& argc, char** argv) {
  BenchPaths paths;
  if (argc < 2 || std::string(argv[argc - 1]) != "avx2") {
    return paths;
  }
  --argc;
  test::do_without_instructions(test::kAvx512);
  paths.program = ACTORTRAIN_BINARY_DIR "/actortrain_faulty";
  ::setenv("ACTORTRAIN_TEST_NO_AVX512", "head,0", 1);
  ::setenv("ATEN_CPU_CAPABILITY", "avx2", 1);
  ::setenv("ONEDNN_MAX_CPU_ISA", "AVX2", 1);
  ::setenv("MKL_ENABLE_INSTRUCTIONS", "AVX2", 1);
  return paths;
}

}  // namespace train::bench
