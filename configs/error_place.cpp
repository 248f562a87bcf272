#include "configs/error_place.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/ascii.hpp"
#include "configs/fields/source_table.hpp"

namespace train::configs {
namespace {

bool continues_name(char letter) {
  return is_alphanumeric(letter) || letter == '_' || letter == '-';
}

/// Position at which `text` names the key; npos: none. "run.steps" does not match in
/// "run.steps_per_job".
std::size_t find_key(std::string_view text, std::string_view key) {
  for (std::size_t at = text.find(key); at != std::string_view::npos; at = text.find(key, at + 1)) {
    const bool begins = at == 0 || !(continues_name(text[at - 1]) || text[at - 1] == '.');
    const std::size_t end = at + key.size();
    if (begins && (end == text.size() || !continues_name(text[end]))) {
      return at;
    }
  }
  return std::string_view::npos;
}

/// First given key that the text names, or null.
const std::pair<const std::string, std::string>* named_key(std::string_view text,
                                                           const KeyPositions& places) {
  const std::pair<const std::string, std::string>* first = nullptr;
  std::size_t first_at = std::string_view::npos;
  for (const auto& entry : places.by_key) {
    // The longest of the keys at one position, "data.sources[1].dir", comes last.
    if (const std::size_t at = find_key(text, entry.first);
        at != std::string_view::npos && at <= first_at) {
      first = &entry;
      first_at = at;
    }
  }
  return first;
}

/// True if the text begins with this path, ignoring the words of a system error.
bool begins_with_path(std::string_view text, const std::string& path) {
  for (const std::string_view words :
       {"cannot read ", "cannot write ", "cannot create directory ", "cannot create "}) {
    if (text.starts_with(words)) {
      text.remove_prefix(words.size());
      break;
    }
  }
  if (path.empty()) {
    return false;
  }
  const auto begins_with = [text](const std::string& name) {
    return text.starts_with(name) &&
           (text.size() == name.size() || !continues_name(text[name.size()]));
  };
  return begins_with(path) || begins_with(std::filesystem::absolute(path).lexically_normal());
}

std::vector<std::string> paths_of(const Field& field, const RunConfig& config) {
  const ConstFieldPointer value = field.value_in(config);
  if (const auto* const* text = std::get_if<const std::string*>(&value)) {
    return {**text};
  }
  const auto* const* texts = std::get_if<const std::vector<std::string>*>(&value);
  return texts == nullptr ? std::vector<std::string>() : **texts;
}

/// Given key whose path the text begins with; empty: none.
std::string key_of_path(std::string_view text, const RunConfig& config,
                        const KeyPositions& places) {
  for (const Field& field : all_fields()) {
    if (!field.unit.starts_with("path") || !places.by_key.contains(field.key())) {
      continue;
    }
    const std::vector<std::string> paths = paths_of(field, config);
    if (std::any_of(paths.begin(), paths.end(),
                    [&](const std::string& path) { return begins_with_path(text, path); })) {
      return field.key();
    }
  }
  for (std::size_t i = 0; i < config.data.sources.size(); ++i) {
    if (begins_with_path(text, config.data.sources[i].dir)) {
      return source_key(i, "dir");
    }
  }
  return {};
}

}  // namespace

Error with_place(Error error, const RunConfig& config, const KeyPositions& places) {
  const std::string& text = error.message;
  const bool placed = text.starts_with("--set ") || text.starts_with(places.file + ":");
  if (error.kind != ErrorKind::user || placed) {
    return error;
  }
  if (const auto* key = named_key(text, places)) {
    error.message = fmt::format("{}: {}", key->second, text);
  } else if (const std::string path = key_of_path(text, config, places); !path.empty()) {
    error.message = fmt::format("{}: {}: {}", places.of(path), path, text);
  }
  return error;
}

}  // namespace train::configs
