#include "checkpoint/models/export.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <set>
#include <system_error>
#include <utility>

#include "base/process/core_shares.hpp"
#include "base/process/joined_thread.hpp"
#include "base/text/paths.hpp"
#include "checkpoint/models/checkpoint_weights.hpp"
#include "checkpoint/models/export_format.hpp"
#include "checkpoint/models/safetensors_format.hpp"
#include "engine/state_view.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/files/copy_file.hpp"
#include "storage/files/digest.hpp"
#include "storage/files/file_calls.hpp"

namespace train::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kReadBackBytes = std::uint64_t{1} << 20;

std::vector<ExportPlace> places_of(const ExportRequest& request, const ExportFormat& format,
                                   const fs::path& directory) {
  const std::span<const ExportTensor> all(request.tensors);
  std::vector<ExportPlace> places;
  std::size_t begin = 0;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::uint64_t more = format.stored_bytes(all[i]);
    if (i > begin && bytes + more > request.max_file_bytes) {
      places.push_back({.path = {}, .tensors = all.subspan(begin, i - begin)});
      begin = i;
      bytes = 0;
    }
    bytes += more;
  }
  places.push_back({.path = {}, .tensors = all.subspan(begin)});
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::string number =
        places.size() == 1 ? "" : fmt::format("-{:05}-of-{:05}", i + 1, places.size());
    places[i].path = directory / (request.file + number + std::string(format.extension()));
    places[i].index = i;
    places[i].count = places.size();
    places[i].all_tensors = all.size();
  }
  return places;
}

/// Checks that `directory` can take the export: absent, or an empty directory.
Status check_free(const fs::path& directory) {
  std::error_code code;
  const fs::file_status status = fs::symlink_status(directory, code);
  if (status.type() == fs::file_type::not_found) {
    return {};
  }
  if (!code && status.type() == fs::file_type::directory && fs::is_empty(directory, code) &&
      !code) {
    return {};
  }
  return user_error(fmt::format(
      "{} already exists and is not an empty directory; choose another --out, or move it away",
      directory.string()));
}

/// Directory that is removed unless it is published.
class HiddenDirectory {
 public:
  explicit HiddenDirectory(fs::path path) : path_(std::move(path)) {}
  HiddenDirectory(const HiddenDirectory&) = delete;
  HiddenDirectory& operator=(const HiddenDirectory&) = delete;
  ~HiddenDirectory() {
    if (!path_.empty()) {
      (void)storage::remove_tree(path_);  // A leftover has a hidden name: not an export.
    }
  }
  [[nodiscard]] const fs::path& path() const { return path_; }
  Status publish(const fs::path& target) {
    TRAIN_RETURN_IF_ERROR(storage::rename_durably(path_, target));
    path_.clear();
    return {};
  }

 private:
  fs::path path_;
};

Status check_stop(const ExportRequest& request) {
  return request.stop && request.stop() ? failure("stopped by a signal; nothing was exported")
                                        : Status();
}

/// Reads the elements of tensors from their source.
class Weights {
 public:
  Weights(const ExportRequest& request, const engine::WeightSource& source)
      : request_(request), source_(source) {}

  /// Calls `visit` (tensor, elements) for each of `tensors`, in their order, while the next one is
  /// read.
  template <class Visit>
  Status for_each(std::span<const ExportTensor> tensors, const Visit& visit) {
    Elements present;
    Elements next;
    Status read = tensors.empty() ? Status() : read_to(present, tensors.front());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      TRAIN_RETURN_IF_ERROR(read);
      JoinedThread reader;
      if (i + 1 < tensors.size()) {
        reader = JoinedThread([&, i] { read = read_to(next, tensors[i + 1]); });
      }
      const Status visited = visit(tensors[i], std::span<const float>(present.of_tensor()));
      if (reader.joinable()) {
        reader.join();
      }
      TRAIN_RETURN_IF_ERROR(visited);
      std::swap(present, next);
    }
    return {};
  }

 private:
  /// Memory for the elements of one tensor after the other.
  struct Elements {
    std::unique_ptr<float[]> values = {};
    std::size_t room = 0, used = 0;

    [[nodiscard]] std::span<float> of_tensor() const { return {values.get(), used}; }
    void use(std::size_t count) {
      if (count > room) {
        values.reset();
        values = std::make_unique_for_overwrite<float[]>(count);
        room = count;
      }
      used = count;
    }
  };

  Status read_to(Elements& elements, const ExportTensor& tensor) {
    TRAIN_RETURN_IF_ERROR(check_stop(request_));
    elements.use(element_count(tensor));
    return read(tensor, elements.of_tensor());
  }

  Status read(const ExportTensor& tensor, std::span<float> out) {
    if (tensor.parts.empty()) {
      const engine::Parameter weight{.name = tensor.name, .shape = tensor.shape};
      const engine::WeightSource& source = tensor.source ? *tensor.source : source_;
      return source.read_rows(weight, 0, weight.rows(), out);
    }
    for (const auto& [parameter, part] : tensor.parts) {
      const engine::RowRange rows = engine::rows_of(part, parameter.cols());
      rows_.resize(static_cast<std::size_t>(rows.count * parameter.cols()));
      TRAIN_RETURN_IF_ERROR(source_.read_rows(parameter, rows.first, rows.count, rows_));
      engine::store(part, rows.first * parameter.cols(), rows_, out);
    }
    return {};
  }

  const ExportRequest& request_;
  const engine::WeightSource& source_;
  std::vector<float> rows_;  ///< Rows of the tensor being read.
};

