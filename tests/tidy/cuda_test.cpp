// What CUDA sources may not do, because it would cost the same bits or hide a failed launch.
#include <catch2/catch.hpp>
#include <regex>
#include <string>

#include "tests/tidy/source_tree.hpp"

namespace train::tidy {
namespace {

bool is_cuda(const SourceFile& file) {
  return file.path.ends_with(".cu") || file.path.ends_with(".cuh");
}

Findings check_cuda(const SourceTree& tree) {
  static const std::regex kAtomic("\\batomic[A-Z]\\w*\\s*\\(");
  static const std::regex kInteger("unsigned long long|&fault->found|, 1U\\)|// Whole numbers");
  static const std::regex kFast("\\b__(expf|logf|powf|sinf|cosf|fdividef|frcp_\\w+)\\s*\\(");
  Findings findings;
  for (const SourceFile& file : tree) {
    for (std::size_t i = 0; is_cuda(file) && i < file.lines.size(); ++i) {
      const std::string& line = file.lines[i];
      if (std::regex_search(line, kAtomic) && !std::regex_search(line, kInteger)) {
        findings.push_back(
            finding(file, i, "atomics are for integers: sums of floats have an order"));
      }
      if (line.find("<<<") != std::string::npos) {
        findings.push_back(finding(file, i, "a launch that nobody checks; see kernels/launch.cuh"));
      }
      if (std::regex_search(line, kFast)) {
        findings.push_back(finding(file, i, "a function of fewer digits than the CPU's"));
      }
    }
  }
  return findings;
}

TEST_CASE("cuda: sources keep the order of sums, their digits, and check launches",
          "[tidy][cuda]") {
  const Findings findings = check_cuda(repository());
  INFO(joined(findings));
  CHECK(findings.empty());
}

TEST_CASE("cuda: every wrong line is found", "[tidy][cuda]") {
  const auto judge = [](const std::string& path, const std::string& line) {
    return check_cuda({make_file(path, line + "\n")}).size();
  };
  CHECK(judge("kernels/a.cu", "atomicAdd(&sum[i], value);") == 1);
  CHECK(judge("kernels/a.cuh",
              "kernel<"
              "<<1, 2>>>(p);") == 1);
  CHECK(judge("kernels/a.cu", "y = __expf(x);") == 1);
  CHECK(judge("kernels/a.cu", "atomicAdd(reinterpret_cast<unsigned long long*>(n), count);") == 0);
  CHECK(judge("kernels/a.cu", "atomicAdd(&counts[i], n);  // Whole numbers.") == 0);
  CHECK(judge("kernels/a.cu", "y = expf(x);") == 0);
  CHECK(judge("kernels/a.cpp", "y = __expf(x);") == 0);
}

}  // namespace
}  // namespace train::tidy
