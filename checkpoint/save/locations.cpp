#include "checkpoint/save/locations.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>
#include <system_error>

#include "checkpoint/format/layout.hpp"
#include "checkpoint/save/retention.hpp"
#include "checkpoint/save/writer.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/files/digest.hpp"
#include "storage/files/direct_io.hpp"
#include "storage/files/file_lock.hpp"
#include "storage/files/private_directory.hpp"

namespace train::checkpoint {
namespace {

namespace fs = std::filesystem;

/// Copies one file into `directory`, creating it if missing: durable and read back.
Status carry(const fs::path& file, const std::string& digest, const fs::path& directory,
             const storage::RsyncOptions& rsync) {
  TRAIN_RETURN_IF_ERROR(storage::make_directory(directory));
  TRAIN_RETURN_IF_ERROR(storage::rsync_file(file, directory, rsync));
  const fs::path copy = directory / file.filename();
  TRAIN_RETURN_IF_ERROR(storage::fsync_file(copy));
  const auto found = TRAIN_TRY(storage::digest_on_disk(copy));
  if (found != digest) {
    return failure(fmt::format("{} is not what was sent: its digest is {}, not {}", copy.string(),
                               found, digest));
  }
  return {};
}

constexpr std::string_view kWayOut =
    "its checkpoints could be replaced by others: move it away, or set checkpoint.local_dir to "
    "another directory";

/// True if `directory` has exactly this manifest.
bool has_manifest(const fs::path& directory, const std::string& manifest) {
  const auto text = storage::read_file(directory / kManifestFileName, manifest.size() + 1);
  return text.ok() && *text == manifest;
}

/// Owners of a place's checkpoints.
struct Owners {
  bool ours = false;  ///< Some belong, or may belong, to this run: one without an identity may be
                      ///< of an earlier version.
  Status others;      ///< Names the first one of another run (user).
};

Result<Owners> owners_in(const fs::path& place, const RunIdentity& identity) {
  const auto found = TRAIN_TRY(list_checkpoints(place));
  Owners owners;
  for (const Candidate& candidate : found) {
    const auto examined = examine_manifest(candidate.path);
    const bool named = examined && examined->manifest && !examined->manifest->fields.run_id.empty();
    const Status own =
        named ? check_identity(candidate.path, *examined->manifest, identity) : Status();
    owners.ours = owners.ours || own;
    owners.others = owners.others ? own : owners.others;
  }
  return owners;
}

}  // namespace

fs::path local_directory(const std::string& local_dir, const std::string& slurm_tmpdir) {
  if (local_dir == "none") {
    return {};
  }
  return local_dir == "auto" ? fs::path(slurm_tmpdir) : fs::path(local_dir);
}

Locations places_of(const fs::path& run, const fs::path& local_directory) {
  Locations places{.project = run / "checkpoints"};
  if (local_directory.empty()) {
    return places;
  }
  const auto place = [&](const fs::path& root) {
    const std::string digest = storage::digest_text(root.string());
    return fs::absolute(local_directory).lexically_normal() /
           fmt::format("actortrain-{}-{}", root.filename().string(),
                       digest.substr(digest.size() - 8)) /
           "checkpoints";
  };
  const fs::path as_named = fs::absolute(run).lexically_normal();
  std::error_code code;
  const fs::path root = fs::weakly_canonical(as_named, code);
  places.local = place(code ? as_named : root);
  const fs::path former = place(as_named);
  if (former != places.local) {
    places.former = former;
  }
  return places;
}

Result<Descriptor> open_local(const Locations& places, const fs::path& below) {
  TRAIN_CHECK(places.two());
  const fs::path own = places.local.parent_path();
  return storage::open_private_directory(own.parent_path(),
                                         own.filename() / places.local.filename() / below, kWayOut);
}

Status prove_local(const Locations& places) {
  const auto opened = TRAIN_TRY(open_local(places));
  return storage::check_private_tree(opened.get(), places.local, kWayOut);
}

Result<std::string> set_local_aside(const Locations& places, const RunIdentity& identity) {
  const auto names = TRAIN_TRY(storage::entry_names(places.local));
  if (names.empty()) {
    return std::string();
  }
  const fs::path aside = places.local.parent_path() / ("before-" + identity.id.substr(0, 8));
  TRAIN_RETURN_IF_ERROR(storage::rename_durably(places.local, aside));
  TRAIN_RETURN_IF_ERROR(open_local(places));
  return fmt::format(
      "{}: has {} of a run that had this directory before; remove it when that run "
      "is not needed",
      aside.string(), fmt::join(names, ", "));
}

Result<std::string> ShardCarrier::prepare() const {
  const Locations& places = options_.places;
  if (!places.two() || !options_.lowest_of_node) {
    return std::string();
  }
  TRAIN_RETURN_IF_ERROR(prove_local(places));
  // Two nodes may share one local place.
  const auto turn = storage::FileLock::wait_for(places.local.parent_path());
  TRAIN_RETURN_IF_ERROR(turn);
  const auto owners = TRAIN_TRY(owners_in(places.local, options_.identity));
  if (!owners.others && options_.begins && !owners.ours) {
    return set_local_aside(places, options_.identity);
  }
  TRAIN_RETURN_IF_ERROR(owners.others);
  TRAIN_RETURN_IF_ERROR(remove_leftovers(places.local));
  return std::string();
}

Result<ShardRecord> ShardCarrier::write(std::int64_t step,
                                        std::span<const engine::StateView> state) {
  const Locations& places = options_.places;
  const fs::path& first = places.two() ? places.local : places.project;
  const fs::path incoming = incoming_path(first, options_.tag, step);
  if (places.two()) {
    TRAIN_RETURN_IF_ERROR(open_local(places, incoming.filename()));
  }
  auto record = write_shard(incoming, state, {.index = options_.rank, .count = options_.ranks});
  if (record) {
    written_ = record->file;
  }
  return record;
}

Status ShardCarrier::seal(std::int64_t step, const std::string& manifest) const {
  if (!options_.lowest_of_node) {
    return {};
  }
  const fs::path& local = options_.places.local;
  const fs::path incoming = incoming_path(local, options_.tag, step);
  const fs::path target = local / checkpoint_name(step);
  TRAIN_RETURN_IF_ERROR(open_local(options_.places));
  // Two nodes may share one local place: they take turns, and only the first has work to do.
  const auto turn = storage::FileLock::wait_for(local);
  TRAIN_RETURN_IF_ERROR(turn);
  std::error_code code;
  if (!fs::exists(incoming, code) && has_manifest(target, manifest)) {
    return storage::fsync_directory(local);
  }
  TRAIN_RETURN_IF_ERROR(storage::write_file_atomically(incoming / kManifestFileName, manifest));
  if (fs::exists(target, code) && !has_manifest(target, manifest)) {
    // A checkpoint of an earlier start, whose steps have been repeated.
    TRAIN_RETURN_IF_ERROR(retire(local, step, options_.identity));
  }
  return storage::rename_durably(incoming, target);
}

Status ShardCarrier::send(std::int64_t step) const {
  TRAIN_CHECK(!written_.name.empty(), "no shard has been written");
  const Locations& places = options_.places;
  TRAIN_RETURN_IF_ERROR(open_local(places, checkpoint_name(step)));
  return carry(places.local / checkpoint_name(step) / written_.name, written_.digest,
               incoming_path(places.project, options_.tag, step), options_.rsync);
}

Status ShardCarrier::finalize(std::int64_t step) const {
  if (!options_.lowest_of_node) {
    return {};
  }
  TRAIN_RETURN_IF_ERROR(open_local(options_.places));
  const auto found = TRAIN_TRY(list_checkpoints(options_.places.local));
  for (const Candidate& candidate : found) {
    if (candidate.step < step) {
      TRAIN_RETURN_IF_ERROR(retire(options_.places.local, candidate.step, options_.identity));
    }
  }
  return {};
}

Status ShardCarrier::discard(std::int64_t step) const {
  return options_.places.two() && options_.lowest_of_node
             ? storage::remove_tree(incoming_path(options_.places.local, options_.tag, step))
             : Status();
}

Status publish_local(const Locations& places, const std::string& tag, const Candidate& local,
                     const Manifest& manifest, const storage::RsyncOptions& rsync) {
  IncomingCheckpoint incoming(places.project, tag, local.step);
  for (const FileRecord& file : manifest.files) {
    TRAIN_RETURN_IF_ERROR(carry(local.path / file.name, file.digest, incoming.path(), rsync));
  }
  const auto text =
      TRAIN_TRY(storage::read_file(local.path / kManifestFileName, kManifestTextLimit));
  const auto published = incoming.publish({manifest, text});
  return published ? Status() : Status(published.error());
}

}  // namespace train::checkpoint
