#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <system_error>
#include <thread>
#include <utility>

#include "engine/collective/gloo_transport.hpp"

namespace train::engine {
namespace {

namespace fs = std::filesystem;

constexpr auto kLookAgain = std::chrono::milliseconds(2);

class FileStore final : public RendezvousStore {
 public:
  explicit FileStore(fs::path directory) : directory_(std::move(directory)) {}

  /// Written beside and renamed, so that nobody reads half of it.
  Status set(const std::string& key, const std::vector<char>& bytes) override {
    const fs::path path = directory_ / key;
    const fs::path beside = directory_ / fmt::format(".{}.{}", key, ::getpid());
    std::ofstream file(beside, std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    file.close();
    std::error_code code;
    if (file) {
      fs::rename(beside, path, code);
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
    const fs::path path = directory_ / key;
    for (;;) {
      if (std::ifstream file(path, std::ios::binary); file) {
        return std::vector<char>(std::istreambuf_iterator<char>(file), {});
      }
      if (std::chrono::steady_clock::now() > deadline) {
        return failure(
            fmt::format("{}: nobody wrote it within {} ms", path.string(), timeout.count()));
      }
      std::this_thread::sleep_for(kLookAgain);
    }
  }

 private:
  fs::path directory_;
};

}  // namespace

std::unique_ptr<RendezvousStore> make_file_store(fs::path directory) {
  return std::make_unique<FileStore>(std::move(directory));
}

}  // namespace train::engine
