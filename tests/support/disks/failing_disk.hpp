#pragma once

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "storage/files/file_calls.hpp"

namespace train::test {

/// Choice of a disk-changing call that fails, and its failure.
struct DiskFault {
  int error_number = ENOSPC;
  std::int64_t at = -1;     ///< Index among the calls that can fail so, from 0. -1: none.
  bool persistent = false;  ///< All later calls fail, too.
  std::int64_t calls = 1;   ///< Else this many consecutive calls fail, then it heals.
  std::optional<storage::FileCallKind> only = {};  ///< Counts and fails only this kind.
  std::string part = {};  ///< Part of the counted paths; if set, RocksDB's files count, too.
};

/// Makes the disk fail during the lifetime of this object. A full disk (ENOSPC) fails allocating
/// calls and still removes; a broken one (EIO) fails every call. A failing write leaves half of its
/// bytes.
class FailingDisk final : public storage::FileCallHook {
 public:
  explicit FailingDisk(const DiskFault& fault = {})
      : fault_(fault), outer_(storage::install_file_call_hook(this)) {}
  ~FailingDisk() override { storage::install_file_call_hook(outer_); }

  int before(storage::FileCall& call) override {
    const std::lock_guard lock(mutex_);
    if (!can_fail(call.kind) || call.path.find(fault_.part) == std::string_view::npos) {
      return 0;
    }
    const std::int64_t number = seen_++;
    ++by_kind_[call.kind];
    if (torn_) {
      torn_ = fails_on();
      return fail(call.kind);
    }
    const bool due = fault_.at >= 0 && (number == fault_.at);
    if (!due) {
      return 0;
    }
    torn_ = fails_on();
    if (call.kind == storage::FileCallKind::write && call.bytes.size() > 1 &&
        fault_.error_number != EINTR) {
      call.bytes = call.bytes.first(call.bytes.size() / 2);
      torn_ = true;  // The rest of the write is the failing call.
      return 0;
    }
    return fail(call.kind);
  }
  void after(const storage::FileCall& /*call*/, int /*error_number*/) override {}

  [[nodiscard]] bool sees_index() const override { return !fault_.part.empty(); }

  /// Number of calls so far that could have failed so.
  [[nodiscard]] std::int64_t seen() const { return seen_; }
  [[nodiscard]] std::int64_t seen(storage::FileCallKind kind) const {
    const auto found = by_kind_.find(kind);
    return found == by_kind_.end() ? 0 : found->second;
  }
  [[nodiscard]] std::int64_t failed() const { return failed_; }
  /// True if a removal failed.
  [[nodiscard]] bool failed_to_remove() const { return failed_to_remove_; }

 private:
  static bool removes(storage::FileCallKind kind) {
    return kind == storage::FileCallKind::unlink || kind == storage::FileCallKind::remove_directory;
  }
  int fail(storage::FileCallKind kind) {
    ++failed_;
    failed_to_remove_ = failed_to_remove_ || removes(kind);
    return fault_.error_number;
  }
  [[nodiscard]] bool fails_on() { return fault_.persistent || --fault_.calls > 0; }
  [[nodiscard]] bool can_fail(storage::FileCallKind kind) const {
    using storage::FileCallKind;
    if (kind == FileCallKind::point || (fault_.only && kind != *fault_.only)) {
      return false;
    }
    return !(removes(kind) && (fault_.error_number == ENOSPC || fault_.error_number == EDQUOT));
  }

  DiskFault fault_;
  storage::FileCallHook* outer_;
  std::mutex mutex_;
  std::map<storage::FileCallKind, std::int64_t> by_kind_;
  std::int64_t seen_ = 0;
  std::int64_t failed_ = 0;
  bool torn_ = false;
  bool failed_to_remove_ = false;
};

/// Makes a read fail during the lifetime of this object: call number `at`, from 0, among the calls
/// that open and read files with `part` in their path.
class FailingReads final : public storage::FileCallHook {
 public:
  /// `error_number` 0: the read finds the end of the file there. Opening is then not counted.
  FailingReads(std::string part, int error_number, std::int64_t at)
      : part_(std::move(part)),
        error_number_(error_number),
        at_(at),
        outer_(storage::install_file_call_hook(this)) {}
  ~FailingReads() override { storage::install_file_call_hook(outer_); }

  int before(storage::FileCall& /*call*/) override { return 0; }
  void after(const storage::FileCall& /*call*/, int /*error_number*/) override {}
  int before_read(storage::FileRead& read) override {
    const std::lock_guard lock(mutex_);
    const bool counted = error_number_ != 0 || read.size_bytes > 0;
    if (!counted || read.path.find(part_) == std::string_view::npos || seen_++ != at_) {
      return 0;
    }
    failed_ = true;
    read.size_bytes = 0;
    return error_number_;
  }

  [[nodiscard]] bool failed() const { return failed_; }

 private:
  std::string part_;
  int error_number_;
  std::int64_t at_;
  storage::FileCallHook* outer_;
  std::mutex mutex_;
  std::int64_t seen_ = 0;
  bool failed_ = false;
};

/// Counts the bytes read, during the lifetime of this object, from files with `part` in their path.
class CountedReads final : public storage::FileCallHook {
 public:
  explicit CountedReads(std::string part)
      : part_(std::move(part)), outer_(storage::install_file_call_hook(this)) {}
  ~CountedReads() override { storage::install_file_call_hook(outer_); }

  int before(storage::FileCall& /*call*/) override { return 0; }
  void after(const storage::FileCall& /*call*/, int /*error_number*/) override {}
  int before_read(storage::FileRead& read) override {
    bytes_ += read.path.find(part_) == std::string_view::npos ? 0 : read.size_bytes;
    return 0;
  }

  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  std::string part_;
  storage::FileCallHook* outer_;
  std::atomic<std::uint64_t> bytes_{0};
};

}  // namespace train::test
