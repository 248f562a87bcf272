#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "actors/index_actor.hpp"
#include "actors/messages/event_messages.hpp"
#include "actors/snapshot_actor.hpp"

namespace train::test {

/// Checkpoints in memory, which fail when told to.
struct MemoryCheckpoints {
  std::map<std::int64_t, std::uint64_t> written;  ///< Step -> digest of the weights in it.
  std::vector<std::int64_t> recorded;
  std::vector<std::int64_t> discarded;
  std::map<std::int64_t, std::set<std::int32_t>> incoming;  ///< Step -> ranks that wrote a shard.
  std::set<std::int64_t> fail_write;  ///< Steps of which the shard of `fail_rank` is not written.
  std::int32_t fail_rank = 0;
  std::set<std::int64_t> fail_publish, throw_in_publish, fail_record;

  /// What the snapshot actor of `rank` writes with.
  actors::WriteShard shard_writer(std::int32_t rank) {
    return
        [this, rank](std::int64_t step, std::span<const engine::StateView>) -> Result<std::string> {
          const std::lock_guard lock(*mutex_);  // ranks may have threads
          if (rank == fail_rank && fail_write.contains(step)) {
            return failure("disk full");
          }
          incoming[step].insert(rank);
          return std::to_string(rank);
        };
  }
  /// What the index actor works with.
  actors::IndexWork index_work() {
    return {.publish = [this](auto step, const auto& shards) { return publish(step, shards); },
            .record = [this](std::int64_t step) { return record(step); },
            .discard =
                [this](std::int64_t step) {
                  const std::lock_guard lock(*mutex_);
                  incoming.erase(step);
                  discarded.push_back(step);
                }};
  }

 private:
  Result<actors::WrittenCheckpoint> publish(std::int64_t step,
                                            const std::vector<actors::ShardWritten>& shards) {
    const std::lock_guard lock(*mutex_);
    if (throw_in_publish.contains(step)) {
      throw std::runtime_error("the disk is gone");
    }
    if (fail_publish.contains(step)) {
      return failure("no such directory");
    }
    for (std::size_t rank = 0; rank < shards.size(); ++rank) {
      if (shards[rank].record != std::to_string(rank)) {
        return failure("shards out of order");
      }
      written[step] += shards[rank].weights_digest;
    }
    if (incoming[step].size() != shards.size()) {
      return failure("a shard is not there");
    }
    incoming.erase(step);
    return actors::WrittenCheckpoint{.directory = std::to_string(step), .size_bytes = 1};
  }
  Status record(std::int64_t step) {
    if (fail_record.contains(step)) {
      return failure("index full");
    }
    recorded.push_back(step);
    return {};
  }

  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();
};

}  // namespace train::test
