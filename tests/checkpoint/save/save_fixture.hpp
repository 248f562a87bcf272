#pragma once

#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/index/index.hpp"
#include "checkpoint/save/locations.hpp"
#include "checkpoint/save/retention.hpp"
#include "checkpoint/save/writer.hpp"
#include "tests/checkpoint/checkpoint_fixture.hpp"

// Saves as a run makes them, in one place or two, all ranks in this process.
namespace train::test {

/// Where a save goes, and what it holds.
struct SaveRequest {
  std::filesystem::path checkpoints;
  std::int64_t step = 0;
  std::int64_t ranks = 2;
  std::int64_t rows = 1000;  ///< Of the largest tensors.
  std::string index_head = {};
};

/// The state of a step: no two steps have a number in common.
inline SmallState state_at(std::int64_t step, std::int64_t rows = 1000) {
  return SmallState(static_cast<float>(step) * 16384.0F, rows);
}

inline checkpoint::ManifestFields fields_of(const SaveRequest& request) {
  auto fields = fields_at(request.step);
  fields.index_head = request.index_head;
  return fields;
}

inline Result<checkpoint::WriteOutcome> write_in_place(const SaveRequest& request) {
  CheckpointOfOneProcess incoming(request.checkpoints, request.step);
  SmallState state = state_at(request.step, request.rows);
  std::vector<checkpoint::ShardRecord> shards;
  for (std::int64_t rank = 0; rank < request.ranks; ++rank) {
    auto shard = incoming.write_shard(state.views_of(rank, request.ranks), {rank, request.ranks});
    TRAIN_RETURN_IF_ERROR(shard);
    shards.push_back(*shard);
  }
  return incoming.publish(fields_of(request), shards);
}

inline checkpoint::Locations locations_beside(const std::filesystem::path& checkpoints) {
  return {.project = checkpoints, .local = checkpoints.parent_path() / "local"};
}

/// The ranks' halves of a save in two places, all on one node.
inline std::vector<checkpoint::ShardCarrier> carriers_of(const SaveRequest& request) {
  std::vector<checkpoint::ShardCarrier> carriers;
  for (std::int64_t rank = 0; rank < request.ranks; ++rank) {
    carriers.emplace_back(
        checkpoint::ShardCarrier::Options{.places = locations_beside(request.checkpoints),
                                          .tag = "job",
                                          .rank = rank,
                                          .ranks = request.ranks,
                                          .lowest_of_node = rank == 0});
  }
  return carriers;
}

inline Result<checkpoint::ManifestDraft> write_locally(
    const SaveRequest& request, std::vector<checkpoint::ShardCarrier>& carriers) {
  SmallState state = state_at(request.step, request.rows);
  std::vector<checkpoint::ShardRecord> shards;
  for (std::int64_t rank = 0; rank < request.ranks; ++rank) {
    checkpoint::ShardCarrier& carrier = carriers[static_cast<std::size_t>(rank)];
    TRAIN_RETURN_IF_ERROR(carrier.prepare());
    auto shard = carrier.write(request.step, state.views_of(rank, request.ranks));
    TRAIN_RETURN_IF_ERROR(shard);
    shards.push_back(*shard);
  }
  auto draft = checkpoint::draft_manifest(fields_of(request), shards);
  TRAIN_RETURN_IF_ERROR(draft);
  for (const checkpoint::ShardCarrier& carrier : carriers) {
    TRAIN_RETURN_IF_ERROR(carrier.seal(request.step, draft->text));
  }
  return draft;
}

inline Result<checkpoint::WriteOutcome> write_in_two_locations(const SaveRequest& request) {
  auto carriers = carriers_of(request);
  auto draft = write_locally(request, carriers);
  TRAIN_RETURN_IF_ERROR(draft);
  for (const checkpoint::ShardCarrier& carrier : carriers) {
    TRAIN_RETURN_IF_ERROR(carrier.send(request.step));
  }
  return checkpoint::IncomingCheckpoint(request.checkpoints, "job", request.step)
      .publish(std::move(*draft));
}

/// What follows a publication: the record, retirement by `rule`, and with two places the local
/// one's tidying.
inline Status record_save(const SaveRequest& request, const checkpoint::WriteOutcome& written,
                          checkpoint::CheckpointIndex& index,
                          const checkpoint::RetentionRule& rule) {
  TRAIN_RETURN_IF_ERROR(
      index.commit(checkpoint::entry_of(written.manifest, written.manifest_digest)));
  for (const std::int64_t old : checkpoint::to_retire(index.committed(), rule)) {
    TRAIN_RETURN_IF_ERROR(checkpoint::retire(request.checkpoints, old));
    TRAIN_RETURN_IF_ERROR(index.retire(old));
  }
  const bool two_locations = std::filesystem::exists(locations_beside(request.checkpoints).local);
  return two_locations ? carriers_of(request)[0].finalize(request.step) : Status();
}

}  // namespace train::test
