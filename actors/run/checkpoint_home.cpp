#include "actors/run/checkpoint_home.hpp"

#include <fmt/format.h>

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

Result<std::unique_ptr<CheckpointHome>> CheckpointHome::open(const Options& options) {
  TRAIN_RETURN_IF_ERROR(storage::make_directory(options.checkpoints));
  auto home = std::unique_ptr<CheckpointHome>(new CheckpointHome(options));
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

Result<std::int64_t> CheckpointHome::restore(engine::RankEngine& engine) {
  auto found = checkpoint::find_newest(options_.checkpoints);
  if (!found) {
    return found.error();
  }
  for (const std::string& line : found->set_aside) {
    log_warning(fmt::format("checkpoint_set_aside {}", line));
  }
  if (!found->newest) {
    return std::int64_t{0};
  }
  const checkpoint::FoundCheckpoint& newest = *found->newest;
  auto views = engine.state_views();
  TRAIN_RETURN_IF_ERROR(checkpoint::restore(newest.candidate.path, newest.manifest, views));
  const checkpoint::ManifestFields& fields = newest.manifest.fields;
  if (fields.kernel_set != options_.fields.kernel_set) {
    log_warning(
        fmt::format("kernel_set_changed saved with {}, running on {}: results agree to "
                    "rounding, not to the bit",
                    fields.kernel_set, options_.fields.kernel_set));
  }
  log_info(fmt::format("resumed step={} from {}", fields.step, newest.candidate.path.string()));
  return fields.step;
}

Result<WrittenCheckpoint> CheckpointHome::write(std::int64_t step,
                                                std::span<const engine::StateView> state) {
  checkpoint::ManifestFields fields = options_.fields;
  fields.step = step;
  fields.tokens = step * options_.tokens_per_step;
  fields.weights_digest = fmt::format("{:016x}", engine::weights_digest(state));
  fields.index_head = index_->head();
  auto outcome = checkpoint::write_checkpoint(options_.checkpoints, fields, state);
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

Status CheckpointHome::record(std::int64_t step) {
  const auto digest = manifest_digests_.find(step);
  TRAIN_CHECK(digest != manifest_digests_.end(), "step {} was not written here", step);
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