/// Digests of tensors as they were written, in the order of their file.
using Digests = std::vector<std::string>;

Result<Digests> write_file(const ExportPlace& place, const ExportFormat& format, Weights& weights) {
  const auto file = TRAIN_TRY(format.create(place));
  Digests digests;
  const auto write = [&](const ExportTensor& tensor, std::span<const float> elements) -> Status {
    storage::StreamingDigest digest;
    const auto take = [&](std::span<const std::byte> bytes) -> Status {
      digest.update(bytes);
      return file->write(bytes);
    };
    TRAIN_RETURN_IF_ERROR(format.encode(tensor, elements, take));
    digests.push_back(digest.finish());
    return {};
  };
  TRAIN_RETURN_IF_ERROR(weights.for_each(place.tensors, write));
  TRAIN_RETURN_IF_ERROR(file->commit());
  return digests;
}

/// Reads a tensor back and compares it with what was written.
Status compare_tensor(const ExportPlace& place, std::size_t index, const ExportFormat& format,
                      const WrittenTensors& file, const std::string& written) {
  const ExportTensor& tensor = place.tensors[index];
  storage::StreamingDigest found;
  const std::uint64_t size = format.stored_bytes(tensor);
  std::vector<std::byte> piece;
  for (std::uint64_t at = 0; file.has(tensor) && at < size; at += piece.size()) {
    piece.resize(std::min(kReadBackBytes, size - at));
    TRAIN_RETURN_IF_ERROR(file.read(tensor, at, piece));
    found.update(piece);
  }
  return file.has(tensor) && found.finish() == written
             ? Status()
             : failure(fmt::format("{}: tensor {} read back differs from what was written",
                                   place.path.string(), tensor.name));
}

/// Reads back a written file and compares each tensor with what was written, several at a time:
/// computing that a second time would take as long as the export.
Status compare_file(const ExportPlace& place, const ExportFormat& format, const Digests& written,
                    const ExportRequest& request) {
  const auto file = TRAIN_TRY(format.open(place.path));
  const std::size_t count = place.tensors.size();
  if (file->count() != count) {
    return failure(fmt::format("{} read back has {} tensors of {}", place.path.string(),
                               file->count(), count));
  }
  return try_on_cores(count, [&](std::size_t i) -> Status {
    TRAIN_RETURN_IF_ERROR(check_stop(request));
    return compare_tensor(place, i, format, *file, written[i]);
  });
}

/// Parent of `directory`, which need not exist.
fs::path parent_of(const fs::path& directory) {
  const fs::path parent = directory.parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

}  // namespace

std::uint64_t element_count(const ExportTensor& tensor) {
  std::uint64_t count = 1;
  for (const std::int64_t dimension : tensor.shape) {
    count *= static_cast<std::uint64_t>(dimension);
  }
  return count;
}

