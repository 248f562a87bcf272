#pragma once

#include <sys/mount.h>

#include <cstdio>
#include <filesystem>
#include <string>

namespace train::test {

/// File system of a fixed size, mounted over `directory` during the lifetime of this object.
class SmallDisk {
 public:
  SmallDisk(const std::filesystem::path& directory, const std::string& size) : path_(directory) {
    std::filesystem::create_directory(path_);
    mounted_ = ::mount("tmpfs", path_.c_str(), "tmpfs", 0, ("size=" + size).c_str()) == 0;
    if (!mounted_) {
      std::perror("skipped: cannot mount a small tmpfs (needs root)");
    }
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  ~SmallDisk() {
    if (mounted_) {
      ::umount2(path_.c_str(), MNT_DETACH);
    }
  }

  /// Resizes the file system.
  bool grow(const std::string& size) {
    return ::mount("tmpfs", path_.c_str(), "tmpfs", MS_REMOUNT, ("size=" + size).c_str()) == 0;
  }

  [[nodiscard]] bool mounted() const { return mounted_; }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  bool mounted_ = false;
};

}  // namespace train::test
