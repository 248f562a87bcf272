#include "checkpoint/index/index_entry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <chrono>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "checkpoint/format/layout.hpp"

namespace train::checkpoint {
namespace {

constexpr std::array<std::string_view, 5> kStateNames = {"writing", "local", "publishing",
                                                         "committed", "retired"};
constexpr char kSeparator = '\t';

/// Parses fields from the front of a line; a missing or malformed one makes it bad.
class Fields {
 public:
  explicit Fields(std::string_view line) : rest_(line) {}

  std::string_view text() {
    const std::size_t end = rest_.find(kSeparator);
    const std::string_view field = rest_.substr(0, end);
    good_ = good_ && more_ && !field.empty();
    more_ = end != std::string_view::npos;
    rest_.remove_prefix(more_ ? end + 1 : rest_.size());
    return field;
  }
  template <class Integer>
  Integer number(int base = 10) {
    const std::string_view field = text();
    Integer value = 0;
    const auto [stop, code] =
        std::from_chars(field.data(), field.data() + field.size(), value, base);
    good_ = good_ && code == std::errc() && stop == field.data() + field.size();
    return value;
  }
  [[nodiscard]] bool good() const { return good_; }
  [[nodiscard]] bool at_end() const { return good_ && !more_; }

 private:
  std::string_view rest_;
  bool more_ = true;
  bool good_ = true;
};

/// A text of version 1 that can be a field of the current version.
std::optional<std::string> json_field(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) {
    return std::nullopt;
  }
  std::string text = *found;
  const bool plain = std::none_of(text.begin(), text.end(), [](char letter) {
    return static_cast<unsigned char>(letter) < ' ';
  });
  return plain && !text.empty() ? std::optional(std::move(text)) : std::nullopt;
}

std::optional<std::int64_t> json_number(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) {
    return std::nullopt;
  }
  const auto number = found->get<std::int64_t>();
  return found->is_number_unsigned() && number < 0 ? std::nullopt : std::optional(number);
}

/// Format of the index's version 1, whose entries are all in place.
std::optional<IndexEntry> parse_json_entry(std::string_view text) {
  const nlohmann::json object = nlohmann::json::parse(text, nullptr, false);
  if (!object.is_object()) {
    return std::nullopt;
  }
  const auto step = json_number(object, "step");
  auto directory = json_field(object, "directory");
  auto digest = json_field(object, "manifest_digest");
  const auto recorded_s = json_number(object, "recorded_s");
  if (!step || !directory || !digest || !recorded_s) {
    return std::nullopt;
  }
  return IndexEntry{.step = *step,
                    .directory = *std::move(directory),
                    .manifest_digest = *std::move(digest),
                    .recorded_s = *recorded_s};
}

}  // namespace

std::string_view state_name(CheckpointState state) {
  return kStateNames[static_cast<std::size_t>(state)];
}

std::optional<CheckpointState> state_of(std::string_view name) {
  for (std::size_t i = 0; i < kStateNames.size(); ++i) {
    if (kStateNames[i] == name) {
      return static_cast<CheckpointState>(i);
    }
  }
  return std::nullopt;
}

std::int64_t unix_now_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

IndexEntry entry_of(const Manifest& manifest, std::string manifest_digest) {
  IndexEntry entry{.step = manifest.fields.step,
                   .directory = checkpoint_name(manifest.fields.step),
                   .manifest_digest = std::move(manifest_digest),
                   .recorded_s = unix_now_s(),
                   .tokens = manifest.fields.tokens,
                   .ranks = static_cast<std::int64_t>(manifest.files.size())};
  for (const FileRecord& file : manifest.files) {
    entry.size_bytes += file.size_bytes;
  }
  return entry;
}

std::string entry_text(const IndexEntry& entry) {
  const std::string loss =
      entry.validation_loss
          ? fmt::format("{:016x}", std::bit_cast<std::uint64_t>(*entry.validation_loss))
          : std::string("-");
  return fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}", entry.step, entry.directory,
                     state_name(entry.state), entry.manifest_digest, entry.recorded_s,
                     entry.size_bytes, entry.tokens, entry.ranks, loss,
                     entry.rebuilt ? "rebuilt" : "-");
}

std::optional<IndexEntry> parse_entry(std::string_view text) {
  if (text.starts_with('{')) {
    return parse_json_entry(text);
  }
  Fields fields(text);
  IndexEntry entry;
  entry.step = fields.number<std::int64_t>();
  entry.directory = fields.text();
  const auto state = state_of(fields.text());
  entry.state = state.value_or(CheckpointState::committed);
  entry.manifest_digest = fields.text();
  entry.recorded_s = fields.number<std::int64_t>();
  entry.size_bytes = fields.number<std::uint64_t>();
  entry.tokens = fields.number<std::int64_t>();
  entry.ranks = fields.number<std::int64_t>();
  const std::string_view loss = fields.text();
  if (loss != "-") {
    Fields bits(loss);
    entry.validation_loss = std::bit_cast<double>(bits.number<std::uint64_t>(16));
    if (!bits.at_end()) {
      return std::nullopt;
    }
  }
  entry.rebuilt = fields.text() == "rebuilt";
  return fields.at_end() && state ? std::optional(std::move(entry)) : std::nullopt;
}

}  // namespace train::checkpoint
