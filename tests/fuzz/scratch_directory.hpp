#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>

#include "tests/fuzz/target.hpp"

namespace train::fuzz {

/// A directory in memory where the system has such a place; of this process, removed at its end.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    namespace fs = std::filesystem;
    const fs::path parent =
        ::access("/dev/shm", W_OK) == 0 ? fs::path("/dev/shm") : fs::temp_directory_path();
    std::string name = (parent / "actortrain-fuzz-XXXXXX").string();
    require(::mkdtemp(name.data()) != nullptr, "a directory can be made");
    path_ = name;
  }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  ~ScratchDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  /// Puts a file there.
  [[nodiscard]] std::filesystem::path put(const char* name, std::string_view bytes) const {
    std::filesystem::path file = path_ / name;
    std::ofstream stream(file, std::ios::binary | std::ios::trunc);
    stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    stream.close();
    require(stream.good(), "a file can be written");
    return file;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace train::fuzz
