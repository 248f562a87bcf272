#include "storage/files/append_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <utility>

#include "base/text/log.hpp"
#include "base/text/units.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/files/file_calls.hpp"

namespace train::storage {

AppendFile::AppendFile(std::filesystem::path path, HalfRecord half, std::size_t limit_bytes)
    : path_(std::move(path)), half_(half), limit_bytes_(limit_bytes) {}

AppendFile::~AppendFile() {
  if (!flush()) {
    log_warning(fmt::format("file_incomplete {}: {} records were not written to the end",
                            path_.string(), waiting_.size() + dropped_));
  }
}

std::optional<Error> AppendFile::open() {
  if (file_) {
    return std::nullopt;
  }
  const int flags = (half_ == HalfRecord::begin_line ? O_RDWR : O_WRONLY) | O_APPEND;
  int descriptor = disk_open(path_, flags);
  if (descriptor < 0 && errno == ENOENT) {
    if (const Status made = make_directory(path_.parent_path()); !made) {
      return made.error();
    }
    descriptor = disk_open(path_, flags);
  }
  if (descriptor < 0) {
    return os_error(Access::write, path_, errno);
  }
  file_.reset(descriptor);
  struct stat facts {};
  if (::fstat(descriptor, &facts) == 0) {
    // The file is shorter than before: it was replaced.
    const auto size = static_cast<std::uint64_t>(facts.st_size);
    size_bytes_ = std::min(size_bytes_.value_or(size), size);
  }
  return std::nullopt;
}

/// Handles half a record left by an earlier write or a killed process.
std::optional<Error> AppendFile::mend_end() {
  if (mended_) {
    return std::nullopt;
  }
  if (half_ == HalfRecord::cut_off) {
    if (size_bytes_ && disk_truncate(file_.get(), path_, *size_bytes_) != 0) {
      return os_error(Access::write, path_, errno);
    }
  } else {
    struct stat facts {};
    std::array<std::byte, 1> last = {std::byte{'\n'}};
    if (::fstat(file_.get(), &facts) == 0 && facts.st_size > 0 &&
        disk_read_at(file_.get(), path_, last, static_cast<std::uint64_t>(facts.st_size) - 1) ==
            1 &&
        last[0] != std::byte{'\n'}) {
      constexpr std::array<std::byte, 1> kEnd = {std::byte{'\n'}};
      if (disk_write_all(file_.get(), path_, kEnd) != 0) {
        return os_error(Access::write, path_, errno);
      }
    }
  }
  mended_ = true;
  return std::nullopt;
}

std::optional<Error> AppendFile::write(std::string_view record) {
  if (auto failed = open()) {
    return failed;
  }
  if (auto failed = mend_end()) {
    return failed;
  }
  if (disk_write_all(file_.get(), path_, std::as_bytes(std::span(record))) == 0) {
    size_bytes_ = size_bytes_.value_or(0) + record.size();
    return std::nullopt;
  }
  Error error = os_error(Access::write, path_, errno);
  mended_ = false;
  // At once if possible, for readers that follow the file.
  (void)mend_end();
  file_.reset();  // The handle may be what is broken.
  return error;
}

bool AppendFile::append(std::string_view record) {
  if (!flush()) {
    keep(record);
    return false;
  }
  if (const auto failed = write(record)) {
    refused(*failed);
    keep(record);
    return false;
  }
  return true;
}

bool AppendFile::flush() {
  while (!waiting_.empty()) {
    if (write(waiting_.front())) {
      return false;
    }
    waiting_bytes_ -= waiting_.front().size();
    waiting_.pop_front();
  }
  if (behind_) {
    caught_up();
  }
  return true;
}

void AppendFile::cut(std::uint64_t size_bytes) {
  size_bytes_ = size_bytes;
  mended_ = false;
  if (!open()) {
    (void)mend_end();  // Otherwise before the next record.
  }
}

void AppendFile::drop_waiting(const std::function<bool(std::string_view)>& unwanted) {
  std::erase_if(waiting_, [&](const std::string& record) {
    const bool gone = unwanted(record);
    waiting_bytes_ -= gone ? record.size() : 0;
    return gone;
  });
}

void AppendFile::keep(std::string_view record) {
  if (waiting_bytes_ + record.size() > limit_bytes_) {
    ++dropped_;
    return;
  }
  waiting_.emplace_back(record);
  waiting_bytes_ += record.size();
  ++waited_;
}

void AppendFile::refused(const Error& why) {
  behind_ = true;
  log_warning(
      fmt::format("file_behind {}; the run continues, lines to write wait in memory, up to {}",
                  why.message, format_bytes(limit_bytes_)));
}

void AppendFile::caught_up() {
  behind_ = false;
  log_info(fmt::format("file_caught_up {} records={}{}", path_.string(), std::exchange(waited_, 0),
                       dropped_ > 0 ? fmt::format(" dropped={}", dropped_) : ""));
  dropped_ = 0;
}

}  // namespace train::storage
