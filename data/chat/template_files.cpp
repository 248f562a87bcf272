#include "data/chat/template_files.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/text/ascii.hpp"
#include "data/tokenizer/formats/gguf_tokenizer.hpp"
#include "data/tokenizer/formats/json_members.hpp"
#include "data/tokenizer/formats/tokenizer_settings.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/files/input_file.hpp"
#include "storage/files/untrusted_text.hpp"
#include "storage/text/utf8.hpp"

namespace train::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uint64_t kFileLimitBytes = std::uint64_t{1} << 24U;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

Result<std::string> read_small_file(const fs::path& path) {
  const auto file = TRAIN_TRY(storage::InputFile::open(path));
  return file.read_text(kFileLimitBytes);
}

Result<std::string> read_template(const fs::path& path) {
  auto text = TRAIN_TRY(read_small_file(path));
  if (storage::valid_prefix(text) != text.size()) {
    return user_error(
        fmt::format("{}: byte {}: not valid UTF-8", path.string(), storage::valid_prefix(text)));
  }
  return text;
}

/// Parsed JSON file; null if it is missing.
Result<json> read_document(const fs::path& path) {
  constexpr storage::JsonLimits limits = {
      .bytes = kFileLimitBytes, .values = 1'000'000, .run = kFileLimitBytes, .depth = 32};
  if (!is_file(path)) {
    return json(nullptr);
  }
  const auto text = TRAIN_TRY(read_small_file(path));
  json document = storage::json_excess(text, limits).empty() ? json::parse(text, nullptr, false)
                                                             : json(json::value_t::discarded);
  if (!document.is_object()) {
    return user_error(fmt::format("{}: not a JSON object", path.string()));
  }
  return document;
}

/// Every named special token, the model's own names included, as transformers passes them to
/// templates.
Result<SpecialTokens> tokens_in(const fs::path& folder) {
  const auto settings = TRAIN_TRY(read_tokenizer_settings(folder));
  SpecialTokens tokens;
  for (const TokenizerSettings::Named& one : settings.named) {
    tokens[one.name] = one.token.content;
  }
  return tokens;
}

/// Accepts text, a list of {"name", "template"}, or an object of names and templates.
Result<TemplateSources> sources_of(const json& member, const fs::path& file) {
  TemplateSources sources;
  if (member.is_string()) {
    sources.emplace("default", member.get<std::string>());
  }
  const json named = member.is_object() ? member : json::object();
  for (const auto& [name, source] : named.items()) {
    if (!source.is_string()) {
      return user_error(fmt::format("{}: chat_template.{} is not text", file.string(), name));
    }
    sources.emplace(name, source.get<std::string>());
  }
  for (const json& entry : member.is_array() ? member : json::array()) {
    const auto name = json_text(entry, "name");
    const auto source = json_text(entry, "template");
    if (!name || !source) {
      return user_error(fmt::format("{}: an entry of chat_template lacks its name or its template",
                                    file.string()));
    }
    sources[*name] = *source;
  }
  if (!member.is_null() && sources.empty()) {
    return user_error(fmt::format(
        R"({}: chat_template is neither a text nor a list of {{"name": ..., "template": ...}})",
        file.string()));
  }
  return sources;
}

/// chat_template.jinja and those of additional_chat_templates/, where a "default" takes precedence.
Result<TemplateSources> template_files_in(const fs::path& folder) {
  TemplateSources sources;
  std::map<std::string, fs::path> files;
  if (is_file(folder / "chat_template.jinja")) {
    files.emplace("default", folder / "chat_template.jinja");
  }
  std::error_code failed;
  for (fs::directory_iterator entry(folder / "additional_chat_templates", failed), end;
       !failed && entry != end; entry.increment(failed)) {
    if (entry->path().extension() == ".jinja") {
      files.insert_or_assign(entry->path().stem().string(), entry->path());
    }
  }
  for (const auto& [name, file] : files) {
    auto source = TRAIN_TRY(read_template(file));
    sources.emplace(name, std::move(source));
  }
  return sources;
}

