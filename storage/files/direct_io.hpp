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

#include "base/process/joined_thread.hpp"
#include "base/result.hpp"

// Reads and writes that bypass the page cache (O_DIRECT), where a file system supports it.
namespace train::storage {

struct FreeDirectBytes {
  void operator()(std::byte* bytes) const { std::free(bytes); }
};
using DirectBytes = std::unique_ptr<std::byte, FreeDirectBytes>;

/// Appends to an open file in large pieces, bypassing the page cache if the file system supports
/// that: the cache would cost more CPU time than everything else about a large file (measured: 2.4
/// s a GB against 0.1 s), and slow the training steps during a save. A thread, started by the first
/// full piece, writes one piece while the caller fills the next. A file shorter than a piece is one
/// ordinary write. Threading: one owner. The thread has the priority of the first writer.
class PieceWriter {
 public:
  /// `descriptor`: open for writing, empty, borrowed; `path`: its name for the hook of file calls.
  PieceWriter(int descriptor, std::filesystem::path path);
  PieceWriter(const PieceWriter&) = delete;
  PieceWriter& operator=(const PieceWriter&) = delete;
  /// Waits for the current piece; bytes not handed to the disk are dropped.
  ~PieceWriter();

  /// Appends. Returns 0, or the error number of this or an earlier failed write. Blocks while the
  /// disk is a piece behind.
  int write(std::span<const std::byte> bytes);

  /// Hands over the rest: on return every byte is written, but not durable. Returns 0 or the error
  /// number of the first failed write.
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
  bool direct_ = false;              ///< Bypassing the page cache.
  std::uint64_t written_bytes_ = 0;  ///< With direct_ owned by the thread while it has a piece.

  std::mutex mutex_;
  std::condition_variable changed_;
  Piece writing_;         ///< Guarded by mutex_, except its bytes while busy_.
  bool busy_ = false;     ///< Guarded by mutex_: the thread has a piece to write.
  bool ending_ = false;   ///< Guarded by mutex_.
  int error_number_ = 0;  ///< Guarded by mutex_.
  JoinedThread thread_;
};

/// digest_bytes() of a file as stored on disk: bypasses the page cache, which would show the bytes
/// written instead of those kept. If the file system does not support that, cached pages are first
/// dropped as far as possible. REQUIRES: the file was synced. Blocks. Errors: as os_error(); a
/// symbolic link is one.
[[nodiscard]] Result<std::string> digest_on_disk(const std::filesystem::path& path);

}  // namespace train::storage
