#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "tests/support/disks/temp_directory.hpp"

namespace train::test {

/// Writes a shell script that replaces a program called by the product.
inline std::filesystem::path write_script(const std::filesystem::path& path,
                                          std::string_view lines) {
  write_bytes(path, std::string("#!/bin/sh\n").append(lines).append("\n"));
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

/// Sets an environment variable during its lifetime.
class EnvironmentVariable {
 public:
  EnvironmentVariable(std::string name, const std::string& value) : name_(std::move(name)) {
    if (const char* const before = std::getenv(name_.c_str())) {
      before_ = before;
    }
    ::setenv(name_.c_str(), value.c_str(), 1);
  }
  EnvironmentVariable(const EnvironmentVariable&) = delete;
  EnvironmentVariable& operator=(const EnvironmentVariable&) = delete;
  ~EnvironmentVariable() {
    if (before_) {
      ::setenv(name_.c_str(), before_->c_str(), 1);
    } else {
      ::unsetenv(name_.c_str());
    }
  }

 private:
  std::string name_;
  std::optional<std::string> before_;
};

}  // namespace train::test
