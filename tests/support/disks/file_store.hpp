#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/collective/tcp_transport.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/harness/hang_limit.hpp"

namespace train::test {

/// Store of one file per key, for ranks that share a directory. Waits by polling.
class FileStore final : public engine::RendezvousStore {
 public:
  explicit FileStore(std::filesystem::path directory) : directory_(std::move(directory)) {}

  /// Written beside and renamed, so that no reader sees half of it.
  Status set(const std::string& key, const std::vector<char>& bytes) override {
    const std::filesystem::path path = directory_ / key;
    const std::filesystem::path beside = directory_ / fmt::format(".{}.{}", key, ::getpid());
    std::ofstream file(beside, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    std::error_code code;
    if (file) {
      std::filesystem::rename(beside, path, code);
    }
    if (!file || code) {
      return failure(fmt::format("{}: cannot be written: is the directory there, and not full?",
                                 path.string()));
    }
    return {};
  }

  Result<std::vector<char>> get(const std::string& key,
                                std::chrono::milliseconds timeout) override {
    const auto deadline = std::chrono::steady_clock::now() + timeout;
    const std::filesystem::path path = directory_ / key;
    for (;;) {
      if (std::error_code code; std::filesystem::exists(path, code)) {
        const std::string bytes = read_bytes(path);
        return std::vector<char>(bytes.begin(), bytes.end());
      }
      if (std::chrono::steady_clock::now() > deadline) {
        return failure(
            fmt::format("{}: nobody wrote it within {} ms", path.string(), timeout.count()));
      }
      before_the_next_look();
    }
  }

 private:
  std::filesystem::path directory_;
};

[[nodiscard]] inline std::unique_ptr<engine::RendezvousStore> make_file_store(
    std::filesystem::path directory) {
  return std::make_unique<FileStore>(std::move(directory));
}

}  // namespace train::test
