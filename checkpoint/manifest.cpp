#include "checkpoint/manifest.hpp"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "storage/digest.hpp"

namespace train::checkpoint {
namespace {

using nlohmann::json;

constexpr std::string_view digest_key = "\"manifest_digest\": \"";
constexpr std::string_view blank_digest = "xxh3-128:00000000000000000000000000000000";

nlohmann::ordered_json to_json(const FileRecord& file) {
  return {{"name", file.name}, {"size", file.size_bytes}, {"digest", file.digest}};
}

nlohmann::ordered_json to_json(const TensorRecord& tensor) {
  return {{"name", tensor.name},    {"dtype", tensor.dtype},         {"shape", tensor.shape},
          {"file", tensor.file},    {"first_row", tensor.first_row}, {"rows", tensor.rows},
          {"digest", tensor.digest}};
}

/// Where the 41 characters of the manifest's own digest stand; npos if nowhere.
std::size_t own_digest_position(std::string_view text) {
  const std::size_t key = text.rfind(digest_key);
  if (key == std::string_view::npos ||
      text.size() - key < digest_key.size() + blank_digest.size()) {
    return std::string_view::npos;
  }
  return key + digest_key.size();
}

bool own_digest_holds(std::string_view text) {
  const std::size_t position = own_digest_position(text);
  if (position == std::string_view::npos) {
    return false;
  }
  std::string blank(text);
  blank.replace(position, blank_digest.size(), blank_digest);
  return storage::digest_text(blank) == text.substr(position, blank_digest.size());
}

/// Reads members of one JSON object; the first that is missing or of the wrong type is remembered.
class Members {
 public:
  Members(const json& object, std::string place, std::string& defect)
      : object_(object), place_(std::move(place)), defect_(defect) {
    if (!object.is_object()) {
      note("", "is not an object");
    }
  }

  void read(const char* key, std::string& value) const {
    if (const json* member = find(key)) {
      member->is_string() ? void(value = member->get<std::string>()) : note(key, "is no string");
    }
  }
  void read(const char* key, std::int64_t& value) const {
    if (const json* member = find(key)) {
      is_count(*member) ? void(value = member->get<std::int64_t>())
                        : note(key, "is no whole number >= 0");
    }
  }
  void read(const char* key, std::uint64_t& value) const {
    std::int64_t count = 0;
    read(key, count);
    value = static_cast<std::uint64_t>(count);
  }
  void read(const char* key, std::vector<std::int64_t>& value) const {
    for (const json& element : array(key)) {
      is_count(element) ? value.push_back(element.get<std::int64_t>())
                        : note(key, "holds no whole number >= 0");
    }
  }
  /// Empty if it is not an array.
  [[nodiscard]] const json& array(const char* key) const {
    static const json none = json::array();
    const json* member = find(key);
    if (member != nullptr && !member->is_array()) {
      note(key, "is no array");
    }
    return member != nullptr && member->is_array() ? *member : none;
  }

 private:
  [[nodiscard]] const json* find(const char* key) const {
    if (!object_.is_object()) {
      return nullptr;
    }
    const auto found = object_.find(key);
    if (found == object_.end()) {
      note(key, "is missing");
      return nullptr;
    }
    return &*found;
  }
  static bool is_count(const json& value) {
    return value.is_number_unsigned() &&
           value.get<std::uint64_t>() <=
               static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  }
  void note(const char* key, const char* what) const {
    if (defect_.empty()) {
      defect_ = fmt::format("{}{} {}", place_, key, what);
    }
  }

