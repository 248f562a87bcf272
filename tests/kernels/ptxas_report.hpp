#pragma once

#include <istream>
#include <regex>
#include <string>
#include <vector>

namespace train::kernels::testing {

/// What a function of a report of ptxas takes.
struct Usage {
  std::string function;
  int spilled_bytes = 0;
};

/// Reads a report of ptxas: a line that names the function, then one with its spills.
inline std::vector<Usage> usages_of(std::istream& report) {
  static const std::regex kFunction("Function properties for (\\S+)");
  static const std::regex kSpills("(\\d+) bytes spill stores, (\\d+) bytes spill loads");
  std::vector<Usage> usages;
  std::string function;
  for (std::string line; std::getline(report, line);) {
    std::smatch match;
    if (std::regex_search(line, match, kFunction)) {
      function = match[1];
    } else if (std::regex_search(line, match, kSpills)) {
      usages.push_back({function, std::stoi(match[1]) + std::stoi(match[2])});
    }
  }
  return usages;
}

}  // namespace train::kernels::testing
