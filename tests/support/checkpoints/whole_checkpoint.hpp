#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <utility>

#include "base/result.hpp"
#include "checkpoint/save/writer.hpp"
#include "engine/state_view.hpp"

// Checkpoints written at once by one process, through the calls that the ranks of a run make.
namespace train::test {

/// Checkpoint under construction in `checkpoints`, a single location.
class CheckpointOfOneProcess {
 public:
  CheckpointOfOneProcess(const std::filesystem::path& checkpoints, std::int64_t step)
      : step_(step), incoming_(checkpoints, "job", step) {}

  [[nodiscard]] Result<checkpoint::ShardRecord> write_shard(
      std::span<const engine::StateView> state, checkpoint::Shard shard) const {
    return checkpoint::write_shard(path(), state, shard);
  }
  Result<checkpoint::WriteOutcome> publish(checkpoint::ManifestFields fields,
                                           std::span<const checkpoint::ShardRecord> shards) {
    fields.step = step_;
    auto draft = checkpoint::draft_manifest(fields, shards);
    TRAIN_RETURN_IF_ERROR(draft);
    return incoming_.publish(std::move(*draft));
  }
  [[nodiscard]] const std::filesystem::path& path() const { return incoming_.path(); }

 private:
  std::int64_t step_;
  checkpoint::IncomingCheckpoint incoming_;
};

/// Writes and publishes a complete state as one shard.
inline Result<checkpoint::WriteOutcome> write_checkpoint(const std::filesystem::path& checkpoints,
                                                         const checkpoint::ManifestFields& fields,
                                                         std::span<const engine::StateView> state) {
  CheckpointOfOneProcess incoming(checkpoints, fields.step);
  const auto shard = incoming.write_shard(state, {.index = 0, .count = 1});
  TRAIN_RETURN_IF_ERROR(shard);
  return incoming.publish(fields, std::span(&*shard, 1));
}

}  // namespace train::test
