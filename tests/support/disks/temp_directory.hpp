#pragma once

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/check.hpp"

namespace train::test {

/// New directory, removed with its content at the end.
class TempDirectory {
 public:
  TempDirectory() : TempDirectory(std::filesystem::temp_directory_path()) {}
  explicit TempDirectory(const std::filesystem::path& parent) {
    std::string name = (parent / "actortrain-XXXXXX").string();
    TRAIN_CHECK(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;
  ~TempDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

/// Directory with free fsync, for tests that do not test it: in memory if the system has one.
inline std::filesystem::path quick_directory() {
  return ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path();
}

inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  TRAIN_CHECK(file.good());
  std::string bytes;
  // A byte at a time, without an optimizer, would be most of a test's time.
  std::vector<char> piece(1 << 16);
  do {
    file.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    bytes.append(piece.data(), static_cast<std::size_t>(file.gcount()));
  } while (file);
  return bytes;
}

inline void write_bytes(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  TRAIN_CHECK(file.good());
}

/// Changes a file in place. Faster than write_bytes(): many file systems flush a truncated file
/// when it is closed.
inline void overwrite_bytes(const std::filesystem::path& path, std::string_view bytes) {
  if (!std::filesystem::exists(path)) {
    write_bytes(path, {});
  }
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  TRAIN_CHECK(file.good());
  std::filesystem::resize_file(path, bytes.size());
}

inline void flip_byte(const std::filesystem::path& path, std::size_t position) {
  std::string bytes = read_bytes(path);
  TRAIN_CHECK(position < bytes.size());
  bytes[position] = static_cast<char>(bytes[position] ^ 0x20);
  write_bytes(path, bytes);
}

/// Lists the entry names of a directory, hidden ones included.
inline std::vector<std::string> names_in(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace train::test