Result<TemplateFiles> read_folder(const fs::path& folder) {
  const fs::path config_file = folder / "tokenizer_config.json";
  const auto config = TRAIN_TRY(read_document(config_file));
  auto tokens = TRAIN_TRY(tokens_in(folder));
  TemplateFiles files{.sources = {}, .tokens = std::move(tokens), .where = {}};
  auto sources = template_files_in(folder);
  TRAIN_RETURN_IF_ERROR(sources);
  files.where = (folder / "chat_template.jinja").string();
  if (sources->empty()) {
    sources = sources_of(json_member(config, "chat_template"), config_file);
    TRAIN_RETURN_IF_ERROR(sources);
    files.where = config_file.string();
  }
  if (sources->empty()) {
    std::vector<std::string_view> names(built_in_chat_templates().begin(),
                                        built_in_chat_templates().end());
    return user_error(
        fmt::format("{} has no chat template: no chat_template.jinja, no chat_template in "
                    "tokenizer_config.json; use a built-in one, as with --template {}",
                    folder.string(), fmt::join(names, ", ")));
  }
  files.sources = std::move(sources).value();
  return files;
}

Result<TemplateFiles> read_gguf(const fs::path& path) {
  const auto file = TRAIN_TRY(storage::GgufFile::open(path));
  TemplateFiles files{.sources = gguf_template_sources(file),
                      .tokens = gguf_special_tokens(file),
                      .where = path.string()};
  if (files.sources.empty()) {
    return user_error(
        fmt::format("{} has no chat template: no {}; use a built-in one, as with --template chatml",
                    path.string(), kGgufTemplateKey));
  }
  return files;
}

}  // namespace

Result<TemplateFiles> read_template_files(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    return read_folder(path);
  }
  if (path.extension() == ".gguf") {
    return read_gguf(path);
  }
  auto source = TRAIN_TRY(read_template(path));
  auto tokens = TRAIN_TRY(read_special_tokens(path));
  return TemplateFiles{.sources = {{"default", std::move(source)}},
                       .tokens = std::move(tokens),
                       .where = path.string()};
}

namespace {

constexpr const char* kTemplateFile = "chat_template.jinja";
constexpr const char* kOtherTemplates = "additional_chat_templates";

bool is_file_name(const std::string& name) {
  return !name.empty() && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), [](char letter) {
           return is_alphanumeric(letter) || letter == '_' || letter == '-' || letter == '.';
         });
}

/// Removes the template from tokenizer_config.json, if present.
Status remove_configured_template(const fs::path& folder) {
  const fs::path file = folder / "tokenizer_config.json";
  if (!is_file(file)) {
    return {};
  }
  const auto text = TRAIN_TRY(read_small_file(file));
  auto config = nlohmann::ordered_json::parse(text, nullptr, false);
  if (!config.is_object()) {
    return user_error(fmt::format("{}: not a JSON object", file.string()));
  }
  return config.erase("chat_template") == 0
             ? Status()
             : storage::write_file_atomically(
                   file, config.dump(2, ' ', false, json::error_handler_t::replace) + "\n");
}

}  // namespace

Status check_template_names(const TemplateSources& sources) {
  for (const auto& [name, source] : sources) {
    if (!is_file_name(name)) {
      return user_error(
          fmt::format("chat template name {} cannot be a file name; give the template itself with "
                      "--template FILE",
                      storage::shown(name)));
    }
  }
  return {};
}

Status write_template_files(const TemplateSources& sources, const fs::path& folder) {
  TRAIN_RETURN_IF_ERROR(check_template_names(sources));
  const auto now = read_folder(folder);
  if (now && now->sources == sources) {
    return {};
  }
  TRAIN_RETURN_IF_ERROR(remove_configured_template(folder));
  for (const char* const older : {kTemplateFile, kOtherTemplates, "chat_template.json"}) {
    TRAIN_RETURN_IF_ERROR(storage::remove_tree(folder / older));
  }
  for (const auto& [name, source] : sources) {
    if (name != "default") {
      TRAIN_RETURN_IF_ERROR(storage::make_directory(folder / kOtherTemplates));
      TRAIN_RETURN_IF_ERROR(
          storage::write_file_atomically(folder / kOtherTemplates / (name + ".jinja"), source));
    }
  }
  const auto first = sources.find("default");
  return first == sources.end()
             ? Status()
             : storage::write_file_atomically(folder / kTemplateFile, first->second);
}

Result<SpecialTokens> read_special_tokens(const fs::path& tokenizer) {
  if (tokenizer.extension() == ".gguf") {
    const auto file = TRAIN_TRY(storage::GgufFile::open(tokenizer));
    return gguf_special_tokens(file);
  }
  std::error_code ignored;
  const fs::path folder =
      fs::is_directory(tokenizer, ignored) ? tokenizer : tokenizer.parent_path();
  return tokens_in(folder);
}

}  // namespace train::data
