// The program that libFuzzer makes of a target. With ACTORTRAIN_FUZZ_SEEDS=DIRECTORY it writes the
// target's seeds and its dictionary there instead, and ends.
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>

#include "tests/fuzz/target.hpp"

namespace {

const train::fuzz::Target& target() {
  static const train::fuzz::Target the_target = train::fuzz::ACTORTRAIN_FUZZ_TARGET();
  return the_target;
}

std::string dictionary() {
  std::string text;
  for (const std::string& word : target().words) {
    text += '"';
    for (const char letter : word) {
      text += fmt::format("\\x{:02x}", static_cast<unsigned char>(letter));
    }
    text += "\"\n";
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*count*/, char*** /*arguments*/) {
  if (const char* directory = std::getenv("ACTORTRAIN_FUZZ_SEEDS")) {
    std::size_t number = 0;
    for (const std::string& seed : target().seeds()) {
      std::ofstream(std::filesystem::path(directory) / fmt::format("seed-{}", number++),
                    std::ios::binary)
          << seed;
    }
    std::ofstream(std::filesystem::path(directory).concat(".dict")) << dictionary();
    std::exit(0);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    target().run({reinterpret_cast<const char*>(data), size});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::abort();
  }
  return 0;
}
