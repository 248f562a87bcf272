#include "actors/run/checkpoint_home.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <utility>
#include <vector>

#include "checkpoint/layout.hpp"
#include "checkpoint/reader.hpp"
#include "checkpoint/retention.hpp"
#include "checkpoint/writer.hpp"
#include "engine/base/log.hpp"
#include "storage/atomic_file.hpp"
#include "storage/rocks_store.hpp"

namespace train::actors {
namespace {

constexpr std::uint64_t kLargestManifest = std::uint64_t{256} << 20;

}  // namespace

Result<std::unique_ptr<CheckpointHome>> CheckpointHome::open(const Options& options) {
  TRAIN_RETURN_IF_ERROR(storage::make_directory(options.checkpoints));
  auto home = std::unique_ptr<CheckpointHome>(new CheckpointHome(options));
  home->tag_ = fmt::format(
      "{}-{}", ::getpid(),
      std::chrono::system_clock::now().time_since_epoch() / std::chrono::milliseconds(1));
  TRAIN_RETURN_IF_ERROR(home->open_index());
  return home;
}

Status CheckpointHome::open_index() {
  auto store = storage::RocksStore::open(options_.index);
  if (!store && store.error().kind == ErrorKind::failure) {
    // The directory of checkpoints is the truth: an index that cannot be read is made anew from it.
    log_warning(fmt::format("index_damaged {}; making it anew", store.error().message));
    TRAIN_RETURN_IF_ERROR(storage::remove_tree(options_.index));
    store = storage::RocksStore::open(options_.index);
  }
  if (!store) {
    return store.error();
  }
  store_ = std::move(store).value();
  auto index = checkpoint::CheckpointIndex::open(*store_, options_.checkpoints);
  if (!index) {
    return index.error();
  }
  index_.emplace(std::move(index).value());
  const checkpoint::ReconcileReport& report = index_->report();
  if (report.rebuilt && !index_->entries().empty()) {
    log_warning(fmt::format("index_rebuilt {}", report.reason));
  }
  for (const std::string& name : report.adopted) {
    log_info(fmt::format("checkpoint_adopted {}", name));
  }
  return {};
}

Result<std::optional<checkpoint::Candidate>> CheckpointHome::find_newest() {
  auto found = checkpoint::find_newest(options_.checkpoints);
  if (!found) {
    return found.error();
  }
  for (const std::string& line : found->set_aside) {
    log_warning(fmt::format("checkpoint_set_aside {}", line));
  }
  if (!found->newest) {
    return std::optional<checkpoint::Candidate>();
  }
  const checkpoint::FoundCheckpoint& newest = *found->newest;
  const checkpoint::ManifestFields& fields = newest.manifest.fields;
  if (fields.kernel_set != options_.fields.kernel_set) {
    log_warning(
        fmt::format("kernel_set_changed saved with {}, running on {}: results agree to "
                    "rounding, not to the bit",
                    fields.kernel_set, options_.fields.kernel_set));
  }
  log_info(fmt::format("resumed step={} from {}", fields.step, newest.candidate.path.string()));
  return std::optional<checkpoint::Candidate>(newest.candidate);
}

Status restore_rank(const std::filesystem::path& directory, engine::RankEngine& engine) {
  const auto text =
      storage::read_file(directory / checkpoint::manifest_file_name, kLargestManifest);
  if (!text) {
    return text.error();
  }
  const auto manifest = checkpoint::parse_manifest(*text, directory.string());
  if (!manifest) {
    return manifest.error();
  }
  auto views = engine.state_views();
  TRAIN_RETURN_IF_ERROR(checkpoint::restore(directory, *manifest, views));
  engine.settle_restored();
  return {};
}

Result<WrittenCheckpoint> CheckpointHome::publish(std::int64_t step,
                                                  const std::vector<ShardWritten>& shards) {
  checkpoint::ManifestFields fields = options_.fields;
  fields.step = step;
  fields.tokens = step * options_.tokens_per_step;
  fields.index_head = index_->head();
  std::uint64_t digest = 0;
  std::vector<checkpoint::ShardRecord> records;
  for (const ShardWritten& shard : shards) {
    digest += shard.weights_digest;
    auto record = checkpoint::parse_shard(shard.record);
    if (!record) {
      return record.error();
    }
    records.push_back(std::move(record).value());
  }
  fields.weights_digest = fmt::format("{:016x}", digest);
  auto incoming = checkpoint::IncomingCheckpoint::of_ranks(options_.checkpoints, tag_, step);
  auto outcome = incoming.publish(fields, records);
  if (!outcome) {
    return outcome.error();
  }
  manifest_digests_[step] = outcome->manifest_digest;
  WrittenCheckpoint written{.directory = outcome->path.string()};
  for (const checkpoint::FileRecord& file : outcome->manifest.files) {
    written.size_bytes += file.size_bytes;
  }
  return written;
}

void CheckpointHome::discard(std::int64_t step) {
  // Removes what it does not publish.
  const auto dropped = checkpoint::IncomingCheckpoint::of_ranks(options_.checkpoints, tag_, step);
}

Status CheckpointHome::record(std::int64_t step) {
  const auto digest = manifest_digests_.find(step);
  TRAIN_CHECK(digest != manifest_digests_.end(), "step {} was not published here", step);
  TRAIN_RETURN_IF_ERROR(index_->record(step, digest->second));
  manifest_digests_.erase(digest);
  const auto retired = checkpoint::retire_old(options_.checkpoints, options_.keep_last);
  if (!retired) {
    return retired.error();
  }
  for (const std::string& name : *retired) {
    if (const auto retired_step = checkpoint::checkpoint_step(name)) {
      TRAIN_RETURN_IF_ERROR(index_->forget(*retired_step));
    }
  }
  return {};
}

}  // namespace train::actors
