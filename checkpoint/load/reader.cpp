#include "checkpoint/load/reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "checkpoint/format/stored_file.hpp"
#include "storage/files/digest.hpp"
#include "storage/files/untrusted_text.hpp"
#include "storage/safetensors.hpp"
#include "storage/safetensors_header.hpp"

namespace train::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kCheckPieceBytes = std::size_t{1} << 20;

Verification finding(Verdict verdict, std::string defect) {
  return {.verdict = verdict, .manifest = {}, .manifest_digest = {}, .defect = std::move(defect)};
}

/// Turns a read error into a result: a user error is returned, all others are findings.
Result<Verification> not_read(const Error& error) {
  if (error.kind == ErrorKind::user) {
    return error;
  }
  return finding(Verdict::unreadable, error.message);
}

using RecordByName = std::map<std::string_view, const TensorRecord*>;

std::string size_defect(const storage::InputFile& file, const FileRecord& record) {
  return file.size_bytes() == record.size_bytes ? std::string()
                                                : fmt::format("{} has {} bytes of {}", record.name,
                                                              file.size_bytes(), record.size_bytes);
}

/// Reads one file of a checkpoint sequentially. Every method returns the damage, empty if there is
/// none; an error means that reading failed.
class FileCheck {
 public:
  FileCheck(const FileRecord& record, const RecordByName& tensors, const SeeRecord& see)
      : record_(record),
        tensors_(tensors),
        see_(see),
        piece_(std::min<std::uint64_t>(kCheckPieceBytes, record.size_bytes)) {}

  Result<std::string> defect(storage::InputFile input) {
    if (std::string text = size_defect(input, record_); !text.empty()) {
      return text;
    }
    bool malformed = false;
    const auto file = storage::SafetensorsFile::parse(std::move(input), &malformed);
    if (!file) {
      return malformed ? Result<std::string>(file.error().message) : file.error();
    }
    TRAIN_RETURN_IF_ERROR(read(file->file(), 0, file->data_start(), {}));
    std::size_t found = 0;
    for (const storage::TensorEntry& entry : file->entries()) {
      const auto tensor = tensors_.find(entry.name);
      if (tensor == tensors_.end()) {
        return fmt::format("{} holds tensor {}, which the manifest does not list", record_.name,
                           storage::shown(entry.name));
      }
      if (auto text = tensor_defect(*file, entry, *tensor->second); !text || !text->empty()) {
        return text;
      }
      ++found;
    }
    if (found != tensors_.size()) {
      return missing_tensor(*file);
    }
    return whole_.finish() == record_.digest
               ? std::string()
               : fmt::format("{} does not match its digest", record_.name);
  }

 private:
  [[nodiscard]] std::string missing_tensor(const storage::SafetensorsFile& file) const {
    for (const auto& [name, tensor] : tensors_) {
      if (file.find(name) == nullptr) {
        return fmt::format("{} lacks tensor {}", record_.name, storage::shown(name));
      }
    }
    return {};
  }

  Result<std::string> tensor_defect(const storage::SafetensorsFile& file,
                                    const storage::TensorEntry& entry, const TensorRecord& tensor) {
    const std::uint64_t begin = file.data_start() + entry.begin;
    const std::uint64_t bytes = entry.end - entry.begin;
    if (const std::string text = entry_defect(entry, tensor); !text.empty()) {
      return fmt::format("{}: {}", record_.name, text);
    }
    storage::StreamingDigest rows;
    std::uint64_t block = 0;
    bool blocks_good = true;
    TRAIN_RETURN_IF_ERROR(read(
        file.file(), begin, bytes,
        [&](std::span<const std::byte> piece) {
          rows.update(piece);
          if (see_) {
            see_(tensor, piece);
          }
          if (tensor.block_bytes > 0) {
            blocks_good = blocks_good && blocks_match(tensor, block, piece);
            block += piece.size() / tensor.block_bytes;
          }
        },
        tensor.block_bytes));
    return rows.finish() == tensor.digest && blocks_good
               ? std::string()
               : fmt::format("{}: tensor {} does not match its digest", record_.name,
                             storage::shown(entry.name));
  }