  const json& object_;
  std::string place_;
  std::string& defect_;
};

void read_fields(const Members& members, Manifest& manifest) {
  members.read("step", manifest.fields.step);
  members.read("tokens", manifest.fields.tokens);
  members.read("lanes", manifest.fields.lanes);
  members.read("micro_batch", manifest.fields.micro_batch);
  members.read("kernel_set", manifest.fields.kernel_set);
  members.read("config_text", manifest.fields.config_text);
  members.read("config_digest", manifest.config_digest);
  members.read("weights_digest", manifest.fields.weights_digest);
  members.read("index_head", manifest.fields.index_head);
}

void read_records(const Members& members, Manifest& manifest, std::string& defect) {
  for (const json& element : members.array("files")) {
    const Members file(element, fmt::format("files[{}].", manifest.files.size()), defect);
    FileRecord& record = manifest.files.emplace_back();
    file.read("name", record.name);
    file.read("size", record.size_bytes);
    file.read("digest", record.digest);
  }
  for (const json& element : members.array("tensors")) {
    const Members tensor(element, fmt::format("tensors[{}].", manifest.tensors.size()), defect);
    TensorRecord& record = manifest.tensors.emplace_back();
    tensor.read("name", record.name);
    tensor.read("dtype", record.dtype);
    tensor.read("shape", record.shape);
    tensor.read("file", record.file);
    tensor.read("first_row", record.first_row);
    tensor.read("rows", record.rows);
    tensor.read("digest", record.digest);
  }
}

std::string files_defect(const Manifest& manifest) {
  std::set<std::string> names;
  for (const FileRecord& file : manifest.files) {
    // A name is opened below the checkpoint's directory and must not lead out of it.
    if (file.name.empty() || file.name.find('/') != std::string::npos || file.name == "." ||
        file.name == "..") {
      return fmt::format("file name \"{}\" is not allowed", file.name);
    }
    if (!names.insert(file.name).second) {
      return fmt::format("file {} is listed twice", file.name);
    }
  }
  for (const TensorRecord& tensor : manifest.tensors) {
    if (!names.contains(tensor.file)) {
      return fmt::format("tensor {} is in the unlisted file {}", tensor.name, tensor.file);
    }
  }
  return {};
}

}  // namespace

std::string coverage_defect(std::span<const TensorRecord> tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorRecord& record = tensors[i];
    const bool continues = i > 0 && tensors[i - 1].name == record.name;
    if (continues &&
        (tensors[i - 1].shape != record.shape || tensors[i - 1].dtype != record.dtype)) {
      return fmt::format("tensor {} has two shapes", record.name);
    }
    const std::int64_t due = continues ? tensors[i - 1].first_row + tensors[i - 1].rows : 0;
    const std::int64_t all = record.shape.empty() ? 1 : record.shape.front();
    if (record.first_row != due || record.rows < 0 || record.rows > all - due) {
      return fmt::format("tensor {}: {} rows from row {} on, where row {} of {} was due",
                         record.name, record.rows, record.first_row, due, all);
    }
    const bool last = i + 1 == tensors.size() || tensors[i + 1].name != record.name;
    if (last && due + record.rows != all) {
      return fmt::format("tensor {}: rows from {} on of {} are missing", record.name,
                         due + record.rows, all);
    }
  }
  return {};
}

std::string manifest_text(const Manifest& manifest) {
  nlohmann::ordered_json object;
  object["format"] = "actortrain checkpoint";
  object["version"] = manifest_version;
  object["step"] = manifest.fields.step;
  object["tokens"] = manifest.fields.tokens;
  object["lanes"] = manifest.fields.lanes;
  object["micro_batch"] = manifest.fields.micro_batch;
  object["kernel_set"] = manifest.fields.kernel_set;
  object["config_text"] = manifest.fields.config_text;
  object["config_digest"] = manifest.config_digest;
  object["weights_digest"] = manifest.fields.weights_digest;
  object["index_head"] = manifest.fields.index_head;
  object["files"] = json::array();
  for (const FileRecord& file : manifest.files) {
    object["files"].push_back(to_json(file));
  }
  object["tensors"] = json::array();
  for (const TensorRecord& tensor : manifest.tensors) {
    object["tensors"].push_back(to_json(tensor));
  }
  object["manifest_digest"] = blank_digest;
  std::string text = object.dump(1) + "\n";
  text.replace(own_digest_position(text), blank_digest.size(), storage::digest_text(text));
  return text;
}

Result<Manifest> parse_manifest(std::string_view text, std::string_view place) {
  const json object = json::parse(text, nullptr, false);
  if (!object.is_object()) {
    return failure(fmt::format("{} is not a JSON object: cut short or overwritten", place));
  }
  if (!own_digest_holds(text)) {
    return failure(fmt::format("{}: its bytes do not match its own digest", place));
  }
  std::string defect;
  const Members members(object, "", defect);
  std::int64_t version = 0;
  members.read("version", version);
  if (defect.empty() && version != manifest_version) {
    return user_error(fmt::format(
        "{}: format version {}, but this program reads version {}; use the program that wrote it",
        place, version, manifest_version));
  }
  Manifest manifest;
  read_fields(members, manifest);
  read_records(members, manifest, defect);
  if (defect.empty()) {
    defect = files_defect(manifest);
  }
  if (defect.empty()) {
    defect = coverage_defect(manifest.tensors);
  }
  if (defect.empty() &&
      storage::digest_text(manifest.fields.config_text) != manifest.config_digest) {
    defect = "config_text does not match config_digest";
  }
  if (!defect.empty()) {
    return failure(fmt::format("{}: {}", place, defect));
  }
  return manifest;
}

}  // namespace train::checkpoint
