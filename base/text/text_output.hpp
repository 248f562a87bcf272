#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace train {

/// Text output to a terminal, a pipe or a file.
///
/// A closed reader is no error: the text is lost. A reader that does not read (a terminal stopped
/// with Ctrl-S, a pipe into a waiting program) blocks write(), unless queued. Threading: safe from
/// any thread; texts are never interleaved.
class TextOutput {
 public:
  /// Line (with its end) that replaces a number of dropped texts.
  using DroppedLine = std::function<std::string(std::uint64_t texts)>;

  /// `descriptor` stays owned by the caller, and must stay open.
  explicit TextOutput(int descriptor);
  /// Keeps the order of texts across both outputs, which may lead to one terminal.
  TextOutput(int descriptor, const TextOutput& in_order_with);
  ~TextOutput();  ///< Calls finish() without patience.
  TextOutput(const TextOutput&) = delete;
  TextOutput& operator=(const TextOutput&) = delete;

  void write(std::string_view text);

  /// Makes write() non-blocking: a thread writes queued texts in order. Texts that arrive while
  /// `limit_bytes` are queued are dropped, each as a whole, and counted in a line in their place.
  void queue(DroppedLine dropped, std::size_t limit_bytes);
  /// Waits for at most `patience` until the queue is written, and returns to direct writing. If the
  /// queue is not empty by then, it is dropped, as is all later text: the reader is gone.
  void finish(std::chrono::milliseconds patience);

  /// True if the reader is gone, or did not read the rest after finish().
  [[nodiscard]] bool closed() const;
  /// errno of the write that lost text, such as ENOSPC; 0: none did, or the reader is gone.
  [[nodiscard]] int failure() const;
  [[nodiscard]] int descriptor() const { return descriptor_; }

 private:
  struct Queue;

  int descriptor_;
  std::shared_ptr<Queue> queue_;  ///< Shared with the thread, which may be blocked in a call for
                                  ///< ever.
};

/// Outputs of this process; kept in order with each other if both are one file.
[[nodiscard]] TextOutput& standard_output();
[[nodiscard]] TextOutput& standard_error();

/// Opens /dev/null for each of the three standard descriptors that was closed at program start
/// (`>&-`, some daemons). Otherwise the first opened files would get their numbers, and output
/// would be written into them. Call it before opening any file.
void keep_standard_descriptors();

/// Queues output and logs of this process while it lives, so that no handler or scheduler thread
/// waits for a reader. One at a time in a process.
class QueuedOutput {
 public:
  /// `json`: each line of standard output is a JSON object.
  explicit QueuedOutput(bool json);
  ~QueuedOutput();  ///< Waits briefly for a slow reader, as finish_output() does.
  QueuedOutput(const QueuedOutput&) = delete;
  QueuedOutput& operator=(const QueuedOutput&) = delete;
};

/// Writes the queue, unless nobody reads for a moment: to be called before a process ends at once.
void finish_output();

}  // namespace train