  /// Reads in pieces of whole blocks.
  Status read(const storage::InputFile& file, std::uint64_t begin, std::uint64_t bytes,
              const std::function<void(std::span<const std::byte>)>& take,
              std::uint64_t block_bytes = 1) {
    const std::uint64_t longest =
        block_bytes > 0 ? kCheckPieceBytes / block_bytes * block_bytes : kCheckPieceBytes;
    while (bytes > 0) {
      const auto piece = std::span(piece_).first(std::min(longest, bytes));
      TRAIN_RETURN_IF_ERROR(file.read(begin, piece));
      whole_.update(piece);
      if (take) {
        take(piece);
      }
      begin += piece.size();
      bytes -= piece.size();
    }
    return {};
  }

  const FileRecord& record_;
  const RecordByName& tensors_;
  const SeeRecord& see_;
  std::vector<std::byte> piece_;
  storage::StreamingDigest whole_;
};

/// Defect of one file: empty if it matches the manifest.
Result<std::string> file_defect(const fs::path& directory, const FileRecord& record,
                                const RecordByName& tensors, const SeeRecord& see) {
  auto stored = TRAIN_TRY(open_stored(directory, record.name));
  return stored.file ? FileCheck(record, tensors, see).defect(std::move(*stored.file))
                     : Result<std::string>(stored.damage);
}

/// Limit of searches: a running run may retire the checkpoint being read.
constexpr int kSearches = 50;

using RecordsByFile = std::map<std::string_view, RecordByName>;
/// Returns the defect of a file; empty: none.
using LookAtFile =
    std::function<Result<std::string>(const FileRecord& record, const RecordByName& tensors)>;

/// Examines the manifest, then each file with `look`.
Result<Verification> examine(const fs::path& checkpoint, const LookAtFile& look) {
  auto examined = examine_manifest(checkpoint);
  if (!examined) {
    return not_read(examined.error());
  }
  if (!examined->manifest) {
    return finding(Verdict::damaged, std::move(examined->damage));
  }
  Manifest& manifest = *examined->manifest;
  RecordsByFile by_file;
  for (const TensorRecord& tensor : manifest.tensors) {
    if (!by_file[tensor.file].emplace(tensor.name, &tensor).second) {
      return finding(Verdict::damaged, fmt::format("{}: tensor {} is listed twice", tensor.file,
                                                   storage::shown(tensor.name)));
    }
  }
  for (const FileRecord& record : manifest.files) {
    const auto defect = look(record, by_file[record.name]);
    if (!defect) {
      return not_read(defect.error());
    }
    if (!defect->empty()) {
      return finding(Verdict::damaged, *defect);
    }
  }
  std::string digest = manifest.text_digest;
  return Verification{.verdict = Verdict::good,
                      .manifest = std::move(manifest),
                      .manifest_digest = std::move(digest),
                      .defect = {}};
}

std::string damage_line(const fs::path& checkpoint, std::string_view defect) {
  return fmt::format("{}: {}", checkpoint.string(), defect);
}

