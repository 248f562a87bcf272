#include "cli/board/line_tail.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace train::cli {

bool LineTail::reopen(const Reader& reader) {
  struct stat there = {};
  if (::stat(path_.c_str(), &there) != 0) {
    if (file_) {
      file_ = Descriptor();
      reader.restart();
    }
    offset_ = size_ = filled_ = 0;
    return false;
  }
  const auto size = static_cast<std::uint64_t>(there.st_size);
  if (file_ && there.st_ino == inode_ && there.st_dev == device_ && size >= offset_) {
    size_ = size;
    return true;
  }
  if (file_) {
    reader.restart();
  }
  file_ = Descriptor(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file_ || ::fstat(file_.get(), &there) != 0 || !S_ISREG(there.st_mode)) {
    file_ = Descriptor();
    return false;
  }
  inode_ = there.st_ino;
  device_ = there.st_dev;
  size_ = static_cast<std::uint64_t>(there.st_size);
  offset_ = filled_ = 0;
  skipping_ = false;
  return true;
}

LineTail::More LineTail::next(const Reader& reader) {
  if (!reopen(reader)) {
    return More::no_file;
  }
  if (size_ <= offset_) {
    piece_.resize(filled_);
    piece_.shrink_to_fit();  // many runs are watched, and few of them write
    return More::no;
  }
  // A small file does not take a large piece: a folder may have hundreds of runs.
  const std::size_t wanted =
      std::min<std::uint64_t>(kPiece, std::max<std::uint64_t>(filled_ + (size_ - offset_), 4096));
  if (piece_.size() < wanted + kPadding) {
    piece_.resize(wanted + kPadding);
  }
  const std::size_t room = piece_.size() - kPadding - filled_;
  const ssize_t got =
      ::pread(file_.get(), piece_.data() + filled_, room, static_cast<off_t>(offset_));
  if (got <= 0) {
    return More::no;
  }
  offset_ += static_cast<std::uint64_t>(got);
  filled_ += static_cast<std::size_t>(got);
  take_lines(reader);
  return offset_ < size_ ? More::yes : More::no;
}

void LineTail::take_lines(const Reader& reader) {
  std::size_t from = 0;
  while (from < filled_) {
    const char* start = piece_.data() + from;
    const auto* end = static_cast<const char*>(std::memchr(start, '\n', filled_ - from));
    if (end == nullptr) {
      break;
    }
    if (skipping_) {
      skipping_ = false;
    } else {
      reader.line(std::string_view(start, static_cast<std::size_t>(end - start)));
    }
    from = static_cast<std::size_t>(end - piece_.data()) + 1;
  }
  filled_ -= from;
  std::memmove(piece_.data(), piece_.data() + from, filled_);
  if (filled_ >= kPiece || skipping_) {
    skipped_ += skipping_ ? 0 : 1;
    skipping_ = true;
    filled_ = 0;
  }
}

}  // namespace train::cli
