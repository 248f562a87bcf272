#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "checkpoint/format/layout.hpp"
#include "checkpoint/format/manifest.hpp"
#include "engine/state_view.hpp"

namespace train::checkpoint {

enum class Verdict : std::uint8_t {
  good,        ///< Every byte was read and is as saved.
  damaged,     ///< Certainly damaged: bytes differ, or a file is missing or of another size.
  unreadable,  ///< Unknown: something could not be read. The checkpoint must be left alone.
};

/// Result of verifying one checkpoint: good, or its defect.
struct Verification {
  Verdict verdict = Verdict::good;
  std::optional<Manifest> manifest;  ///< Set if and only if the checkpoint is good (CK-3).
  std::string manifest_digest;       ///< Digest of manifest.json's bytes, if good.
  std::string defect;  ///< One line, if not good; for an unreadable one with file and cause.

  [[nodiscard]] bool whole() const { return verdict == Verdict::good; }
};

/// Receives the bytes of a record as they are read: in order, in arbitrary pieces.
using SeeRecord = std::function<void(const TensorRecord& record, std::span<const std::byte> piece)>;

/// Reads every byte of the checkpoint once, in pieces of 1 MiB, and compares sizes and digests:
/// restore() can restore what is good. Follows no link. Blocks. `see` receives each record,
/// complete before the next; for a checkpoint that is not good only some of them, possibly with
/// wrong bytes. Damage and unreadable files are findings. Errors (user): no permission, a newer
/// format.
Result<Verification> verify_checkpoint(const std::filesystem::path& checkpoint,
                                       const SeeRecord& see = {});

/// Likewise without reading a tensor: manifest valid, and every file present with its size.
Result<Verification> look_at_checkpoint(const std::filesystem::path& checkpoint);

/// Tensors of the checkpoint that the caller must request.
enum class Restore : std::uint8_t {
  every_tensor,  ///< All of them: to continue training.
  subset,        ///< Those in `state`: to use the weights.
};

/// Bytes read by restore().
struct RestoreStatistics {
  std::uint64_t kept_bytes = 0;    ///< Bytes requested by the views.
  std::uint64_t tensor_bytes = 0;  ///< Bytes read of tensors: the kept ones and the rest of their
                                   ///< blocks.
  std::uint64_t header_bytes = 0;  ///< Bytes read of the files' headers.
  std::int64_t files = 0;          ///< Files opened, each once.
};

struct RestoreOptions {
  Restore which = Restore::every_tensor;
  RestoreStatistics* statistics = nullptr;  ///< Filled in on success, if given.
  std::stop_token stop = {};                ///< Stops reading between two pieces (failure).
};

/// Copies the rows requested by each view into its bytes, whatever the checkpoint's sharding
/// (CK-4). Opens only the files, and reads only the blocks, that hold them; for a version 1
/// checkpoint the whole record. Names and shapes are checked before anything is copied, and the
/// digests of all bytes read before success is returned: verify_checkpoint() is not needed first.
/// Memory: the largest header and 1 MiB. Errors: (user) a tensor that is missing, surplus, or of
/// another shape: names the first in the order of `state`, wanted and found; (damage) bytes differ,
/// a file is missing or of another size; (failure) it cannot be read. `state` is then undefined.
/// Blocks.
Status restore(const std::filesystem::path& checkpoint, const Manifest& manifest,
               std::span<engine::StateView> state, const RestoreOptions& options = {});

/// A checkpoint whose files stay open, so that rows which are restored a few at a time do not read
/// the tables of the files each time. The system reads ahead of them, up to the tensor's end.
/// Threading: any number of calls at a time. Memory: all headers and 1 MiB a call.
class OpenCheckpoint {
 public:
  /// The arguments outlive it. Opens nothing yet.
  OpenCheckpoint(const std::filesystem::path& checkpoint, const Manifest& manifest);
  OpenCheckpoint(const OpenCheckpoint&) = delete;
  OpenCheckpoint& operator=(const OpenCheckpoint&) = delete;
  ~OpenCheckpoint();

  /// As the function above.
  Status restore(std::span<engine::StateView> state, const RestoreOptions& options = {});

  /// Row at which a piece of about `rows` rows of the tensor from `first_row` on had better end, so
  /// that reading the next one reads no block twice: as engine::WeightSource.
  [[nodiscard]] std::int64_t piece_end(std::string_view tensor, std::int64_t first_row,
                                       std::int64_t rows) const;

 private:
  struct Files;
  const std::filesystem::path& checkpoint_;
  const Manifest& manifest_;
  std::unique_ptr<Files> files_;
};

struct FoundCheckpoint {
  Candidate candidate;
  Manifest manifest;
  std::string manifest_digest;
};

struct SearchReport {
  std::optional<FoundCheckpoint> newest;  ///< nullopt: there is no checkpoint, a fresh start.
  std::vector<std::string> set_aside;     ///< Log line for each damaged checkpoint.
};

/// Depth of a search's checks.
enum class Depth : std::uint8_t {
  files,  ///< Manifest valid, and every file present with its size. Reads no tensors: for callers
          ///< that restore, which verifies what they read.
  bytes,  ///< verify_checkpoint().
};

/// verify_checkpoint() or look_at_checkpoint(), as `depth` asks.
Result<Verification> check_checkpoint(const std::filesystem::path& checkpoint, Depth depth);

/// Finds the newest intact checkpoint, checked to `depth`. Newer damaged ones are set aside
/// (damaged-*); remains of killed writers are removed. REQUIRES: the run's lock is held. Blocks.
/// Errors (failure): checkpoints exist, but none is intact (lists them), so that a run never
/// silently restarts; a newer one cannot be read (names file and cause): it stays, and no older one
/// is used.
Result<SearchReport> find_newest(const std::filesystem::path& checkpoints,
                                 Depth depth = Depth::bytes);

/// Finds it by verifying all bytes, without changing anything on disk and without the lock: for
/// readers, also while the run continues and replaces its checkpoints.
Result<SearchReport> find_newest_read_only(const std::filesystem::path& checkpoints);

/// Error for a checkpoint that cannot be read because of `cause`, which ends a start (failure).
[[nodiscard]] Error unreadable(const std::filesystem::path& checkpoint, std::string_view cause);

/// Sets a checkpoint with `defect` aside. Returns the log line.
Result<std::string> set_damaged_aside(const std::filesystem::path& checkpoint,
                                      std::string_view defect);

}  // namespace train::checkpoint
