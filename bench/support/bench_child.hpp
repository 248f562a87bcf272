#pragma once

#include <sys/types.h>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>

#include "bench/ranks/ranks_support.hpp"

namespace train::bench {

/// Child program with piped input and output, and standard error in a file. Killed by the
/// destructor.
class BenchChild {
 public:
  /// `words`: a program (PATH is searched) and its arguments. Throws std::runtime_error.
  BenchChild(const Words& words, std::filesystem::path errors);
  ~BenchChild();
  BenchChild(const BenchChild&) = delete;
  BenchChild& operator=(const BenchChild&) = delete;

  void write_line(const std::string& line);
  /// Waits for the next line or the end of output; false: not within `seconds`.
  [[nodiscard]] bool wait_readable(double seconds) const;
  /// Blocks; nullopt at the end of output.
  [[nodiscard]] std::optional<std::string> read_line();
  [[nodiscard]] pid_t id() const { return id_; }
  /// Waits for its end. Returns the exit code, -1 if ended by a signal.
  int wait();
  /// Returns at once.
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
