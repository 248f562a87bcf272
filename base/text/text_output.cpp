#include "base/text/text_output.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <utility>

#include "base/process/joined_thread.hpp"

namespace train {
namespace {

/// A writable pipe accepts this much at once: POSIX's PIPE_BUF.
constexpr std::size_t kPieceBytes = 4096;
constexpr std::size_t kQueueBytes = std::size_t{4} << 20;
constexpr std::chrono::milliseconds kPatience{2000};
constexpr int kBetweenLooks_ms = 50;  // Interval of checks whether to give up.

enum class Piece : std::uint8_t { written, full, broken };

bool has_room(int descriptor, int wait_ms) {
  pollfd writable = {.fd = descriptor, .events = POLLOUT, .revents = 0};
  return ::poll(&writable, 1, wait_ms) > 0;
}

/// True for what a reader causes by going away: a closed pipe or terminal.
bool reader_gone(int code) { return code == EPIPE || code == EIO || code == ECONNRESET; }

/// Writes and removes the front of `text`; waits if there is no room.
Piece write_piece(int descriptor, std::string_view& text) {
  const ssize_t bytes = ::write(descriptor, text.data(), std::min(text.size(), kPieceBytes));
  if (bytes >= 0) {
    text.remove_prefix(static_cast<std::size_t>(bytes));
    return Piece::written;
  }
  return errno == EINTR || errno == EAGAIN ? Piece::full : Piece::broken;
}

bool same_file(int left, int right) {
  struct stat a = {};
  struct stat b = {};
  return ::fstat(left, &a) == 0 && ::fstat(right, &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino;
}

struct Text {
  int descriptor = -1;
  std::string bytes = {};
};

}  // namespace

struct TextOutput::Queue {
  std::mutex direct;  ///< Held while writing without the thread: keeps texts whole.

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Text> texts;
  std::size_t waiting_bytes = 0, limit_bytes = 0;
  std::uint64_t dropped = 0;
  DroppedLine dropped_line;
  bool queues = false;    ///< The thread is running.
  bool ending = false;    ///< End when the queue is empty.
  bool given_up = false;  ///< End at once.
  bool closed = false;
  int failure = 0;

  // REQUIRES: the lock is held.
  void close_after(int code) {
    closed = true;
    failure = reader_gone(code) ? 0 : code;
  }
  void push(Text text) {
    waiting_bytes += text.bytes.size();
    texts.push_back(std::move(text));
  }
  void count_dropped(int descriptor) {
    if (dropped > 0) {
      push({descriptor, dropped_line(std::exchange(dropped, 0))});
    }
  }
  void add(int descriptor, std::string_view text) {
    // Hysteresis: accepts texts again only at half the limit.
    const std::size_t full = dropped > 0 ? limit_bytes / 2 : limit_bytes;
    if (waiting_bytes + text.size() > full) {
      ++dropped;
      return;
    }
    count_dropped(descriptor);
    push({descriptor, std::string(text)});
    changed.notify_all();
  }

  // Runs on the thread.
  /// Takes the first queued text; false: the thread must end.
  bool next(int descriptor, Text& text) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return !texts.empty() || ending || given_up; });
    if (texts.empty() && !given_up) {
      try {
        count_dropped(descriptor);
      } catch (const std::bad_alloc&) {
        // Without memory it goes unsaid. Not caught, it would end the process with the lock held.
      }
    }
    if (texts.empty() || given_up) {
      return false;
    }
    text = std::move(texts.front());
    texts.pop_front();
    return true;
  }
  /// False: the reader is gone, or nothing can be written; then it is closed.
  bool write_whole(const Text& text) {
    std::string_view left = text.bytes;
    while (!left.empty()) {
      const bool room = has_room(text.descriptor, kBetweenLooks_ms);
      const Piece piece = room ? write_piece(text.descriptor, left) : Piece::full;
      const int code = errno;
      const std::lock_guard lock(mutex);
      if (piece == Piece::broken || given_up) {
        close_after(piece == Piece::broken ? code : 0);
        return false;
      }
    }
    const std::lock_guard lock(mutex);
    waiting_bytes -= text.bytes.size();
    return true;
  }
  void run(int descriptor) {
    Text text;
    while (next(descriptor, text)) {
      if (!write_whole(text)) {
        break;
      }
    }
    const std::lock_guard lock(mutex);
    texts.clear();
    waiting_bytes = 0;
    queues = false;
    changed.notify_all();
  }
};