/// `left`: searches that may follow if this one meets a checkpoint retired meanwhile.
Result<SearchReport> search(const fs::path& checkpoints, bool change_disk, Depth depth,
                            int left = 0) {
  const auto candidates = TRAIN_TRY(list_checkpoints(checkpoints));
  SearchReport report;
  for (const Candidate& candidate : candidates) {
    auto found = check_checkpoint(candidate.path, depth);
    if ((!found || !found->whole()) && left > 0 && is_gone(candidate.path)) {
      return search(checkpoints, change_disk, depth, left - 1);  // Its replacement is in place.
    }
    TRAIN_RETURN_IF_ERROR(found);
    if (found->whole()) {
      report.newest = {candidate, std::move(*found->manifest), std::move(found->manifest_digest)};
      return report;
    }
    if (found->verdict == Verdict::unreadable) {
      return unreadable(candidate.path, found->defect);
    }
    auto line = TRAIN_TRY(change_disk ? set_damaged_aside(candidate.path, found->defect)
                                      : damage_line(candidate.path, found->defect));
    report.set_aside.push_back(std::move(line));
  }
  const auto damaged_names = TRAIN_TRY(list_damaged(checkpoints));
  if (!report.set_aside.empty() || !damaged_names.empty()) {
    return damage(fmt::format(
        "{} holds no whole checkpoint, only damaged ones ({}); repair them, or move them away to "
        "start afresh",
        checkpoints.string(),
        report.set_aside.empty() ? fmt::format("{}", fmt::join(damaged_names, ", "))
                                 : fmt::format("{}", fmt::join(report.set_aside, " | "))));
  }
  return report;
}

}  // namespace

Result<Verification> verify_checkpoint(const fs::path& checkpoint, const SeeRecord& see) {
  return examine(checkpoint, [&](const FileRecord& record, const RecordByName& tensors) {
    return file_defect(checkpoint, record, tensors, see);
  });
}

Result<Verification> check_checkpoint(const fs::path& checkpoint, Depth depth) {
  return depth == Depth::bytes ? verify_checkpoint(checkpoint) : look_at_checkpoint(checkpoint);
}

Result<Verification> look_at_checkpoint(const fs::path& checkpoint) {
  return examine(checkpoint, [&](const FileRecord& record, const RecordByName& /*tensors*/) {
    const auto stored = open_stored(checkpoint, record.name);
    return !stored        ? Result<std::string>(stored.error())
           : stored->file ? size_defect(*stored->file, record)
                          : stored->damage;
  });
}

Result<SearchReport> find_newest(const fs::path& checkpoints, Depth depth) {
  TRAIN_RETURN_IF_ERROR(remove_leftovers(checkpoints));
  return search(checkpoints, true, depth);
}

Result<SearchReport> find_newest_read_only(const fs::path& checkpoints) {
  return search(checkpoints, false, Depth::bytes, kSearches);
}

Error unreadable(const fs::path& checkpoint, std::string_view cause) {
  return failure(fmt::format(
      "{} cannot be read: {}; it stays where it is and no older one is taken in its place: start "
      "again when the disk can be read",
      checkpoint.string(), cause));
}

Result<std::string> set_damaged_aside(const fs::path& checkpoint, std::string_view defect) {
  const auto aside = TRAIN_TRY(set_aside(checkpoint));
  return fmt::format("{}; set aside as {}", damage_line(checkpoint, defect),
                     aside.filename().string());
}