Status check_weights(const fs::path& checkpoint, const Manifest& manifest,
                     const ExportRequest& request, std::span<const ExportAdapter> adapters) {
  std::map<std::string_view, const std::vector<std::int64_t>*> stored;
  for (const TensorRecord& record : manifest.tensors) {
    if (engine::is_weight(record.name)) {
      stored.emplace(std::string_view(record.name).substr(engine::kWeights.size()), &record.shape);
    }
  }
  std::set<std::string_view> seen;
  const auto take = [&](const std::string& name, const std::vector<std::int64_t>& shape) -> Status {
    if (!seen.insert(name).second) {
      return {};
    }
    const auto found = stored.find(name);
    if (found == stored.end() || *found->second != shape) {
      return user_error(fmt::format(
          "{} belongs to another model than the run's configuration: tensor {}: wanted shape [{}], "
          "found {}",
          checkpoint.string(), name, fmt::join(shape, ", "),
          found == stored.end() ? "none" : fmt::format("[{}]", fmt::join(*found->second, ", "))));
    }
    stored.erase(found);
    return {};
  };
  for (const ExportTensor& tensor : request.tensors) {
    for (const ExportPart& part : tensor.parts) {
      TRAIN_RETURN_IF_ERROR(take(part.parameter.name, part.parameter.shape));
    }
    if (tensor.parts.empty() && !tensor.source) {
      TRAIN_RETURN_IF_ERROR(take(tensor.name, tensor.shape));
    }
  }
  for (const ExportAdapter& adapter : adapters) {
    TRAIN_RETURN_IF_ERROR(take(adapter.a.name, adapter.a.shape));
    TRAIN_RETURN_IF_ERROR(take(adapter.b.name, adapter.b.shape));
  }
  for (const std::string& name : request.left_out) {
    stored.erase(name);
  }
  if (!stored.empty()) {
    return user_error(
        fmt::format("{} belongs to another model than the run's configuration: {} tensors too "
                    "many, the first {}",
                    checkpoint.string(), stored.size(), stored.begin()->first));
  }
  return {};
}

Result<ExportReport> export_weights(const fs::path& checkpoint, const Manifest& manifest,
                                    const ExportRequest& request,
                                    std::span<const ExportAdapter> adapters, std::string averages) {
  TRAIN_RETURN_IF_ERROR(check_weights(checkpoint, manifest, request, adapters));
  return export_tensors(request,
                        CheckpointWeights(checkpoint, manifest, adapters, std::move(averages)));
}

Result<ExportReport> export_tensors(const ExportRequest& request,
                                    const engine::WeightSource& source) {
  TRAIN_CHECK(!request.tensors.empty());
  const std::shared_ptr<const ExportFormat> format =
      request.format ? request.format : safetensors_format(request.type);
  for (const ExportTensor& tensor : request.tensors) {
    TRAIN_RETURN_IF_ERROR(format->check(tensor));
  }
  const fs::path target = without_slash(request.directory);
  TRAIN_RETURN_IF_ERROR(check_free(target));
  HiddenDirectory hidden(parent_of(target) /
                         fmt::format(".{}.tmp-{}", target.filename().string(), ::getpid()));
  TRAIN_RETURN_IF_ERROR(storage::remove_tree(hidden.path()));
  TRAIN_RETURN_IF_ERROR(storage::make_directory(parent_of(target)));
  if (storage::disk_make_directory(hidden.path()) != 0) {
    return storage::os_error(storage::Access::write, target, errno);
  }
  const std::vector<ExportPlace> places = places_of(request, *format, hidden.path());
  Weights weights(request, source);
  ExportReport report;
  for (const ExportPlace& place : places) {
    const auto digests = TRAIN_TRY(write_file(place, *format, weights));
    TRAIN_RETURN_IF_ERROR(compare_file(place, *format, digests, request));
    report.files.push_back(place.path.filename().string());
    report.compared += place.tensors.size();
    for (const ExportTensor& tensor : place.tensors) {
      report.tensor_bytes += format->stored_bytes(tensor);
    }
  }
  report.tensors = request.tensors.size();
  TRAIN_CHECK(report.compared == report.tensors);
  const ExportFormat::Index index = format->index(request.file, places, report.tensor_bytes);
  if (places.size() > 1 && !index.name.empty()) {
    TRAIN_RETURN_IF_ERROR(storage::write_file_atomically(hidden.path() / index.name, index.text));
  }
  for (const auto& [name, text] : request.texts) {
    TRAIN_RETURN_IF_ERROR(storage::write_file_atomically(hidden.path() / name, text));
  }
  for (const fs::path& companion : request.companions) {
    TRAIN_RETURN_IF_ERROR(storage::copy_file(companion, hidden.path() / companion.filename()));
  }
  if (!request.config_text.empty()) {
    TRAIN_RETURN_IF_ERROR(
        storage::write_file_atomically(hidden.path() / "config.json", request.config_text));
  }
  TRAIN_RETURN_IF_ERROR(hidden.publish(target));
  return report;
}

}  // namespace train::checkpoint
