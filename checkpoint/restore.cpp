#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/blocks.hpp"
#include "checkpoint/reader.hpp"
#include "checkpoint/row_map.hpp"
#include "checkpoint/stored_file.hpp"
#include "storage/files/digest.hpp"
#include "storage/files/untrusted_text.hpp"
#include "storage/safetensors.hpp"

namespace train::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kRestorePieceBytes = std::uint64_t{1} << 20;

/// Copies wanted bytes out of one file, checking all that it reads.
class FileReader {
 public:
  FileReader(const storage::SafetensorsFile& file, RestoreStatistics& statistics)
      : file_(file), statistics_(statistics) {}

  Status copy(const Wanted& wanted) {
    const storage::TensorEntry* entry = file_.find(wanted.record->name);
    if (entry == nullptr) {
      return damage(wanted, "is not in it");
    }
    if (const std::string defect = entry_defect(*entry, *wanted.record); !defect.empty()) {
      return failure(fmt::format("{}: {}", file_.file().path().string(), defect));
    }
    statistics_.kept_bytes += wanted.end - wanted.begin;
    return wanted.record->block_bytes > 0 ? copy_blocks(*entry, wanted)
                                          : copy_checking_all(*entry, wanted);
  }

 private:
  [[nodiscard]] Status damage(const Wanted& wanted, std::string_view what) const {
    return failure(fmt::format("{}: tensor {} {}", file_.file().path().string(),
                               storage::shown(wanted.record->name), what));
  }

  Status read(const storage::TensorEntry& entry, std::uint64_t offset, std::span<std::byte> out) {
    statistics_.tensor_bytes += out.size();
    return file_.read(entry, offset, out);
  }

  /// Whole blocks go straight to where they are wanted; those that are wanted in part go by way of
  /// `piece_`.
  Status copy_blocks(const storage::TensorEntry& entry, const Wanted& wanted) {
    const std::uint64_t length = wanted.record->block_bytes;
    const std::uint64_t size = entry.end - entry.begin;
    for (std::uint64_t block = wanted.begin / length; block * length < wanted.end;) {
      const std::uint64_t start = block * length;
      std::uint64_t end = std::min(start + length, size);
      std::span<std::byte> out;
      const bool whole = start >= wanted.begin && end <= wanted.end;
      if (whole) {
        const std::uint64_t most = start + kRestorePieceBytes / length * length;
        const std::uint64_t last = wanted.end == size ? size : wanted.end / length * length;
        end = std::max(end, std::min(most, last));
        out = std::span(wanted.to + (start - wanted.begin), end - start);
      } else {
        piece_.resize(end - start);
        out = piece_;
      }
      TRAIN_RETURN_IF_ERROR(read(entry, start, out));
      if (!blocks_match(*wanted.record, block, out)) {
        return damage(wanted, "does not match its digest");
      }
      if (!whole) {
        take(out, start, wanted);
      }
      block += (end - start + length - 1) / length;
    }
    return {};
  }

  Status copy_checking_all(const storage::TensorEntry& entry, const Wanted& wanted) {
    const std::uint64_t size = entry.end - entry.begin;
    storage::StreamingDigest digest;
    for (std::uint64_t start = 0; start < size; start += piece_.size()) {
      piece_.resize(std::min(kRestorePieceBytes, size - start));
      TRAIN_RETURN_IF_ERROR(read(entry, start, piece_));
      digest.update(piece_);
      take(piece_, start, wanted);
    }
    return digest.finish() == wanted.record->digest ? Status()
                                                    : damage(wanted, "does not match its digest");
  }

  /// Copies what is wanted of `bytes`, which begin at byte `start` of the record's rows.
  static void take(std::span<const std::byte> bytes, std::uint64_t start, const Wanted& wanted) {
    const std::uint64_t first = std::max(start, wanted.begin);
    const std::uint64_t last = std::min(start + bytes.size(), wanted.end);
    if (first < last) {
      std::memcpy(wanted.to + (first - wanted.begin), bytes.data() + (first - start), last - first);
    }
  }

  const storage::SafetensorsFile& file_;
  RestoreStatistics& statistics_;
  std::vector<std::byte> piece_;
};

Status restore_from(const fs::path& checkpoint, const FileRecord& record,
                    std::span<const Wanted> wanted, RestoreStatistics& statistics) {
  auto stored = open_stored(checkpoint, record.name);
  if (!stored) {
    return stored.error();
  }
  if (!stored->file) {
    return failure(fmt::format("{}: {}", checkpoint.string(), stored->damage));
  }
  if (stored->file->size_bytes() != record.size_bytes) {
    return failure(fmt::format("{}: {} has {} bytes of {}", checkpoint.string(), record.name,
                               stored->file->size_bytes(), record.size_bytes));
  }
  const auto file = storage::SafetensorsFile::parse(std::move(*stored->file));
  if (!file) {
    return file.error();
  }
  ++statistics.files;
  statistics.header_bytes += file->data_start();
  FileReader reader(*file, statistics);
  for (const Wanted& part : wanted) {
    TRAIN_RETURN_IF_ERROR(reader.copy(part));
  }
  return {};
}

}  // namespace

Status restore(const fs::path& checkpoint, const Manifest& manifest,
               std::span<engine::StateView> state, Restore which, RestoreStatistics* statistics) {
  const RecordsByName records = by_name(manifest.tensors);
  TRAIN_RETURN_IF_ERROR(check_fit(checkpoint.string(), records, state, which));
  std::map<std::string_view, std::vector<Wanted>> wanted;  // by the file's name
  for (const Wanted& part : wanted_of(records, state)) {
    wanted[part.record->file].push_back(part);
  }
  RestoreStatistics counted;
  for (const FileRecord& record : manifest.files) {
    if (const auto found = wanted.find(record.name); found != wanted.end()) {
      TRAIN_RETURN_IF_ERROR(restore_from(checkpoint, record, found->second, counted));
    }
  }
  if (statistics != nullptr) {
    *statistics = counted;
  }
  return {};
}

}  // namespace train::checkpoint
