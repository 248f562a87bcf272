#pragma once

#include <sys/types.h>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>

#include "bench/ranks_support.hpp"

namespace train::bench {

/// A program with its input and output in pipes and its errors in a file. Killed by the destructor.
class BenchChild {
 public:
  /// `words`: a program (PATH is searched) and its arguments. Throws std::runtime_error.
  BenchChild(const Words& words, std::filesystem::path errors);
  ~BenchChild();
  BenchChild(const BenchChild&) = delete;
  BenchChild& operator=(const BenchChild&) = delete;

  void write_line(const std::string& line);
  /// Waits until the next line begins, or the output ends; false: not within `seconds`.
  [[nodiscard]] bool wait_readable(double seconds) const;
  /// Blocks; empty at the end of the output.
  [[nodiscard]] std::optional<std::string> read_line();
  [[nodiscard]] pid_t id() const { return id_; }
  /// Waits for its end. The exit code, -1 if a signal ended it.
  int wait();
  /// Does not block.
  [[nodiscard]] bool running();
  /// Highest resident memory so far (VmHWM), 0 once it has ended.
  [[nodiscard]] double peak_bytes() const;
  /// The last lines of its standard error.
  [[nodiscard]] std::string errors() const;

 private:
  pid_t id_ = -1;
  std::FILE* input_ = nullptr;
  std::FILE* output_ = nullptr;
  std::filesystem::path errors_;
  bool ended_ = false;
};

}  // namespace train::bench
