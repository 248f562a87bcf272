#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "base/joined_thread.hpp"
#include "base/result.hpp"

// Reading and writing past the page cache (O_DIRECT), where a file system allows it.
namespace train::storage {

struct FreeDirectBytes {
  void operator()(std::byte* bytes) const { std::free(bytes); }
};
using DirectBytes = std::unique_ptr<std::byte, FreeDirectBytes>;

/// Appends to an open file in large pieces, past the page cache where the file system allows that:
/// the cache would cost a processor more time than all else about a large file (measured: 2.4 s a
/// GB against 0.1 s), and the steps beside a save would pay it. While the disk takes one piece, on
/// a thread that the first full piece starts, the caller fills the next. A file shorter than a
/// piece is one ordinary write.
/// Threading: one owner. The thread has the priority of the one that wrote first.
class PieceWriter {
 public:
  /// `descriptor`: open to write, empty, borrowed; `path` is its name for the hook of file calls.
  PieceWriter(int descriptor, std::filesystem::path path);
  PieceWriter(const PieceWriter&) = delete;
  PieceWriter& operator=(const PieceWriter&) = delete;
  /// Waits for the piece under way; what was not handed to the disk is dropped.
  ~PieceWriter();

  /// Appends. 0, or the error number of a write that failed, this one's or an earlier one's. Blocks
  /// while the disk is a piece behind.
  int write(std::span<const std::byte> bytes);

  /// Hands over all that is left: on return every byte has been written, though none is durable.
  /// 0 or the error number of the first write that failed.
  int finish();

 private:
  struct Piece {
    DirectBytes bytes;
    std::size_t size = 0;
  };

  void start();
  void serve();
  void hand_over();
  void wait_until_written(std::unique_lock<std::mutex>& lock);
  void leave_direct();
  int write_out(std::span<const std::byte> bytes);

  const int descriptor_;
  const std::filesystem::path path_;
  Piece filling_;
  bool direct_ = false;              ///< Past the page cache.
  std::uint64_t written_bytes_ = 0;  ///< With direct_ the thread's while it has a piece.

  std::mutex mutex_;
  std::condition_variable changed_;
  Piece writing_;         ///< Guarded by mutex_ but for its bytes while busy_.
  bool busy_ = false;     ///< Guarded by mutex_: the thread has a piece to write.
  bool ending_ = false;   ///< Guarded by mutex_.
  int error_number_ = 0;  ///< Guarded by mutex_.
  JoinedThread thread_;
};

/// digest_bytes() of a file's bytes as its disk has them: read past the page cache, which would
/// show what was written and not what was kept. Where the file system does not allow that, what
/// lies in memory is dropped first as far as the system drops it. REQUIRES: the file was synced.
/// Blocks. Errors: as os_error(); a symbolic link is one.
[[nodiscard]] Result<std::string> digest_on_disk(const std::filesystem::path& path);

}  // namespace train::storage