TextOutput::TextOutput(int descriptor)
    : descriptor_(descriptor), queue_(std::make_shared<Queue>()) {}

TextOutput::TextOutput(int descriptor, const TextOutput& in_order_with)
    : descriptor_(descriptor), queue_(in_order_with.queue_) {}

TextOutput::~TextOutput() { finish(std::chrono::milliseconds(0)); }

void TextOutput::write(std::string_view text) {
  {
    const std::lock_guard lock(queue_->mutex);
    if (queue_->queues && !queue_->closed) {
      queue_->add(descriptor_, text);
    }
    if (queue_->queues || queue_->closed) {
      return;
    }
  }
  const std::lock_guard whole(queue_->direct);
  while (!text.empty()) {
    const Piece piece = write_piece(descriptor_, text);
    if (piece == Piece::broken) {
      const int code = errno;
      const std::lock_guard lock(queue_->mutex);
      queue_->close_after(code);
      return;
    }
    if (piece == Piece::full) {
      has_room(descriptor_, kBetweenLooks_ms);
    }
  }
}

void TextOutput::queue(DroppedLine dropped, std::size_t limit_bytes) {
  const std::lock_guard lock(queue_->mutex);
  if (queue_->queues || queue_->closed) {
    return;
  }
  queue_->dropped_line = std::move(dropped);
  queue_->limit_bytes = limit_bytes;
  queue_->ending = false;
  // Where no thread can be started, texts go on without it.
  JoinedThread([queue = queue_, descriptor = descriptor_] { queue->run(descriptor); }).detach();
  queue_->queues = true;
}

void TextOutput::finish(std::chrono::milliseconds patience) {
  std::unique_lock lock(queue_->mutex);
  if (!queue_->queues) {
    return;
  }
  queue_->ending = true;
  queue_->changed.notify_all();
  if (!queue_->changed.wait_for(lock, patience, [this] { return !queue_->queues; })) {
    queue_->given_up = true;
    queue_->closed = true;
    queue_->changed.notify_all();
  }
}

bool TextOutput::closed() const {
  const std::lock_guard lock(queue_->mutex);
  return queue_->closed;
}

int TextOutput::failure() const {
  const std::lock_guard lock(queue_->mutex);
  return queue_->failure;
}

// Outlive every thread that logs while the process ends.
TextOutput& standard_output() {
  static auto* const output = new TextOutput(STDOUT_FILENO);
  return *output;
}

TextOutput& standard_error() {
  static auto* const output = same_file(STDOUT_FILENO, STDERR_FILENO)
                                  ? new TextOutput(STDERR_FILENO, standard_output())
                                  : new TextOutput(STDERR_FILENO);
  return *output;
}

void keep_standard_descriptors() {
  // An opened file gets the lowest free number.
  int opened = 0;
  while (opened >= 0 && opened <= STDERR_FILENO) {
    opened = ::open("/dev/null", O_RDWR);
  }
  if (opened > STDERR_FILENO) {
    ::close(opened);
  }
}

QueuedOutput::QueuedOutput(bool json) {
  standard_output().queue(
      [json](std::uint64_t texts) {
        const std::string count = std::to_string(texts);
        return json ? R"({"kind":"output_dropped","lines":)" + count + "}\n"
                    : "output_dropped " + count + " lines that nobody read in time\n";
      },
      kQueueBytes);
  standard_error().queue(
      [](std::uint64_t texts) {
        return "warning output_dropped " + std::to_string(texts) +
               " lines that nobody read in time\n";
      },
      kQueueBytes);
}

QueuedOutput::~QueuedOutput() { finish_output(); }

void finish_output() {
  standard_output().finish(kPatience);
  standard_error().finish(kPatience);
}

}  // namespace train
