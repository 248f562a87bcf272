#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "storage/files/file_calls.hpp"
#include "tests/support/disks/temp_directory.hpp"

namespace train::test {

/// Call that changed the disk, with the data to replay it. Paths are relative to the watched
/// directory.
struct RecordedCall {
  storage::FileCallKind kind = storage::FileCallKind::point;
  std::string path;
  std::string to;  ///< New name of a rename, or name of a point.
  std::string bytes;
  std::optional<std::uint64_t> offset = {};  ///< Offset of a write; nullopt: at the end.
  std::uint64_t size_bytes = 0;
  bool empties = false;
};

/// Records the successful calls on `root` and below during its lifetime, in order, including
/// rsync's writes there.
class RecordingDisk final : public storage::FileCallHook {
 public:
  explicit RecordingDisk(std::filesystem::path root)
      : root_(std::move(root)), outer_(storage::install_file_call_hook(this)) {}
  ~RecordingDisk() override { storage::install_file_call_hook(outer_); }

  int before(storage::FileCall& /*call*/) override { return 0; }

  void after(const storage::FileCall& call, int error_number) override {
    const std::string path = below_root(call.path);
    if (error_number != 0 || path.empty()) {
      return;
    }
    if (call.to == "rsync-end") {
      record_copy(path);
      return;
    }
    const bool renames = call.kind == storage::FileCallKind::rename;
    const auto* const bytes = reinterpret_cast<const char*>(call.bytes.data());
    const std::lock_guard lock(mutex_);
    calls_.push_back({.kind = call.kind,
                      .path = path,
                      .to = renames ? below_root(call.to) : std::string(call.to),
                      .bytes = std::string(bytes, bytes + call.bytes.size()),
                      .offset = call.offset,
                      .size_bytes = call.size_bytes,
                      .empties = call.empties});
  }

  [[nodiscard]] const std::vector<RecordedCall>& calls() const { return calls_; }

 private:
  /// Records the writes of an rsync process: a hidden file, written, renamed.
  void record_copy(const std::string& path) {
    using storage::FileCallKind;
    const std::filesystem::path target(path);
    const std::string hidden =
        (target.parent_path() / ("." + target.filename().string() + ".copied")).string();
    const std::lock_guard lock(mutex_);
    calls_.push_back({.kind = FileCallKind::open, .path = hidden, .to = {}, .bytes = {}});
    calls_.push_back({.kind = FileCallKind::write,
                      .path = hidden,
                      .to = {},
                      .bytes = read_bytes(root_ / target)});
    calls_.push_back({.kind = FileCallKind::rename, .path = hidden, .to = path, .bytes = {}});
  }

  /// Relative path; empty: elsewhere.
  [[nodiscard]] std::string below_root(std::string_view path) const {
    const std::string relative =
        std::filesystem::path(path).lexically_normal().lexically_relative(root_).string();
    return relative.starts_with("..") ? "" : relative;
  }

  std::filesystem::path root_;
  storage::FileCallHook* outer_;
  std::mutex mutex_;
  std::vector<RecordedCall> calls_;
};

}  // namespace train::test
