#include "checkpoint/save/writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "checkpoint/format/layout.hpp"
#include "checkpoint/load/reader.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/files/digest.hpp"
#include "storage/safetensors_header.hpp"
#include "storage/safetensors_writer.hpp"

namespace train::checkpoint {
namespace {

namespace fs = std::filesystem;

void check_view(const engine::StateView& view) {
  const std::int64_t all = view.global_shape.empty() ? 1 : view.global_shape.front();
  TRAIN_CHECK(!view.name.empty() && view.first_row >= 0 && view.rows >= 0 &&
                  view.rows <= all - view.first_row,
              "tensor {}: rows {} + {} of {}", view.name, view.first_row, view.rows, all);
}

/// Appends the rows of a view. They are read from memory once: each piece is digested three times
/// and copied to the file's buffer while in cache.
Result<TensorRecord> write_rows(storage::SafetensorsWriter& file, const engine::StateView& view,
                                const std::string& file_name) {
  constexpr std::uint64_t cached_bytes = std::uint64_t{256} << 10;
  TensorRecord record{
      .name = view.name,
      .dtype = "F32",
      .shape = view.global_shape,
      .file = file_name,
      .first_row = view.first_row,
      .rows = view.rows,
      .digest = {},
      .block_bytes = block_size(*storage::tensor_size_bytes("F32", view.global_shape)),
      .blocks = {}};
  const std::uint64_t piece_bytes =
      std::max(cached_bytes / record.block_bytes, std::uint64_t{1}) * record.block_bytes;
  storage::StreamingDigest digest;
  for (std::span<const std::byte> rest(view.data, view.size_bytes); !rest.empty();) {
    const auto piece = rest.first(std::min<std::uint64_t>(piece_bytes, rest.size()));
    digest.update(piece);
    record.blocks += block_digests(piece, record.block_bytes);
    TRAIN_RETURN_IF_ERROR(file.write(piece));
    rest = rest.subspan(piece.size());
  }
  record.digest = digest.finish();
  return record;
}

Manifest assemble(const ManifestFields& fields, std::span<const ShardRecord> shards) {
  Manifest manifest;
  manifest.fields = fields;
  manifest.config_digest = storage::digest_text(fields.config_text);
  for (const ShardRecord& shard : shards) {
    manifest.files.push_back(shard.file);
    manifest.tensors.insert(manifest.tensors.end(), shard.tensors.begin(), shard.tensors.end());
  }
  std::sort(manifest.tensors.begin(), manifest.tensors.end(),
            [](const TensorRecord& a, const TensorRecord& b) {
              return std::tie(a.name, a.first_row) < std::tie(b.name, b.first_row);
            });
  return manifest;
}

/// Empty if every file is in `directory` with its size; otherwise the first that is not.
std::string missing_file(const fs::path& directory, std::span<const FileRecord> files) {
  for (const FileRecord& file : files) {
    std::error_code code;
    const std::uintmax_t size = fs::file_size(directory / file.name, code);
    if (code) {
      return fmt::format("{} is not there: {}", file.name, code.message());
    }
    if (size != file.size_bytes) {
      return fmt::format("{} has {} bytes of {}", file.name, size, file.size_bytes);
    }
  }
  return {};
}

}  // namespace

IncomingCheckpoint::IncomingCheckpoint(const fs::path& checkpoints, const std::string& tag,
                                       std::int64_t step)
    : path_(incoming_path(checkpoints, tag, step)), target_(checkpoints / checkpoint_name(step)) {}

void IncomingCheckpoint::discard() noexcept {
  if (!path_.empty()) {
    std::ignore = storage::remove_tree(path_);  // The next start removes the rest (CK-2).
    path_.clear();
  }
}

fs::path incoming_path(const fs::path& checkpoints, const std::string& tag, std::int64_t step) {
  return checkpoints / fmt::format(".incoming-{}-{}", tag, checkpoint_name(step));
}

Result<ShardRecord> write_shard(const fs::path& incoming, std::span<const engine::StateView> state,
                                Shard shard) {
  TRAIN_CHECK(shard.index >= 0 && shard.index < shard.count);
  TRAIN_RETURN_IF_ERROR(storage::make_directory(incoming));
  ShardRecord record;
  record.file.name = fmt::format("shard-{:05}-of-{:05}.safetensors", shard.index, shard.count);
  std::vector<const engine::StateView*> written;
  std::vector<storage::TensorHeading> headings;
  for (const engine::StateView& view : state) {
    check_view(view);
    if (view.rows > 0 || (!view.global_shape.empty() && view.global_shape.front() == 0)) {
      written.push_back(&view);
      headings.push_back({view.name, rows_shape(view.global_shape, view.rows)});
    }
  }
  auto file = TRAIN_TRY(storage::SafetensorsWriter::create(incoming / record.file.name, headings));
  for (const engine::StateView* view : written) {
    auto tensor = TRAIN_TRY(write_rows(file, *view, record.file.name));
    record.tensors.push_back(std::move(tensor));
  }
  auto committed = TRAIN_TRY(file.commit());
  record.file.size_bytes = committed.size_bytes;
  record.file.digest = std::move(committed.digest);
  return record;
}

Result<ManifestDraft> draft_manifest(const ManifestFields& fields,
                                     std::span<const ShardRecord> shards) {
  ManifestDraft draft{.manifest = assemble(fields, shards), .text = {}};
  const std::string name = checkpoint_name(fields.step);
  if (const std::string defect = coverage_defect(draft.manifest.tensors); !defect.empty()) {
    return failure(fmt::format("cannot publish {}: {}", name, defect));
  }
  draft.text = manifest_text(draft.manifest);
  if (draft.text.size() > kManifestTextLimit) {
    return failure(fmt::format("cannot publish {}: its manifest would have {} bytes of {}", name,
                               draft.text.size(), kManifestTextLimit));
  }
  return draft;
}

Result<WriteOutcome> IncomingCheckpoint::publish(ManifestDraft draft) {
  TRAIN_CHECK(!path_.empty() && checkpoint_name(draft.manifest.fields.step) == target_.filename());
  WriteOutcome outcome;
  outcome.path = target_;
  outcome.manifest = std::move(draft.manifest);
  if (const std::string defect = missing_file(path_, outcome.manifest.files); !defect.empty()) {
    return failure(fmt::format("cannot publish {}: {}", target_.string(), defect));
  }
  outcome.manifest_digest = storage::digest_text(draft.text);
  TRAIN_RETURN_IF_ERROR(storage::write_file_atomically(path_ / kManifestFileName, draft.text));
  if (!is_gone(target_)) {
    auto found = TRAIN_TRY(verify_checkpoint(target_));
    if (found.whole()) {
      outcome.manifest = std::move(*found.manifest);
      outcome.manifest_digest = std::move(found.manifest_digest);
      outcome.already_there = true;
      discard();
      return outcome;
    }
    if (found.verdict == Verdict::unreadable) {
      return failure(
          fmt::format("cannot publish {}: there is one already, which cannot be read: {}",
                      target_.string(), found.defect));
    }
    const auto aside = set_aside(target_);
    TRAIN_RETURN_IF_ERROR(aside);
  }
  TRAIN_RETURN_IF_ERROR(storage::rename_durably(path_, target_));
  path_.clear();
  return outcome;
}

}  // namespace train::checkpoint
