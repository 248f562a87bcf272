// What the CUDA compiler made of the kernels, instruction by instruction: products on tensor cores
// where they are meant to be, and no sum of floats whose order the machine would choose.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/kernels/device_objects.hpp"
#include "tests/kernels/kernel_fixture.hpp"

namespace train::kernels::testing::cuda_sass_test {
namespace {

/// How often each instruction, with all that qualifies it, occurs in a function.
struct Function {
  std::string name;
  std::map<std::string, int> instructions;

  /// Instructions whose name matches.
  [[nodiscard]] int count(const std::string& pattern) const {
    const std::regex regex(pattern);
    int total = 0;
    for (const auto& [instruction, times] : instructions) {
      total += std::regex_search(instruction, regex) ? times : 0;
    }
    return total;
  }
};

constexpr const char* tensor_product = "^HMMA\\.16816\\.F32\\.BF16";
constexpr const char* warpgroup_product = "^HGMMA\\.64x(64|128)x16\\.F32\\.BF16";
constexpr const char* matrix_load = "^LDSM\\.16\\.M88\\.4";
constexpr const char* transposed_load = "^LDSM\\.16\\.MT88\\.4";
constexpr const char* asynchronous_copy = "^LDGSTS";
constexpr const char* copy_of_box = "^UTMALDG";
constexpr const char* wide_load = "^LDG\\.E\\.128";
constexpr const char* wide_store = "^STG\\.E\\.128";
constexpr const char* float_atomic = "^(RED|REDG|REDS|REDUX|ATOM|ATOMG|ATOMS)\\..*\\bB?F(16|32|64)";

/// The instruction of a line, after its address and perhaps a predicate; empty: it has none.
/// Searched by hand, because a disassembly has millions of lines and std::regex takes minutes for
/// them.
std::string_view instruction_in(std::string_view line) {
  constexpr std::string_view kSpace = " \t";
  const auto skip = [&line](std::size_t count) {
    line.remove_prefix(std::min(count, line.size()));
  };
  skip(line.find_first_not_of(kSpace));
  if (!line.starts_with("/*")) {
    return {};
  }
  skip(2);
  const std::size_t digits = line.find_first_not_of("0123456789abcdef");
  if (digits == 0 || digits == std::string_view::npos || !line.substr(digits).starts_with("*/")) {
    return {};
  }
  skip(digits + 2);
  skip(line.find_first_not_of(kSpace));
  if (line.starts_with("@")) {
    skip(line.find_first_of(kSpace));
    skip(line.find_first_not_of(kSpace));
  }
  if (line.empty() || line.front() < 'A' || line.front() > 'Z') {
    return {};
  }
  return line.substr(0, line.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.x"));
}

/// Reads a disassembly: a line that names a function, then its instructions.
std::vector<Function> functions_of(std::istream& disassembly) {
  constexpr std::string_view kFunction = "Function : ";
  std::vector<Function> functions;
  for (std::string line; std::getline(disassembly, line);) {
    if (const std::string_view instruction = instruction_in(line); !instruction.empty()) {
      if (!functions.empty()) {
        ++functions.back().instructions[std::string(instruction)];
      }
    } else if (const std::size_t at = line.find(kFunction); at != std::string::npos) {
      const std::string name = line.substr(at + kFunction.size());
      functions.push_back({name.substr(0, name.find_first_of(" \t")), {}});
    }
  }
  return functions;
}

/// What a command prints; empty when it cannot be run or fails.
std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen((command + " 2>/dev/null").c_str(), "r"),
                                                   pclose);
  std::string text;
  std::array<char, 1 << 16> part{};
  while (pipe != nullptr) {
    const std::size_t size = std::fread(part.data(), 1, part.size(), pipe.get());
    if (size == 0) {
      break;
    }
    text.append(part.data(), size);
  }
  return text;
}

/// cuobjdump of PATH or of the toolkit, with nvdisasm, which it runs; empty where one is missing.
std::string disassembler() {
  const std::string toolkit = "PATH=\"$PATH:" + std::string(ACTORTRAIN_CUDA_BIN_DIR) + "\" ";
  const bool there = !output_of(toolkit + "sh -c 'command -v cuobjdump'").empty() &&
                     !output_of(toolkit + "sh -c 'command -v nvdisasm'").empty();
  return there ? toolkit + "cuobjdump -sass " : "";
}

/// Functions of an object of device code, which is disassembled once for all cases.
const std::vector<Function>& functions_in(const std::string& disassemble, const std::string& name) {
  static std::map<std::string, std::vector<Function>> known;
  const std::string object = std::string(ACTORTRAIN_DEVICE_OBJECTS "/") + name;
  INFO(object);
  REQUIRE(std::filesystem::exists(object));
  if (const auto found = known.find(name); found != known.end()) {
    return found->second;
  }
  std::istringstream text(output_of(disassemble + object));
  return known[name] = functions_of(text);
}

/// Whether there is nothing to disassemble with; says so.
bool no_disassembler(const std::string& disassemble) {
  const bool compiled =
      std::filesystem::exists(ACTORTRAIN_DEVICE_OBJECTS "/norm/norm_forward.cu.o");
  if (compiled && !disassemble.empty()) {
    return false;
  }
  std::printf("skipped: instructions of CUDA kernels: %s\n",
              compiled ? "there is no cuobjdump, or no nvdisasm" : "this build has no CUDA");
  return true;
}

TEST_CASE("cuda sass: attention in bf16 multiplies on tensor cores",
          "[kernels][cuda][.cuda_sass]") {
  const std::string disassemble = disassembler();
  if (no_disassembler(disassemble)) {
    return;
  }
  const std::map<std::string, std::size_t> kernels_in_source = {
      {"attention/tensor_cores/attention_forward_mma.cu", 6},
      {"attention/tensor_cores/attention_backward_mma.cu", 12}};
  for (const auto& [source, kernels] : kernels_in_source) {
    std::size_t products = 0;
    std::size_t architectures = 0;
    for (const Function& function : functions_in(disassemble, device_object_of(source))) {
      INFO(source << ": " << function.name);
      if (function.name.find("attention_delta") != std::string::npos) {
        ++architectures;  // Sums of rows, once for each of three widths.
        continue;
      }
      ++products;
      std::printf("%s: %d HMMA, %d LDSM, %d LDGSTS of %d\n", function.name.c_str(),
                  function.count(tensor_product), function.count("^LDSM"),
                  function.count(asynchronous_copy), function.count(""));
      CHECK(function.count(tensor_product) > 0);
      CHECK(function.count(matrix_load) > 0);
      CHECK(function.count(transposed_load) > 0);
      CHECK(function.count(asynchronous_copy) > 0);
      CHECK(function.count("^(STL|LDL)") == 0);
    }
    CHECK(products > 0);
    CHECK(products % kernels == 0);
    CHECK(architectures % 3 == 0);
  }
}

TEST_CASE("cuda sass: attention in bf16 multiplies with warpgroups where a device can",
          "[kernels][cuda][.cuda_sass]") {
  const std::string disassemble = disassembler();
  if (no_disassembler(disassemble)) {
    return;
  }
  // Two widths, with limited sight and without.
  const std::map<std::string, std::size_t> kernels_in_source = {
      {"attention/tensor_cores/attention_forward_wgmma.cu", 4},
      {"attention/tensor_cores/attention_backward_wgmma.cu", 8}};
  for (const auto& [source, kernels] : kernels_in_source) {
    const std::vector<Function>& functions = functions_in(disassemble, device_object_of(source));
    CHECK(functions.size() == 2 * kernels);  // For two devices.
    std::size_t multiplying = 0;
    for (const Function& function : functions) {
      INFO(source << ": " << function.name);
      if (function.count("") < 40) {
        continue;  // Of the device that cannot: nothing is there, and nobody launches it.
      }
      ++multiplying;
      std::printf("%s: %d HGMMA, %d UTMALDG of %d\n", function.name.c_str(),
                  function.count(warpgroup_product), function.count(copy_of_box),
                  function.count(""));
      CHECK(function.count(warpgroup_product) > 0);
      CHECK(function.count("^HGMMA") == function.count(warpgroup_product));
      CHECK(function.count(copy_of_box) > 0);
      CHECK(function.count("^USETMAXREG") > 0);           // Warpgroups of different tasks.
      CHECK(function.count("^(HMMA|LDSM|LDGSTS)") == 0);  // Own rows stay in shared memory.
      CHECK(function.count("^(STL|LDL)") == 0);
    }
    CHECK(multiplying == kernels);
  }
}

TEST_CASE("cuda sass: products of experts in bf16 are on tensor cores",
          "[kernels][cuda][.cuda_sass]") {
  const std::string disassemble = disassembler();
  if (no_disassembler(disassemble)) {
    return;
  }
  const std::vector<Function>& functions =
      functions_in(disassemble, device_object_of("experts/expert_matmul_mma.cu"));
  CHECK(!functions.empty());
  CHECK(functions.size() % 6 == 0);  // Three products, two types of C.
  for (const Function& function : functions) {
    INFO(function.name);
    std::printf("%s: %d HMMA, %d LDSM, %d LDGSTS of %d\n", function.name.c_str(),
                function.count(tensor_product), function.count("^LDSM"),
                function.count(asynchronous_copy), function.count(""));
    CHECK(function.count(tensor_product) > 0);
    CHECK(function.count(matrix_load) + function.count(transposed_load) > 0);
    CHECK(function.count("^LDSM") == function.count(matrix_load) + function.count(transposed_load));
    CHECK(function.count(asynchronous_copy) > 0);
    CHECK(function.count("^(STL|LDL)") == 0);
  }
}

TEST_CASE("cuda sass: norms of aligned rows move 16 bytes at once", "[kernels][cuda][.cuda_sass]") {
  const std::string disassemble = disassembler();
  if (no_disassembler(disassemble)) {
    return;
  }
  for (const char* source : {"norm/norm_forward.cu", "norm/norm_backward.cu"}) {
    std::size_t aligned = 0;
    for (const Function& function : functions_in(disassemble, device_object_of(source))) {
      if (function.name.find("ELb1ELb") == std::string::npos) {
        continue;  // Rows that are not aligned: shape, whether aligned, whether rotated.
      }
      ++aligned;
      INFO(source << ": " << function.name);
      CHECK(function.count(wide_load) > 0);
      CHECK(function.count(wide_store) > 0);
      CHECK(function.count("^(LDG|STG)\\.E\\.(U16|U8)") == 0);
      CHECK(function.count("^(STL|LDL)") == 0);
    }
    CHECK(aligned > 0);
  }
}

TEST_CASE("cuda sass: no kernel adds floats in an order of the machine's",
          "[kernels][cuda][.cuda_sass][P1]") {
  const std::string disassemble = disassembler();
  if (no_disassembler(disassemble)) {
    return;
  }
  std::set<std::string> objects;
  for (const std::string& source : device_sources()) {
    objects.insert(device_object_of(source));
  }
  for (const std::string& object : objects) {
    const std::vector<Function>& functions = functions_in(disassemble, object);
    INFO(object);
    REQUIRE_FALSE(functions.empty());
    for (const Function& function : functions) {
      INFO(function.name);
      CHECK(function.count("") > 0);
      CHECK(function.count(float_atomic) == 0);
    }
  }
}

TEST_CASE("cuda sass: instructions are told apart", "[kernels][cuda]") {
  std::istringstream text(
      "\t\tFunction : first\n"
      "        /*0000*/                   LDC R1, c[0x0][0x28] ;   /* 0x00000a00ff017b82 */\n"
      "                                                            /* 0x000e220000000800 */\n"
      "        /*0010*/              @!P1 HMMA.16816.F32.BF16 R4, R8, R2, R4 ;\n"
      "        /*0020*/                   LDSM.16.MT88.4 R4, [R2] ;\n"
      "\t\tFunction : second\n"
      "        /*0000*/               @P0 RED.E.ADD.F32.FTZ.RN.STRONG.GPU [R2.64], R5 ;\n"
      "        /*0010*/                   ATOMG.E.CAS.STRONG.GPU PT, R2, [R2], R4, R5 ;\n"
      "        /*0020*/                   ATOMG.E.ADD.64.STRONG.GPU PT, R2, [R2], R4, R5 ;\n"
      "        /*0030*/                   HGMMA.64x128x16.F32.BF16 R24, R24, gdesc[UR4], R4 ;\n");
  const std::vector<Function> functions = functions_of(text);
  REQUIRE(functions.size() == 2);
  CHECK(functions[0].name == "first");
  CHECK(functions[0].count("") == 3);
  CHECK(functions[0].count(tensor_product) == 1);
  CHECK(functions[0].count(transposed_load) == 1);
  CHECK(functions[0].count(matrix_load) == 0);
  CHECK(functions[0].count(float_atomic) == 0);
  CHECK(functions[1].count(float_atomic) == 1);
  CHECK(functions[0].count(warpgroup_product) == 0);
  CHECK(functions[1].count(warpgroup_product) == 1);
}

}  // namespace
}  // namespace train::kernels::testing::cuda_sass_test
