#pragma once

#include <sys/inotify.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstddef>
#include <filesystem>
#include <string>

#include "checkpoint/load/reader.hpp"
#include "storage/files/digest.hpp"
#include "tests/checkpoint/checkpoint_fixture.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/processes/contained.hpp"

namespace train::test {

inline const std::string digest_key = "\"manifest_digest\": \"";
inline const std::string blank_digest = "xxh3-128:00000000000000000000000000000000";

/// The text with a digest of its own that fits, as someone would make it who means harm.
inline std::string sealed(std::string text) {
  if (const std::size_t key = text.rfind(digest_key); key != std::string::npos) {
    const std::size_t at = key + digest_key.size();
    text.replace(at, blank_digest.size(), blank_digest);
    text.replace(at, blank_digest.size(), storage::digest_text(text));
  }
  return text;
}

/// Opens that anything makes in a directory, counted by the kernel.
class OpenWatch {
 public:
  explicit OpenWatch(const std::filesystem::path& directory)
      : descriptor_(::inotify_init1(IN_NONBLOCK)) {
    REQUIRE(descriptor_ >= 0);
    REQUIRE(::inotify_add_watch(descriptor_, directory.c_str(), IN_OPEN | IN_ACCESS) >= 0);
  }
  OpenWatch(const OpenWatch&) = delete;
  OpenWatch& operator=(const OpenWatch&) = delete;
  ~OpenWatch() { ::close(descriptor_); }

  [[nodiscard]] bool anything() const {
    char events[4096];
    return ::read(descriptor_, events, sizeof events) > 0;
  }

 private:
  int descriptor_;
};

/// A checkpoint of two shards to be spoilt, and the same one more in a place it must not lead to.
class Site {
 public:
  Site() {
    outside_ = write_at(directory_ / "outside", 10, SmallState(5), 2).path;
    path_ = write_at(directory_ / "inside", 10, SmallState(5), 2).path;
    text_ = read_bytes(manifest());
  }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] const std::filesystem::path& outside() const { return outside_; }
  [[nodiscard]] std::filesystem::path manifest() const {
    return path_ / checkpoint::kManifestFileName;
  }
  [[nodiscard]] std::filesystem::path shard() const {
    return path_ / "shard-00000-of-00002.safetensors";
  }
  [[nodiscard]] const std::string& text() const { return text_; }

  /// The checkpoint as it was written.
  void renew() {
    std::filesystem::remove_all(path_);
    std::filesystem::copy(outside_, path_);
  }

  /// Verifies, then restores as a start does that did not verify. What the two say; empty: one of
  /// them found nothing.
  [[nodiscard]] Contained use() const {
    return run_contained([this] {
      const auto verified = checkpoint::verify_checkpoint(path_);
      if (verified && verified->whole()) {
        return std::string();
      }
      const auto manifest = checkpoint::read_manifest(path_);
      if (!manifest) {
        return manifest.error().message;
      }
      SmallState state(0);
      auto views = state.views();
      const Status status = checkpoint::restore(path_, *manifest, views);
      return status ? std::string() : status.error().message;
    });
  }

 private:
  TempDirectory directory_;
  std::filesystem::path path_;
  std::filesystem::path outside_;
  std::string text_;
};

}  // namespace train::test
