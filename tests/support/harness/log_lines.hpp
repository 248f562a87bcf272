#pragma once

#include <filesystem>
#include <sstream>
#include <string>

#include "base/check.hpp"
#include "base/log.hpp"
#include "tests/support/disks/temp_directory.hpp"

namespace train::test {

/// The lines that this process logs while the object lives.
class LogLines {
 public:
  LogLines() : begin_(std::filesystem::file_size(file())) {}

  /// Those that `part` is in.
  [[nodiscard]] int count(const std::string& part) const {
    std::istringstream lines(read_bytes(file()).substr(begin_));
    int found = 0;
    for (std::string line; std::getline(lines, line);) {
      found += line.find(part) != std::string::npos ? 1 : 0;
    }
    return found;
  }

 private:
  /// The log has no end: one file receives it from its first reader on.
  static const std::filesystem::path& file() {
    static const TempDirectory directory;
    static const std::filesystem::path path = [] {
      TRAIN_CHECK(log_to_file((directory / "log").string(), /*quiet_terminal=*/false));
      return directory / "log";
    }();
    return path;
  }

  std::uintmax_t begin_;
};

}  // namespace train::test
