#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace train {

/// Text for whoever reads a terminal, a pipe or a file.
///
/// A reader that has gone is no error: what is written then is lost. One that does not read (a
/// terminal stopped with Ctrl-S, a pipe into a program that waits) blocks write(), unless it
/// queues. Threading: safe from any thread; of two texts one comes whole before the other.
class TextOutput {
 public:
  /// What stands in the place of texts that were dropped, a line with its end.
  using DroppedLine = std::function<std::string(std::uint64_t texts)>;

  /// `descriptor` stays the caller's, and open for as long.
  explicit TextOutput(int descriptor);
  /// The same, where what is written here and there keeps its order: both may lead to one terminal.
  TextOutput(int descriptor, const TextOutput& in_order_with);
  ~TextOutput();  ///< finish(), without patience.
  TextOutput(const TextOutput&) = delete;
  TextOutput& operator=(const TextOutput&) = delete;

  void write(std::string_view text);

  /// From here on write() does not block: a thread writes what is queued, in order. What comes
  /// while `limit_bytes` wait is dropped, each text as a whole, and counted in a line where it
  /// would stand.
  void queue(DroppedLine dropped, std::size_t limit_bytes);
  /// Waits until all that is queued is written, `patience` at most, and goes back to writing at
  /// once. What has not been written then is dropped, and so is all that is written later: nobody
  /// reads.
  void finish(std::chrono::milliseconds patience);

  /// The reader has gone, or does not read what finish() had left.
  [[nodiscard]] bool closed() const;
  [[nodiscard]] int descriptor() const { return descriptor_; }

 private:
  struct Queue;

  int descriptor_;
  std::shared_ptr<Queue> queue_;  ///< Its thread shares it, and may be stuck in a call for ever.
};

/// Of this process; in order with each other if they are one file.
[[nodiscard]] TextOutput& standard_output();
[[nodiscard]] TextOutput& standard_error();

/// Opens /dev/null in the place of each of the three standard descriptors that was closed when the
/// program started (`>&-`, some daemons). Else the first files that it opens would have their
/// numbers, and what it prints would go into them. Call it before anything is opened.
void keep_standard_descriptors();

/// While it lives, what this process prints and logs is queued, and neither a handler nor a
/// scheduler's thread waits for a reader. One at a time in a process.
class QueuedOutput {
 public:
  /// `json`: a line of standard output is a JSON object.
  explicit QueuedOutput(bool json);
  ~QueuedOutput();  ///< Waits a moment for a slow reader, as finish_output() does.
  QueuedOutput(const QueuedOutput&) = delete;
  QueuedOutput& operator=(const QueuedOutput&) = delete;
};

/// What is queued is written, unless nobody reads for a moment: before a process ends at once.
void finish_output();

}  // namespace train
