#include "checkpoint/reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "storage/atomic_file.hpp"
#include "storage/digest.hpp"
#include "storage/safetensors.hpp"

namespace train::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t manifest_limit_bytes = std::uint64_t{256} << 20;

std::string shape_text(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Verification damaged(std::string text) {
  return {.manifest = {}, .manifest_digest = {}, .damage = std::move(text)};
}

/// Whether a file is there; an error that does not say "missing" is not taken for it.
Result<bool> is_there(const fs::path& path) {
  std::error_code code;
  const bool there = fs::is_regular_file(path, code);
  if (code && code != std::errc::no_such_file_or_directory && code != std::errc::not_a_directory) {
    return storage::os_error(storage::Access::read, path, code.value());
  }
  return there;
}

/// Empty if `file` holds the tensor as the manifest describes it.
std::string tensor_defect(const storage::SafetensorsFile& file, const TensorRecord& record) {
  const storage::TensorEntry* entry = file.find(record.name);
  if (entry == nullptr) {
    return fmt::format("{} lacks tensor {}", record.file, record.name);
  }
  std::vector<std::int64_t> shape = record.shape;
  if (!shape.empty()) {
    shape.front() = record.rows;
  }
  if (entry->dtype != record.dtype || entry->shape != shape) {
    return fmt::format("{}: tensor {} is {} {}, the manifest says {} {}", record.file, record.name,
                       entry->dtype, shape_text(entry->shape), record.dtype, shape_text(shape));
  }
  if (storage::digest_bytes(file.bytes(*entry)) != record.digest) {
    return fmt::format("{}: tensor {} does not match its digest", record.file, record.name);
  }
  return {};
}

/// The finding about one file: empty if it is what the manifest says.
Result<std::string> file_defect(const fs::path& directory, const FileRecord& record,
                                std::span<const TensorRecord> tensors) {
  const fs::path path = directory / record.name;
  const auto there = is_there(path);
  if (!there) {
    return there.error();
  }
  if (!*there) {
    return fmt::format("{} is missing", record.name);
  }
  auto mapped = storage::MappedFile::open(path);
  if (!mapped) {
    return mapped.error();
  }
  if (mapped->bytes().size() != record.size_bytes) {
    return fmt::format("{} has {} bytes of {}", record.name, mapped->bytes().size(),
                       record.size_bytes);
  }
  if (storage::digest_bytes(mapped->bytes()) != record.digest) {
    return fmt::format("{} does not match its digest", record.name);
  }
  auto file = storage::SafetensorsFile::parse(std::move(*mapped));
  if (!file) {
    return file.error().message;
  }
  for (const TensorRecord& tensor : tensors) {
    if (tensor.file == record.name) {
      if (std::string defect = tensor_defect(*file, tensor); !defect.empty()) {
        return defect;
      }
    }
  }
  return std::string();
}

/// Records of the manifest by tensor name, in row order.
using RecordsByName = std::map<std::string_view, std::vector<const TensorRecord*>>;

RecordsByName by_name(const Manifest& manifest) {
  RecordsByName records;
  for (const TensorRecord& record : manifest.tensors) {
    records[record.name].push_back(&record);
  }
  return records;
}

Error another_model(const fs::path& checkpoint, std::string_view text) {
  return user_error(
      fmt::format("{} is of another model: {}; use the configuration it was made with, or another "
                  "run.name",
                  checkpoint.string(), text));
}

Status check_fit(const fs::path& checkpoint, const RecordsByName& records,
                 std::span<const engine::StateView> state, Restore which) {
  std::set<std::string_view> asked;
  for (const engine::StateView& view : state) {
    const auto found = records.find(view.name);
    if (found == records.end()) {
      return another_model(checkpoint, fmt::format("tensor {}: wanted shape {}, found none",
                                                   view.name, shape_text(view.global_shape)));
    }
    const TensorRecord& record = *found->second.front();
    const std::int64_t all = record.shape.empty() ? 1 : record.shape.front();
    if (record.shape != view.global_shape || record.dtype != "F32") {
      return another_model(checkpoint, fmt::format("tensor {}: wanted shape {} F32, found {} {}",
                                                   view.name, shape_text(view.global_shape),
                                                   shape_text(record.shape), record.dtype));
    }
    TRAIN_CHECK(view.first_row >= 0 && view.rows >= 0 && view.rows <= all - view.first_row,
                "tensor {}: rows {} + {} of {}", view.name, view.first_row, view.rows, all);
    asked.insert(view.name);
  }
  if (which == Restore::every_tensor) {
    for (const auto& [name, parts] : records) {
      if (!asked.contains(name)) {
        return another_model(checkpoint, fmt::format("tensor {}: wanted none, found shape {}", name,
                                                     shape_text(parts.front()->shape)));
      }
    }
  }
  return {};
}

/// Copies what `view` wants of the rows that `record` has. The bytes' size fits the shape: checked.
void copy_rows(std::span<const std::byte> bytes, const TensorRecord& record,
               const engine::StateView& view) {
  if (record.rows == 0 || view.rows == 0) {
    return;
  }
  const std::size_t row_bytes = bytes.size() / static_cast<std::size_t>(record.rows);
  TRAIN_CHECK(view.size_bytes == row_bytes * static_cast<std::size_t>(view.rows),
              "tensor {}: {} bytes for {} rows", view.name, view.size_bytes, view.rows);
  const std::int64_t first = std::max(record.first_row, view.first_row);
  const std::int64_t last = std::min(record.first_row + record.rows, view.first_row + view.rows);
  if (first < last && row_bytes > 0) {
    std::memcpy(view.data + static_cast<std::size_t>(first - view.first_row) * row_bytes,
                bytes.data() + static_cast<std::size_t>(first - record.first_row) * row_bytes,
                static_cast<std::size_t>(last - first) * row_bytes);
  }
}

Result<SearchReport> search(const fs::path& checkpoints, bool change_disk) {
  const auto candidates = list_checkpoints(checkpoints);
  if (!candidates) {
    return candidates.error();
  }
  SearchReport report;
  for (const Candidate& candidate : *candidates) {
    auto found = verify_checkpoint(candidate.path);
    if (!found) {
      return found.error();
    }
    if (found->whole()) {
      report.newest = {candidate, std::move(*found->manifest), std::move(found->manifest_digest)};
      return report;
    }
    std::string line = fmt::format("{}: {}", candidate.path.string(), found->damage);
    if (change_disk) {
      const auto aside = set_aside(candidate.path);
      if (!aside) {
        return aside.error();
      }
      line += fmt::format("; set aside as {}", aside->filename().string());
    }
    report.set_aside.push_back(std::move(line));
  }
  const auto damaged_names = list_damaged(checkpoints);
  if (!damaged_names) {
    return damaged_names.error();
  }
  if (!report.set_aside.empty() || !damaged_names->empty()) {
    return failure(fmt::format(
        "{} holds no whole checkpoint, only damaged ones ({}); repair them, or move them away to "
        "start afresh",
        checkpoints.string(),
        report.set_aside.empty() ? fmt::format("{}", fmt::join(*damaged_names, ", "))
                                 : fmt::format("{}", fmt::join(report.set_aside, " | "))));
  }
  return report;
}

}  // namespace

