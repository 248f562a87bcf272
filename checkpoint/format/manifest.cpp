#include "checkpoint/format/manifest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "base/text/ascii.hpp"
#include "checkpoint/format/record_text.hpp"
#include "checkpoint/format/run_identity.hpp"
#include "storage/files/digest.hpp"
#include "storage/files/untrusted_text.hpp"
#include "storage/safetensors_header.hpp"

namespace train::checkpoint {
namespace {

constexpr std::string_view kFormatName = "actortrain checkpoint";
constexpr std::string_view kDigestKey = "\"manifest_digest\": \"";
constexpr std::string_view kBlankDigest = "xxh3-128:00000000000000000000000000000000";

constexpr std::size_t kDigits = 16;  // Digits per block.

std::uint64_t blocks_of(std::uint64_t bytes, std::uint64_t block_bytes) {
  return bytes / block_bytes + (bytes % block_bytes != 0 ? 1 : 0);
}

/// Position of the 41 characters of the manifest's own digest; npos if missing.
std::size_t own_digest_position(std::string_view text) {
  const std::size_t key = text.rfind(kDigestKey);
  if (key == std::string_view::npos ||
      text.size() - key < kDigestKey.size() + kBlankDigest.size()) {
    return std::string_view::npos;
  }
  return key + kDigestKey.size();
}

bool own_digest_holds(std::string_view text) {
  const std::size_t position = own_digest_position(text);
  if (position == std::string_view::npos) {
    return false;
  }
  storage::StreamingDigest digest;
  digest.update(text.substr(0, position));
  digest.update(kBlankDigest);
  digest.update(text.substr(position + kBlankDigest.size()));
  return digest.finish() == text.substr(position, kBlankDigest.size());
}

/// Names are opened below the checkpoint's directory and must not lead out of it.
bool is_plain_name(std::string_view name) {
  const auto plain = [](char letter) {
    return is_alphanumeric(letter) || letter == '-' || letter == '_' || letter == '.';
  };
  return !name.empty() && name.size() <= 255 && name.front() != '.' && name != kManifestFileName &&
         std::all_of(name.begin(), name.end(), plain);
}

std::string files_defect(const Manifest& manifest) {
  std::set<std::string_view> names;
  for (const FileRecord& file : manifest.files) {
    if (!is_plain_name(file.name)) {
      return fmt::format("file name {} is not allowed", storage::shown(file.name));
    }
    if (!names.insert(file.name).second) {
      return fmt::format("file {} is listed twice", file.name);
    }
    if (!storage::is_digest(file.digest)) {
      return fmt::format("file {} has no digest", file.name);
    }
  }
  for (const TensorRecord& tensor : manifest.tensors) {
    if (!names.contains(tensor.file)) {
      return fmt::format("tensor {} is in the unlisted file {}", storage::shown(tensor.name),
                         storage::shown(tensor.file));
    }
    if (!storage::is_digest(tensor.digest)) {
      return fmt::format("tensor {} has no digest", storage::shown(tensor.name));
    }
  }
  return {};
}

std::string all_blocks_defect(const Manifest& manifest) {
  for (const TensorRecord& tensor : manifest.tensors) {
    if ((tensor.block_bytes > 0) != (manifest.version > 1)) {
      return fmt::format("tensor {}: block_bytes {} in version {}", storage::shown(tensor.name),
                         tensor.block_bytes, manifest.version);
    }
    if (std::string defect = blocks_defect(tensor); !defect.empty()) {
      return defect;
    }
  }
  return {};
}

/// These fields are only displayed and compared.
std::string fields_defect(const Manifest& manifest) {
  const ManifestFields& fields = manifest.fields;
  for (const std::string* text : {&fields.kernel_set, &fields.weights_digest, &fields.index_head}) {
    const bool printable = std::all_of(text->begin(), text->end(),
                                       [](char letter) { return letter >= ' ' && letter < 127; });
    if (!printable || text->size() > 1000) {
      return fmt::format("{} is not a line of plain text", storage::shown(*text));
    }
  }
  if (!fields.data_fingerprint.empty() && !storage::is_digest(fields.data_fingerprint)) {
    return fmt::format("data_fingerprint {} is no digest", storage::shown(fields.data_fingerprint));
  }
  if (!fields.run_id.empty() && !is_run_id(fields.run_id)) {
    return fmt::format("run_id {} is no identity", storage::shown(fields.run_id));
  }
  if (storage::digest_text(fields.config_text) != manifest.config_digest) {
    return "config_text does not match config_digest";
  }
  return {};
}

std::string content_defect(const Manifest& manifest) {
  std::string defect = files_defect(manifest);
  if (defect.empty()) {
    defect = coverage_defect(manifest.tensors);
  }
  if (defect.empty()) {
    defect = all_blocks_defect(manifest);
  }
  return defect.empty() ? fields_defect(manifest) : defect;
}

/// Array with one record per line.
template <class Record>
std::string lines_of(const std::vector<Record>& records) {
  std::string text = "[";
  for (const Record& record : records) {
    text += fmt::format("{}\n  {}", &record == records.data() ? "" : ",", record_text(record));
  }
  return text + "\n ]";
}

}  // namespace

std::string coverage_defect(std::span<const TensorRecord> tensors) {
  if (tensors.size() > kTensorRecordLimit) {
    return fmt::format("more than {} tensors", kTensorRecordLimit);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorRecord& record = tensors[i];
    const std::string name = storage::shown(record.name);
    const bool continues = i > 0 && tensors[i - 1].name == record.name;
    if (i > 0 && tensors[i - 1].name > record.name) {
      return fmt::format("tensor {} is out of order", name);
    }
    if (continues &&
        (tensors[i - 1].shape != record.shape || tensors[i - 1].dtype != record.dtype)) {
      return fmt::format("tensor {} has two shapes", name);
    }
    const std::int64_t due = continues ? tensors[i - 1].first_row + tensors[i - 1].rows : 0;
    const std::int64_t all = record.shape.empty() ? 1 : record.shape.front();
    if (record.first_row != due || record.rows < 0 || record.rows > all - due ||
        (record.shape.empty() && record.rows == 0)) {
      return fmt::format("tensor {}: {} rows from row {} on, expected row {} of {}", name,
                         record.rows, record.first_row, due, all);
    }
    const bool last = i + 1 == tensors.size() || tensors[i + 1].name != record.name;
    if (last && due + record.rows != all) {
      return fmt::format("tensor {}: rows from {} on of {} are missing", name, due + record.rows,
                         all);
    }
  }
  return {};
}

std::string manifest_text(const Manifest& manifest) {
  const ManifestFields& fields = manifest.fields;
  std::string text = "{\n \"format\": " + json_string(kFormatName);
  const auto add = [&text](std::string_view key, const std::string& value) {
    text += fmt::format(",\n \"{}\": {}", key, value);
  };
  add("version", std::to_string(manifest.version));
  add("step", std::to_string(fields.step));
  add("tokens", std::to_string(fields.tokens));
  add("lanes", std::to_string(fields.lanes));
  add("micro_batch", std::to_string(fields.micro_batch));
  add("kernel_set", json_string(fields.kernel_set));
  if (!fields.data_fingerprint.empty()) {
    add("data_fingerprint", json_string(fields.data_fingerprint));
  }
  if (!fields.run_id.empty()) {
    add("run_id", json_string(fields.run_id));
  }
  add("config_text", json_string(fields.config_text));
  add("config_digest", json_string(manifest.config_digest));
  add("weights_digest", json_string(fields.weights_digest));
  add("index_head", json_string(fields.index_head));
  add("files", lines_of(manifest.files));
  add("tensors", lines_of(manifest.tensors));
  add("manifest_digest", json_string(kBlankDigest));
  text += "\n}\n";
  text.replace(own_digest_position(text), kBlankDigest.size(), storage::digest_text(text));
  return text;
}

Result<Manifest> parse_manifest(std::string_view text, std::string_view place) {
  if (own_digest_position(text) == std::string_view::npos) {
    return failure(fmt::format("{} is not a manifest: cut short or overwritten", place));
  }
  if (!own_digest_holds(text)) {
    return failure(fmt::format("{}: its bytes do not match its own digest", place));
  }
  Manifest manifest;
  manifest.version = 0;
  std::string format;
  const WantedMember wanted[] = {{"format", &format},
                                 {"version", &manifest.version},
                                 {"step", &manifest.fields.step},
                                 {"tokens", &manifest.fields.tokens},
                                 {"lanes", &manifest.fields.lanes},
                                 {"micro_batch", &manifest.fields.micro_batch},
                                 {"kernel_set", &manifest.fields.kernel_set},
                                 {"data_fingerprint", &manifest.fields.data_fingerprint, false},
                                 {"run_id", &manifest.fields.run_id, false},
                                 {"config_text", &manifest.fields.config_text},
                                 {"config_digest", &manifest.config_digest},
                                 {"weights_digest", &manifest.fields.weights_digest},
                                 {"index_head", &manifest.fields.index_head}};
  RecordsFound found = read_records(text, wanted);
  if (manifest.version > kManifestVersion && format == kFormatName) {
    return user_error(fmt::format(
        "{}: format version {}, but this program reads versions 1 to {}; use the program that "
        "wrote it",
        place, manifest.version, kManifestVersion));
  }
  if (found.defect.empty() && (format != kFormatName || manifest.version < 1)) {
    found.defect = fmt::format("format {} version {} is not a checkpoint's", storage::shown(format),
                               manifest.version);
  }
  manifest.files = std::move(found.files);
  manifest.tensors = std::move(found.tensors);
  if (found.defect.empty()) {
    found.defect = content_defect(manifest);
  }
  if (!found.defect.empty()) {
    return failure(fmt::format("{}: {}", place, found.defect));
  }
  manifest.text_digest = storage::digest_text(text);
  return manifest;
}

std::string shard_text(const ShardRecord& shard) {
  std::string text = fmt::format("{{\"files\": [{}], \"tensors\": [", record_text(shard.file));
  for (const TensorRecord& tensor : shard.tensors) {
    text += fmt::format("{}{}", &tensor == shard.tensors.data() ? "" : ", ", record_text(tensor));
  }
  return text + "]}";
}

Result<ShardRecord> parse_shard(std::string_view text) {
  RecordsFound found = read_records(text, {});
  if (found.defect.empty() && found.files.size() != 1) {
    found.defect = fmt::format("{} files, not one", found.files.size());
  }
  for (const TensorRecord& tensor : found.tensors) {
    if (found.defect.empty()) {
      found.defect = tensor.file == found.files.front().name
                         ? blocks_defect(tensor)
                         : fmt::format("tensor {} is in another file", storage::shown(tensor.name));
    }
  }
  if (!found.defect.empty()) {
    return failure(fmt::format("not the record of a checkpoint's shard: {}", found.defect));
  }
  return ShardRecord{.file = std::move(found.files.front()), .tensors = std::move(found.tensors)};
}

std::uint64_t block_size(std::uint64_t tensor_bytes) {
  constexpr std::uint64_t smallest = 4096;
  constexpr std::uint64_t step = 512;
  const std::uint64_t share = blocks_of(tensor_bytes, 256);
  return std::clamp(blocks_of(share, step) * step, smallest, kBlockLimitBytes);
}

std::string block_digests(std::span<const std::byte> rows, std::uint64_t block_bytes) {
  std::string digests;
  digests.reserve(static_cast<std::size_t>(blocks_of(rows.size(), block_bytes)) * kDigits);
  while (!rows.empty()) {
    const auto block = rows.first(std::min<std::uint64_t>(block_bytes, rows.size()));
    fmt::format_to(std::back_inserter(digests), "{:016x}", storage::short_digest(block));
    rows = rows.subspan(block.size());
  }
  return digests;
}

bool blocks_match(const TensorRecord& record, std::uint64_t first,
                  std::span<const std::byte> bytes) {
  const std::string found = block_digests(bytes, record.block_bytes);
  return std::string_view(record.blocks)
             .substr(static_cast<std::size_t>(first) * kDigits, found.size()) == found;
}

std::vector<std::int64_t> rows_shape(std::vector<std::int64_t> shape, std::int64_t rows) {
  if (!shape.empty()) {
    shape.front() = rows;
  }
  return shape;
}

std::optional<std::uint64_t> rows_bytes(const TensorRecord& record) {
  return storage::tensor_size_bytes(record.dtype, rows_shape(record.shape, record.rows));
}

std::string blocks_defect(const TensorRecord& record) {
  const auto bytes = rows_bytes(record);
  if (!bytes) {
    return fmt::format("tensor {}: dtype {} unknown, or its shape too large",
                       storage::shown(record.name), storage::shown(record.dtype));
  }
  if (record.block_bytes > kBlockLimitBytes) {
    return fmt::format("tensor {}: blocks of {} bytes, more than {}", storage::shown(record.name),
                       record.block_bytes, kBlockLimitBytes);
  }
  if (record.block_bytes > 0 &&
      (record.blocks.size() % kDigits != 0 ||
       record.blocks.size() / kDigits != blocks_of(*bytes, record.block_bytes))) {
    return fmt::format("tensor {}: {} digits for {} blocks of {} bytes",
                       storage::shown(record.name), record.blocks.size(),
                       blocks_of(*bytes, record.block_bytes), record.block_bytes);
  }
  return {};
}

}  // namespace train::checkpoint
