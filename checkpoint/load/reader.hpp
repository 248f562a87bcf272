#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
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
  good,        ///< Every byte was read and is what was saved.
  damaged,     ///< For certain: bytes that were read differ, a file is missing or of another size.
  unreadable,  ///< Nobody knows: something could not be read. Nothing may be done to it.
};

/// The finding about one checkpoint: good, or what is wrong with it.
struct Verification {
  Verdict verdict = Verdict::good;
  std::optional<Manifest> manifest;  ///< There if and only if the checkpoint is good (CK-3).
  std::string manifest_digest;       ///< Of the bytes of manifest.json, if good.
  std::string defect;  ///< One line, if not; of an unreadable one with file and cause.

  [[nodiscard]] bool whole() const { return verdict == Verdict::good; }
};

/// Sees the bytes of a record as they are read: in order, in pieces whose ends mean nothing.
using SeeRecord = std::function<void(const TensorRecord& record, std::span<const std::byte> piece)>;

/// Reads every byte of the checkpoint once, in pieces of 1 MiB, and compares sizes and digests:
/// what is good, restore() restores. Follows no link. Blocks. `see` gets each record, whole before
/// the next; of another checkpoint some of them, and bytes that are not those that were saved.
/// Damage, and that it cannot be read, are findings. Errors (user): no permission, a newer format.
Result<Verification> verify_checkpoint(const std::filesystem::path& checkpoint,
                                       const SeeRecord& see = {});

/// Which tensors of the checkpoint the caller has to ask for.
enum class Restore : std::uint8_t {
  every_tensor,  ///< All of them: to train on.
  subset,        ///< Those in `state`: to use the weights.
};

/// What restore() read, in bytes.
struct RestoreStatistics {
  std::uint64_t kept_bytes = 0;    ///< What the views asked for.
  std::uint64_t tensor_bytes = 0;  ///< Read of tensors: what was kept and the rest of its blocks.
  std::uint64_t header_bytes = 0;  ///< Read of the files' headers.
  std::int64_t files = 0;          ///< Opened, each once.
};

struct RestoreOptions {
  Restore which = Restore::every_tensor;
  RestoreStatistics* statistics = nullptr;  ///< Filled in, if given and all went well.
  std::stop_token stop = {};                ///< Ends the reading between two pieces (failure).
};

/// Copies the rows that each view asks for into its bytes, however the checkpoint is sharded
/// (CK-4). Opens only the files, and reads only the blocks, that hold them; of a checkpoint of
/// version 1 the whole record. Names and shapes are checked before anything is copied, the digest
/// of all that was read before the caller sees success: no verify_checkpoint() is needed before.
/// Memory: the largest header and 1 MiB. Errors: (user) a tensor missing, left over, or of another
/// shape: names the first in the order of `state`, wanted and found; (damage) bytes that were read
/// differ, a file is missing or of another size; (failure) it cannot be read. `state` is then
/// undefined. Blocks.
Status restore(const std::filesystem::path& checkpoint, const Manifest& manifest,
               std::span<engine::StateView> state, const RestoreOptions& options = {});

struct FoundCheckpoint {
  Candidate candidate;
  Manifest manifest;
  std::string manifest_digest;
};

struct SearchReport {
  std::optional<FoundCheckpoint> newest;  ///< Empty: there is no checkpoint, a fresh start.
  std::vector<std::string> set_aside;     ///< A line for the log per damaged checkpoint.
};

/// How far a search looks into a checkpoint.
enum class Depth : std::uint8_t {
  files,  ///< Its manifest is valid, and every file is there with its size. No tensor is read: for
          ///< those who restore it, and so verify what they read.
  bytes,  ///< verify_checkpoint().
};

/// The newest whole checkpoint, as far as `depth` looks. Damaged ones in front of it are set aside
/// (damaged-*); leftovers of killed writers are removed. REQUIRES: the run's lock is held. Blocks.
/// Errors (failure): checkpoints were there and none is whole (lists them): never a silent restart;
/// one in front of it cannot be read (names file and cause): it stays, and none before it is taken.
Result<SearchReport> find_newest(const std::filesystem::path& checkpoints,
                                 Depth depth = Depth::bytes);

/// The same by all bytes, without changing anything on disk and without the lock: for programs that
/// only read, also while the run goes on and replaces its checkpoints.
Result<SearchReport> find_newest_read_only(const std::filesystem::path& checkpoints);

/// Of a checkpoint that cannot be read, by `cause`: a start ends with it (failure).
[[nodiscard]] Error unreadable(const std::filesystem::path& checkpoint, std::string_view cause);

/// Sets one that is damaged by `defect` aside. Returns the line for the log.
Result<std::string> set_damaged_aside(const std::filesystem::path& checkpoint,
                                      std::string_view defect);

}  // namespace train::checkpoint
