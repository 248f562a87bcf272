#pragma once

#include <sstream>
#include <string>

#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/harness/error_output_file.hpp"

namespace train::test {

/// Captures the log lines of this process during its lifetime.
class LogLines {
 public:
  /// Number of lines that contain `part`.
  [[nodiscard]] int count(const std::string& part) const {
    std::istringstream lines(read_bytes(directory_ / "log"));
    int found = 0;
    for (std::string line; std::getline(lines, line);) {
      found += line.find(part) != std::string::npos ? 1 : 0;
    }
    return found;
  }

 private:
  TempDirectory directory_;
  ErrorOutputFile log_{directory_ / "log"};
};

}  // namespace train::test