namespace {

constexpr std::uint64_t kRestorePieceBytes = std::uint64_t{1} << 20;
/// How far the system reads ahead of a record that is restored a few rows at a time: so many bytes,
/// to twice as many.
constexpr std::uint64_t kAheadBytes = std::uint64_t{1} << 20;

/// Records by tensor name, in row order. Borrowed.
using RecordsByName = std::map<std::string_view, std::vector<const TensorRecord*>>;

/// Bytes [begin, end) of a record's rows, with their destination.
struct Wanted {
  const TensorRecord* record = nullptr;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::byte* to = nullptr;
};

std::string shape_text(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Error another_model(std::string_view source, std::string_view text) {
  return user_error(
      fmt::format("{} belongs to another model: {}; use the configuration it was saved with, or "
                  "another run.name",
                  source, text));
}

/// Checks that the records have the tensors of `state`, in their shapes; with Restore::every_tensor
/// no others. Errors (user): names the first difference.
Status check_fit(std::string_view source, const RecordsByName& records,
                 std::span<const engine::StateView> state, Restore which) {
  std::set<std::string_view> asked;
  for (const engine::StateView& view : state) {
    const auto found = records.find(view.name);
    if (found == records.end()) {
      return another_model(source, fmt::format("tensor {}: wanted shape {}, found none", view.name,
                                               shape_text(view.global_shape)));
    }
    const TensorRecord& record = *found->second.front();
    const std::int64_t all = record.shape.empty() ? 1 : record.shape.front();
    if (record.shape != view.global_shape || record.dtype != "F32") {
      return another_model(source, fmt::format("tensor {}: wanted shape {} F32, found {} {}",
                                               view.name, shape_text(view.global_shape),
                                               shape_text(record.shape), record.dtype));
    }
    TRAIN_CHECK(view.first_row >= 0 && view.rows >= 0 && view.rows <= all - view.first_row,
                "tensor {}: rows {} + {} of {}", view.name, view.first_row, view.rows, all);
    TRAIN_CHECK(view.rows == 0 ||
                    storage::tensor_size_bytes(record.dtype, rows_shape(record.shape, view.rows)) ==
                        view.size_bytes,
                "tensor {}: {} bytes for {} rows", view.name, view.size_bytes, view.rows);
    asked.insert(view.name);
  }
  if (which == Restore::every_tensor) {
    for (const auto& [name, parts] : records) {
      if (!asked.contains(name)) {
        return another_model(source, fmt::format("tensor {}: wanted none, found shape {}", name,
                                                 shape_text(parts.front()->shape)));
      }
    }
  }
  return {};
}

/// Bytes that fill `state`, whose tensors fit: maps the shards written by one layout of ranks to
/// those of another (CK-4).
std::vector<Wanted> wanted_of(const RecordsByName& records, std::span<engine::StateView> state) {
  std::vector<Wanted> wanted;
  for (const engine::StateView& view : state) {
    for (const TensorRecord* record : records.at(view.name)) {
      const std::int64_t first = std::max(record->first_row, view.first_row);
      const std::int64_t last =
          std::min(record->first_row + record->rows, view.first_row + view.rows);
      if (first >= last || view.size_bytes == 0) {
        continue;
      }
      const std::uint64_t row_bytes = view.size_bytes / static_cast<std::uint64_t>(view.rows);
      const auto bytes_to = [row_bytes](std::int64_t row, std::int64_t from) {
        return static_cast<std::uint64_t>(row - from) * row_bytes;
      };
      wanted.push_back({record, bytes_to(first, record->first_row),
                        bytes_to(last, record->first_row),
                        view.data + bytes_to(first, view.first_row)});
    }
  }
  return wanted;
}

/// Has the system read the bytes of `wanted` and those behind them in its record, except what it
/// was asked for with the rows before.
void expect_ahead(const storage::SafetensorsFile& file, const storage::TensorEntry& entry,
                  const Wanted& wanted) {
  const std::uint64_t size = entry.end - entry.begin;
  const auto expected_at = [size](std::uint64_t byte) {
    return std::min(size, (byte / kAheadBytes + 2) * kAheadBytes);
  };
  const std::uint64_t begin = wanted.begin == 0 ? 0 : expected_at(wanted.begin);
  if (const std::uint64_t end = expected_at(wanted.end); begin < end) {
    file.expect_read(entry, begin, end - begin);
  }
}

/// Copies wanted bytes from one file, verifying everything it reads.
class FileReader {
 public:
  FileReader(const storage::SafetensorsFile& file, RestoreStatistics& statistics,
             const std::stop_token& stop)
      : file_(file), statistics_(statistics), stop_(stop) {}

  /// `ahead`: the rows behind will be wanted next.
  Status copy(const Wanted& wanted, bool ahead) {
    const storage::TensorEntry* entry = file_.find(wanted.record->name);
    if (entry == nullptr) {
      return damage(wanted, "is not in it");
    }
    if (const std::string defect = entry_defect(*entry, *wanted.record); !defect.empty()) {
      return train::damage(fmt::format("{}: {}", file_.file().path().string(), defect));
    }
    if (ahead) {
      expect_ahead(file_, *entry, wanted);
    }
    statistics_.kept_bytes += wanted.end - wanted.begin;
    return wanted.record->block_bytes > 0 ? copy_blocks(*entry, wanted)
                                          : copy_checking_all(*entry, wanted);
  }

 private:
  [[nodiscard]] Status damage(const Wanted& wanted, std::string_view what) const {
    return train::damage(fmt::format("{}: tensor {} {}", file_.file().path().string(),
                                     storage::shown(wanted.record->name), what));
  }

  Status read(const storage::TensorEntry& entry, std::uint64_t offset, std::span<std::byte> out) {
    if (stop_.stop_requested()) {
      return failure("it can no longer be read");
    }
    statistics_.tensor_bytes += out.size();
    return file_.read(entry, offset, out);
  }

  /// Whole blocks are read directly to their destination; partly wanted ones go through `piece_`.
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

  /// Copies the wanted part of `bytes`, which begin at byte `start` of the record's rows.
  static void take(std::span<const std::byte> bytes, std::uint64_t start, const Wanted& wanted) {
    const std::uint64_t first = std::max(start, wanted.begin);
    const std::uint64_t last = std::min(start + bytes.size(), wanted.end);
    if (first < last) {
      std::memcpy(wanted.to + (first - wanted.begin), bytes.data() + (first - start), last - first);
    }
  }

  const storage::SafetensorsFile& file_;
  RestoreStatistics& statistics_;
  const std::stop_token& stop_;
  std::vector<std::byte> piece_;
};

Result<storage::SafetensorsFile> open_file(const fs::path& checkpoint, const FileRecord& record) {
  auto stored = TRAIN_TRY(open_stored(checkpoint, record.name));
  if (!stored.file) {
    return damage(fmt::format("{}: {}", checkpoint.string(), stored.damage));
  }
  if (stored.file->size_bytes() != record.size_bytes) {
    return damage(fmt::format("{}: {} has {} bytes of {}", checkpoint.string(), record.name,
                              stored.file->size_bytes(), record.size_bytes));
  }
  bool malformed = false;
  auto file = storage::SafetensorsFile::parse(std::move(*stored.file), &malformed);
  return !file && malformed ? damage(file.error().message) : std::move(file);
}

Status copy_from(const storage::SafetensorsFile& file, std::span<const Wanted> wanted,
                 RestoreStatistics& statistics, const std::stop_token& stop, bool ahead) {
  ++statistics.files;
  statistics.header_bytes += file.data_start();
  FileReader reader(file, statistics, stop);
  for (const Wanted& part : wanted) {
    TRAIN_RETURN_IF_ERROR(reader.copy(part, ahead));
  }
  return {};
}

/// OpenCheckpoint::piece_end() in the record that holds the row.
std::int64_t piece_end_in(const TensorRecord& record, std::int64_t first_row, std::int64_t rows) {
  const std::int64_t last = record.first_row + record.rows;
  const std::int64_t end = std::min(first_row + rows, last);
  const std::uint64_t row_bytes =
      rows_bytes(record).value_or(0) / static_cast<std::uint64_t>(record.rows);
  if (record.block_bytes == 0 || row_bytes == 0) {
    return end;
  }
  // Every so many rows of the record a row and a block begin at the same byte.
  const auto period =
      static_cast<std::int64_t>(record.block_bytes / std::gcd(record.block_bytes, row_bytes));
  const std::int64_t before = end - (end - record.first_row) % period;
  const bool longer = before <= first_row;
  // Pieces of larger tensors may so become a few times as long, but not without limit.
  const bool too_long = static_cast<std::uint64_t>(period) * row_bytes > 2 * kBlockLimitBytes;
  return end == last || (longer && too_long) ? end
         : longer                            ? std::min(before + period, last)
                                             : before;
}

RecordsByName records_of(const Manifest& manifest) {
  RecordsByName records;
  for (const TensorRecord& record : manifest.tensors) {
    records[record.name].push_back(&record);
  }
  return records;
}

/// restore() with the files that `copy` (record, wanted, statistics) reads.
template <class Copy>
Status restore_by(const fs::path& checkpoint, const Manifest& manifest,
                  const RecordsByName& records, std::span<engine::StateView> state,
                  const RestoreOptions& options, const Copy& copy) {
  TRAIN_RETURN_IF_ERROR(check_fit(checkpoint.string(), records, state, options.which));
  std::map<std::string_view, std::vector<Wanted>> wanted;  // By file name.
  for (const Wanted& part : wanted_of(records, state)) {
    wanted[part.record->file].push_back(part);
  }
  RestoreStatistics counted;
  for (const FileRecord& record : manifest.files) {
    if (const auto found = wanted.find(record.name); found != wanted.end()) {
      TRAIN_RETURN_IF_ERROR(copy(record, found->second, counted));
    }
  }
  if (options.statistics != nullptr) {
    *options.statistics = counted;
  }
  return {};
}

}  // namespace

Status restore(const fs::path& checkpoint, const Manifest& manifest,
               std::span<engine::StateView> state, const RestoreOptions& options) {
  const auto copy = [&](const FileRecord& record, std::span<const Wanted> wanted,
                        RestoreStatistics& statistics) -> Status {
    const auto file = TRAIN_TRY(open_file(checkpoint, record));
    return copy_from(file, wanted, statistics, options.stop, false);
  };
  return restore_by(checkpoint, manifest, records_of(manifest), state, options, copy);
}

struct OpenCheckpoint::Files {
  const RecordsByName records;
  std::mutex mutex;
  std::map<std::string_view, storage::SafetensorsFile> open;  ///< By name; guarded by mutex.

