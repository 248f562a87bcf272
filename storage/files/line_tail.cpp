#include "storage/files/line_tail.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/process/descriptor.hpp"

namespace train::storage {

std::optional<LineTail::Found> LineTail::look(int descriptor, const char* path) {
  struct statx facts {};
  const int flags = *path == '\0' ? AT_EMPTY_PATH : 0;
  if (::statx(descriptor, path, flags, STATX_INO | STATX_SIZE | STATX_MTIME | STATX_BTIME,
              &facts) != 0) {
    return std::nullopt;
  }
  const bool born = (facts.stx_mask & STATX_BTIME) != 0;
  const auto nanoseconds = [](const statx_timestamp& time) {
    return time.tv_sec * std::int64_t{1'000'000'000} + time.tv_nsec;
  };
  return Found{
      .identity = {.device = (std::uint64_t{facts.stx_dev_major} << 32U) | facts.stx_dev_minor,
                   .inode = facts.stx_ino,
                   .born_ns = born ? nanoseconds(facts.stx_btime) : 0},
      .size_bytes = facts.stx_size,
      .changed_ns = nanoseconds(facts.stx_mtime)};
}

LineTail::More LineTail::next(const Reader& reader) {
  // A path only tells whether there is something new.
  const auto named = look(AT_FDCWD, place_.path().c_str());
  if (!named) {
    problem_.clear();
    return lose(reader);
  }
  if (named->identity == file_ && named->size_bytes == offset_ &&
      named->changed_ns == changed_ns_) {
    size_ = offset_;
    return pause();
  }
  const auto opened = open_within(place_);
  problem_ = opened ? std::string() : opened.error().message;
  const auto found = opened ? look(opened->get(), "") : std::nullopt;
  if (!found) {
    return lose(reader);
  }
  arrive(opened->get(), *found, reader);
  return size_ <= offset_ ? pause() : read(opened->get(), reader);
}

LineTail::More LineTail::lose(const Reader& reader) {
  if (file_) {
    reader.restart();
  }
  file_.reset();
  offset_ = size_ = filled_ = skipped_ = 0;
  mark_.clear();
  return More::no_file;
}

LineTail::More LineTail::pause() {
  piece_.resize(filled_);
  piece_.shrink_to_fit();  // Many runs are watched, and few of them write.
  return More::no;
}

bool LineTail::has_mark(int descriptor) const {
  std::string now(mark_.size(), '\0');
  const ssize_t got =
      ::pread(descriptor, now.data(), now.size(), static_cast<off_t>(offset_ - mark_.size()));
  return got == static_cast<ssize_t>(mark_.size()) && now == mark_;
}

void LineTail::arrive(int descriptor, const Found& found, const Reader& reader) {
  if (found.identity != file_ || found.size_bytes < offset_ || !has_mark(descriptor)) {
    if (file_) {
      reader.restart();
    }
    file_ = found.identity;
    offset_ = filled_ = skipped_ = 0;
    skipping_ = false;
    mark_.clear();
  }
  size_ = found.size_bytes;
  changed_ns_ = found.changed_ns;
  if (size_ - offset_ > limits_.newest_bytes) {
    offset_ = size_ - limits_.newest_bytes;
    filled_ = 0;
    mark_.clear();
    skipping_ = true;  // The beginning of this line is missing.
  }
}

LineTail::More LineTail::read(int descriptor, const Reader& reader) {
  // A small file does not take a large piece.
  const std::size_t wanted =
      std::min<std::uint64_t>(kPiece, std::max<std::uint64_t>(filled_ + (size_ - offset_), 4096));
  if (piece_.size() < wanted + kPadding) {
    piece_.resize(wanted + kPadding);
  }
  const std::size_t room = piece_.size() - kPadding - filled_;
  const ssize_t got =
      ::pread(descriptor, piece_.data() + filled_, room, static_cast<off_t>(offset_));
  if (got <= 0) {
    return More::no;  // Truncated meanwhile, or unreadable: the next look tells.
  }
  const std::string_view news(piece_.data() + filled_, static_cast<std::size_t>(got));
  mark_ += news.substr(news.size() - std::min(news.size(), kMark));
  mark_.erase(0, mark_.size() - std::min(mark_.size(), kMark));
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
    const auto size = static_cast<std::size_t>(end - start);
    if (skipping_) {
      skipping_ = false;
    } else if (size > limits_.line_bytes) {
      ++skipped_;
    } else {
      reader.line(std::string_view(start, size));
    }
    from += size + 1;
  }
  filled_ -= from;
  std::memmove(piece_.data(), piece_.data() + from, filled_);
  if (filled_ > limits_.line_bytes || skipping_) {
    skipped_ += skipping_ ? 0 : 1;
    skipping_ = true;
    filled_ = 0;
  }
}

}  // namespace train::storage
