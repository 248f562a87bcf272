#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "actors/head/index_actor.hpp"
#include "actors/messages/save_messages.hpp"
#include "actors/train/rank_actors.hpp"

namespace train::test {

/// Checkpoints in memory, in one or two locations, with failures on request.
struct MemoryCheckpoints {
  using Steps = std::vector<std::int64_t>;
  using Parts = std::map<std::int64_t, std::set<std::int32_t>>;  ///< Step -> ranks.

  bool two_locations = false;
  std::map<std::int64_t, std::uint64_t> written;  ///< Step -> digest of its weights.
  Steps recorded;
  Steps discarded;  ///< Steps discarded in the project's location.
  Parts incoming;   ///< Ranks that wrote a shard, in its first location.
  Parts sent;       ///< With two locations: ranks whose shard was sent to the project's.
  std::set<std::int64_t> local;  ///< With two locations: sealed, with all shards.
  Steps finalized;               ///< Steps finalized by rank 0.
  Steps journal;                 ///< Steps of the step journal.
  Steps unwritten;               ///< Steps refused by the journal so far.
  std::string journal_failure;   ///< Cause of the refusals; empty: none.
  std::map<std::int64_t, double> losses;
  std::vector<std::pair<std::string, std::string>> events;
  std::vector<std::pair<std::int64_t, checkpoint::CheckpointState>> notes;
  std::vector<std::string> told;  ///< Notes to observers.

  Steps rooms;                       ///< Steps for which room was requested.
  std::int64_t old_checkpoints = 0;  ///< Checkpoints that making room may retire, one at a time.
  bool room_helps = true;            ///< True: making room clears the step's failure.

  std::int32_t fail_rank = 0;  ///< Rank with these failures, by step:
  std::set<std::int64_t> fail_write, fail_seal, fail_send;
  std::set<std::int64_t> throw_in_write;
  std::string send_failure = "rsync: connection lost";
  std::set<std::int64_t> fail_manifest, fail_publish, throw_in_publish, fail_record;

  /// Shard operations for the snapshot actor of `rank`.
  actors::ShardWork shard_work(std::int32_t rank) {
    return {.write = [this, rank](std::int64_t step,
                                  std::span<const engine::StateView>) -> Result<std::string> {
              const std::lock_guard lock(*mutex_);  // Ranks may have threads.
              if (throw_in_write.contains(step)) {
                throw std::runtime_error("the controller is gone");
              }
              if (rank == fail_rank && fail_write.contains(step)) {
                return failure("disk full");
              }
              incoming[step].insert(rank);
              return std::to_string(rank);
            },
            .seal = [this, rank](auto step,
                                 const auto& manifest) { return seal(rank, step, manifest); },
            .send = [this, rank](std::int64_t step) { return send(rank, step); },
            .finalize =
                [this, rank](std::int64_t step) {
                  const std::lock_guard lock(*mutex_);
                  if (rank == 0) {
                    finalized.push_back(step);
                    std::erase_if(local, [step](std::int64_t other) { return other < step; });
                    std::erase_if(incoming,
                                  [step](const auto& other) { return other.first < step; });
                  }
                  return Status();
                },
            .discard =
                [this, rank](std::int64_t step) {
                  const std::lock_guard lock(*mutex_);
                  if (rank == 0) {
                    incoming.erase(step);
                  }
                  return Status();
                }};
  }
  /// Operations for the index actor.
  run::IndexWork index_work() {
    run::IndexWork work = {
        .first_step = 0,
        .set_state =
            [this](auto step, auto state) {
              return keep(notes, std::pair{step, state});
            },
        .seal = {},
        .publish = [this](auto step, const auto& shards) { return publish(step, shards); },
        .record = [this](std::int64_t step) { return record(step); },
        .discard = [this](std::int64_t step, bool) { return discard(step); },
        .make_room =
            [this](std::int64_t step) {
              const std::lock_guard lock(*mutex_);
              const bool helps = room_helps && old_checkpoints > 0;
              fail_write.erase(helps ? step : -1);
              fail_send.erase(helps ? step : -1);
              journal_failure = helps ? std::string() : journal_failure;
              rooms.push_back(step);
              return std::int64_t{old_checkpoints > 0 ? old_checkpoints-- : 0};
            },
        .journal = [this](std::span<const checkpoint::StepRecord> steps) -> Status {
          for (const checkpoint::StepRecord& one : steps) {
            unwritten.push_back(one.step);
          }
          if (!journal_failure.empty()) {
            return failure(journal_failure);
          }
          journal.insert(journal.end(), unwritten.begin(), unwritten.end());
          unwritten.clear();
          return {};
        },
        .evaluated =
            [this](std::int64_t step, double loss) {
              losses[step] = loss;
              return Status();
            },
        .event =
            [this](std::string_view kind, std::string_view text) {
              return keep(events, std::pair{std::string(kind), std::string(text)});
            },
        .note = [this](std::int64_t step,
                       const char* kind) { return keep(told, std::to_string(step) + " " + kind); }};
    if (two_locations) {
      work.seal = [this](std::int64_t step, const auto& shards) -> Result<std::string> {
        if (fail_manifest.contains(step)) {
          return failure("rows are missing");
        }
        return "manifest of " + std::to_string(shards.size());
      };
    }
    return work;
  }

 private:
  template <class List, class Entry>
  Status keep(List& list, Entry entry) {
    const std::lock_guard lock(*mutex_);
    list.push_back(std::move(entry));
    return {};
  }
  Status seal(std::int32_t rank, std::int64_t step, const std::string& manifest) {
    const std::lock_guard lock(*mutex_);
    if (rank == fail_rank && fail_seal.contains(step)) {
      return failure("local disk full");
    }
    if (rank == 0) {
      if (manifest != "manifest of " + std::to_string(incoming[step].size())) {
        return failure("another manifest");
      }
      local.insert(step);
    }
    return {};
  }
  Status send(std::int32_t rank, std::int64_t step) {
    const std::lock_guard lock(*mutex_);
    if (!local.contains(step) || !incoming[step].contains(rank)) {
      return failure("sent before it was sealed");
    }
    if (rank == fail_rank && fail_send.contains(step)) {
      return failure(send_failure);
    }
    sent[step].insert(rank);
    return {};
  }
  Result<run::WrittenCheckpoint> publish(std::int64_t step,
                                         const std::vector<actors::ShardWritten>& shards) {
    const std::lock_guard lock(*mutex_);
    if (throw_in_publish.contains(step)) {
      throw std::runtime_error("the disk is gone");
    }
    if (fail_publish.contains(step)) {
      return failure("no such directory");
    }
    std::uint64_t digest = 0;
    for (std::size_t rank = 0; rank < shards.size(); ++rank) {
      if (shards[rank].record != std::to_string(rank)) {
        return failure("shards out of order");
      }
      digest += shards[rank].weights_digest;
    }
    if ((two_locations ? sent : incoming)[step].size() != shards.size()) {
      return failure("a shard is not there");
    }
    written[step] = digest;
    incoming.erase(step);
    sent.erase(step);
    return run::WrittenCheckpoint{.directory = std::to_string(step), .size_bytes = 1};
  }
  Status record(std::int64_t step) {
    const std::lock_guard lock(*mutex_);
    if (fail_record.contains(step)) {
      return failure("index full");
    }
    recorded.push_back(step);
    return {};
  }
  Status discard(std::int64_t step) {
    const std::lock_guard lock(*mutex_);
    (two_locations ? sent : incoming).erase(step);
    discarded.push_back(step);
    return {};
  }

  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();
};

}  // namespace train::test