  explicit Files(RecordsByName all) : records(std::move(all)) {}

  /// The file, which is opened if it is not; it stays where it is.
  Result<const storage::SafetensorsFile*> find(const fs::path& checkpoint,
                                               const FileRecord& record) {
    const std::scoped_lock lock(mutex);
    auto file = open.find(record.name);
    if (file == open.end()) {
      file = open.emplace(record.name, TRAIN_TRY(open_file(checkpoint, record))).first;
      // Behind a weight is its optimizer state, which the system would read too.
      file->second.file().expect_some_parts();
    }
    return &file->second;
  }
};

OpenCheckpoint::OpenCheckpoint(const fs::path& checkpoint, const Manifest& manifest)
    : checkpoint_(checkpoint),
      manifest_(manifest),
      files_(std::make_unique<Files>(records_of(manifest))) {}

OpenCheckpoint::~OpenCheckpoint() = default;

Status OpenCheckpoint::restore(std::span<engine::StateView> state, const RestoreOptions& options) {
  const auto copy = [&](const FileRecord& record, std::span<const Wanted> wanted,
                        RestoreStatistics& statistics) -> Status {
    const auto* file = TRAIN_TRY(files_->find(checkpoint_, record));
    return copy_from(*file, wanted, statistics, options.stop, true);
  };
  return restore_by(checkpoint_, manifest_, files_->records, state, options, copy);
}

std::int64_t OpenCheckpoint::piece_end(std::string_view tensor, std::int64_t first_row,
                                       std::int64_t rows) const {
  const auto found = files_->records.find(tensor);
  if (found == files_->records.end()) {
    return first_row + rows;  // restore() says what is missing.
  }
  const auto holds = [&](const TensorRecord* record) {
    return first_row < record->first_row + record->rows;
  };
  const auto at = std::ranges::find_if(found->second, holds);
  return at == found->second.end() ? first_row + rows : piece_end_in(**at, first_row, rows);
}

}  // namespace train::checkpoint