Result<Verification> verify_checkpoint(const fs::path& checkpoint) {
  const fs::path path = checkpoint / manifest_file_name;
  const auto there = is_there(path);
  if (!there) {
    return there.error();
  }
  if (!*there) {
    return damaged(fmt::format("{} is missing", manifest_file_name));
  }
  const auto text = storage::read_file(path, manifest_limit_bytes);
  if (!text) {
    return text.error();
  }
  auto manifest = parse_manifest(*text, path.string());
  if (!manifest) {
    return manifest.error().kind == ErrorKind::user
               ? Result<Verification>(manifest.error())
               : Result<Verification>(damaged(manifest.error().message));
  }
  const std::string name = checkpoint.filename().string();
  if (const auto step = checkpoint_step(name); step && *step != manifest->fields.step) {
    return damaged(fmt::format("its manifest is of step {}", manifest->fields.step));
  }
  for (const FileRecord& record : manifest->files) {
    const auto defect = file_defect(checkpoint, record, manifest->tensors);
    if (!defect) {
      return defect.error();
    }
    if (!defect->empty()) {
      return damaged(*defect);
    }
  }
  return Verification{.manifest = std::move(*manifest),
                      .manifest_digest = storage::digest_text(*text),
                      .damage = {}};
}

Status restore(const fs::path& checkpoint, const Manifest& manifest,
               std::span<engine::StateView> state, Restore which) {
  const RecordsByName records = by_name(manifest);
  TRAIN_RETURN_IF_ERROR(check_fit(checkpoint, records, state, which));
  for (const FileRecord& file_record : manifest.files) {
    auto file = storage::SafetensorsFile::open(checkpoint / file_record.name);
    if (!file) {
      return file.error();
    }
    std::set<std::string_view> checked;
    for (const engine::StateView& view : state) {
      for (const TensorRecord* record : records.at(view.name)) {
        if (record->file != file_record.name) {
          continue;
        }
        if (checked.insert(record->name).second) {
          if (const std::string defect = tensor_defect(*file, *record); !defect.empty()) {
            return failure(fmt::format("{}: {}", checkpoint.string(), defect));
          }
        }
        copy_rows(file->bytes(*file->find(record->name)), *record, view);
      }
    }
  }
  return {};
}

Result<SearchReport> find_newest(const fs::path& checkpoints) {
  TRAIN_RETURN_IF_ERROR(remove_leftovers(checkpoints));
  return search(checkpoints, true);
}

Result<SearchReport> find_newest_read_only(const fs::path& checkpoints) {
  return search(checkpoints, false);
}

}  // namespace train::checkpoint
