#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>

#include "base/check.hpp"
#include "base/text/log.hpp"

namespace train::test {

/// Appends this process's standard error, and so its log, to a file during its lifetime.
class ErrorOutputFile {
 public:
  explicit ErrorOutputFile(const std::filesystem::path& path)
      : before_(::dup(STDERR_FILENO)), level_(log_from(LogLevel::info)) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    TRAIN_CHECK(before_ >= 0 && file >= 0 && ::dup2(file, STDERR_FILENO) >= 0, "{}", path.string());
    ::close(file);
  }
  ~ErrorOutputFile() {
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
    log_from(level_);
  }
  ErrorOutputFile(const ErrorOutputFile&) = delete;
  ErrorOutputFile& operator=(const ErrorOutputFile&) = delete;

 private:
  int before_;
  LogLevel level_;
};

}  // namespace train::test
