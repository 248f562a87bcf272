#include "data/tokenizer/formats/tokenizer_files.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <system_error>

#include "data/tokenizer/formats/json_members.hpp"
#include "data/tokenizer/formats/sentencepiece/sentencepiece_model.hpp"
#include "data/tokenizer/formats/side_document.hpp"
#include "data/tokenizer/formats/tokenizer_json.hpp"
#include "data/tokenizer/formats/tokenizer_settings.hpp"
#include "data/tokenizer/formats/tokens_beside.hpp"
#include "storage/files/input_file.hpp"
#include "storage/files/untrusted_text.hpp"
#include "storage/text/utf8.hpp"
#include "storage/weight_files/weight_directory.hpp"

namespace train::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uint64_t kTokenizerLimitBytes = std::uint64_t{1} << 28U;

Result<std::string> read_tokenizer_file(const fs::path& path, std::uint64_t limit_bytes) {
  const auto file = TRAIN_TRY(storage::InputFile::open(path));
  return file.read_text(limit_bytes);
}

std::optional<std::uint32_t> id_of_text(const TokenizerParts& parts, std::string_view text) {
  if (const AddedToken* token = parts.added.token(text)) {
    return token->id;
  }
  return parts.model.vocabulary().find(text);
}

/// Ids in a config: one, or a list.
std::vector<std::uint32_t> numbered_ids(const json& config) {
  const json& member = json_member(config, "eos_token_id");
  std::vector<std::uint32_t> ids;
  for (const json& id : member.is_array() ? member : json::array({member})) {
    if (const auto count = json_count(json{{"id", id}}, "id")) {
      ids.push_back(*count);
    }
  }
  return ids;
}

/// Token that the settings give for a name.
std::optional<std::uint32_t> named_id(const TokenizerParts& parts,
                                      const TokenizerSettings& settings, const char* name) {
  const auto text = settings.text_of(name);
  return text ? id_of_text(parts, *text) : std::nullopt;
}

std::optional<std::uint32_t> find_end_of_text(const TokenizerParts& parts,
                                              const TokenizerSettings& settings,
                                              const std::vector<std::uint32_t>& configured) {
  if (const auto id = named_id(parts, settings, "eos_token")) {
    return id;
  }
  if (!configured.empty()) {
    return configured.front();
  }
  if (parts.end_of_text) {
    return parts.end_of_text;
  }
  for (const std::string_view name :
       {"<|endoftext|>", "<|end_of_text|>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "</s>",
        "<eos>", "<|im_end|>", "<|eot_id|>"}) {
    if (const auto id = id_of_text(parts, name)) {
      return id;
    }
  }
  return std::nullopt;
}

/// Splitting pattern of a vocabulary with merges, by the class name in its configuration.
Result<KnownPattern> pattern_of_class(const TokenizerSettings& settings) {
  const auto name = json_text(settings.config, "tokenizer_class");
  if (!name || name->starts_with("GPT2")) {
    return KnownPattern::gpt2;
  }
  if (name->starts_with("Qwen2")) {
    return KnownPattern::qwen2;
  }
  return user_error(fmt::format(
      "tokenizer_config.json names the class {}; of its kind only a tokenizer.json is read",
      storage::shown(*name)));
}

/// Tokens named in the settings replace the tokenizer's own around a text.
void frame_by_names(const TokenizerSettings& settings, TokenizerParts& parts) {
  const auto put = [&](const char* name, std::vector<std::uint32_t>& side) {
    const auto id = named_id(parts, settings, name);
    if (id && !side.empty()) {
      side = {*id};
    }
  };
  put("bos_token", parts.frame.before);
  put("eos_token", parts.frame.after);
}

/// For a vocabulary with merges: <|endoftext|> by default, but Qwen's texts have no beginning
/// token.
void frame_two_files(const TokenizerSettings& settings, KnownPattern pattern,
                     TokenizerParts& parts) {
  const auto put = [&](const char* wish, const char* name, std::vector<std::uint32_t>& side) {
    auto id = named_id(parts, settings, name);
    if (!id && (pattern == KnownPattern::gpt2 || &side == &parts.frame.after)) {
      id = id_of_text(parts, "<|endoftext|>");
    }
    if (id && settings.flag(wish).value_or(false)) {
      side.push_back(*id);
    }
  };
  put("add_bos_token", "bos_token", parts.frame.before);
  put("add_eos_token", "eos_token", parts.frame.after);
}

/// True if the normalizer puts the space marker before each part of a text.
bool spaces_each_part(const Normalizer& normalizer) {
  std::string buffer;
  const auto normal = normalizer.apply("a", buffer);
  return normal.ok() && normal->text.starts_with(storage::kSpaceMarker);
}

/// Reports settings that are ignored because the file defines the splitting.
void note_unread(const TokenizerSettings& settings, std::string_view model_type,
                 TokenizerParts& parts) {
  const auto prefix = settings.flag("add_prefix_space");
  const auto has_prefix = parts.pre_tokenizer.prefix_space();
  if (prefix && has_prefix && *prefix != *has_prefix) {
    parts.notes.push_back(fmt::format(
        "add_prefix_space of tokenizer_config.json is left out: the tokenizer's file has {}",
        *has_prefix));
  }
  if (!parts.model.is_bpe() && settings.flag("clean_up_tokenization_spaces").value_or(false)) {
    parts.notes.emplace_back("clean_up_tokenization_spaces is left out: spaces stay as they are");
  }
  // For Mistral models transformers uses the file as it is, whatever class is named.
  const std::string name = json_text(settings.config, "tokenizer_class").value_or("");
  const bool made_anew = name.starts_with("LlamaTokenizer") || name.starts_with("CodeLlama");
  if (made_anew && !model_type.ends_with("stral") && !settings.flag("legacy").value_or(false) &&
      spaces_each_part(parts.normalizer)) {
    parts.notes.push_back(fmt::format(
        "a space goes behind each special token, as tokenizer.json says; transformers 5 puts none "
        "there for {} without \"legacy\": true in tokenizer_config.json",
        storage::shown(name)));
  }
}

Result<TokenizerParts> read_single_file(const fs::path& file, const TokenizerSettings& settings) {
  const auto text = TRAIN_TRY(read_tokenizer_file(file, kTokenizerLimitBytes));
  if (is_sentencepiece_model(text)) {
    return read_sentencepiece_file(text, {.begin = settings.flag("add_bos_token"),
                                          .end = settings.flag("add_eos_token"),
                                          .legacy = settings.flag("legacy").value_or(false)});
  }
  // Recognised by name, as Mistral's own programs do.
  const std::string name = file.filename().string();
  if (name.find("tekken") != std::string::npos && name.ends_with(".json")) {
    return read_tekken_file(text);
  }
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && text[first] == '{' ? read_tokenizer_json(text)
                                                          : read_rank_file(text);
}

Result<TokenizerParts> read_two_files(const fs::path& folder, const TokenizerSettings& settings) {
  const auto vocabulary =
      TRAIN_TRY(read_tokenizer_file(folder / "vocab.json", kTokenizerLimitBytes));
  const auto merges = TRAIN_TRY(read_tokenizer_file(folder / "merges.txt", kTokenizerLimitBytes));
  const auto pattern = TRAIN_TRY(pattern_of_class(settings));
  return read_vocabulary_and_merges(vocabulary, merges, pattern,
                                    settings.flag("add_prefix_space").value_or(false));
}

/// Rank file or tekken file in a folder: the first by name.
std::optional<fs::path> rank_file_in(const fs::path& folder) {
  std::optional<fs::path> found;
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end;
       entry.increment(failed)) {
    const fs::path& path = entry->path();
    if ((path.extension() == ".tiktoken" || path.filename() == "tokenizer.model" ||
         path.filename() == "tekken.json") &&
        (!found || path < *found)) {
      found = path;
    }
  }
  return found;
}

Error about(const fs::path& path, const Error& error) {
  // Read errors already name the file.
  const bool named = error.message.find(path.string()) != std::string::npos;
  return named ? error : Error{error.kind, fmt::format("{}: {}", path.string(), error.message)};
}

}  // namespace

Result<std::vector<std::uint32_t>> configured_ends(const fs::path& folder) {
  for (const char* name : {"generation_config.json", "config.json"}) {
    const auto document = TRAIN_TRY(side_document(folder / name));
    if (auto ids = numbered_ids(document); !ids.empty()) {
      return ids;
    }
  }
  return std::vector<std::uint32_t>();
}

Result<TokenizerParts> read_tokenizer_files(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    return user_error(fmt::format(
        "{}: no such tokenizer; name a model's directory, a tokenizer's file, or bytes{}",
        path.string(), storage::how_to_fetch(path.string())));
  }
  const bool is_folder = fs::is_directory(path, ignored);
  fs::path file = path;
  bool two_files = false;
  if (is_folder) {
    file = path / "tokenizer.json";
    if (!fs::exists(file, ignored)) {
      two_files =
          fs::exists(path / "vocab.json", ignored) && fs::exists(path / "merges.txt", ignored);
      const auto ranks = rank_file_in(path);
      if (!two_files && !ranks) {
        return user_error(fmt::format(
            "{} holds no tokenizer.json, no tokenizer.model, no vocab.json with merges.txt, no "
            "tekken.json and no *.tiktoken; name the folder of a tokenizer",
            path.string()));
      }
      file = two_files ? path : *ranks;
    }
  }
  const fs::path folder = is_folder ? path : path.parent_path();
  const auto settings = TRAIN_TRY(read_tokenizer_settings(folder));
  const auto configured = TRAIN_TRY(configured_ends(folder));
  auto parts = two_files ? read_two_files(path, settings) : read_single_file(file, settings);
  if (!parts) {
    return about(file, parts.error());
  }
  if (const Status added = add_tokens_beside(*parts, settings, folder); !added) {
    return about(folder, added.error());
  }
  if (two_files) {
    frame_two_files(settings, pattern_of_class(settings).value(), *parts);
  } else if (parts->rendered) {
    frame_by_names(settings, *parts);
  } else {
    const auto model = TRAIN_TRY(side_document(folder / "config.json"));
    note_unread(settings, json_text(model, "model_type").value_or(""), *parts);
  }
  parts->end_of_text = find_end_of_text(*parts, settings, configured);
  return parts;
}

}  // namespace train::data
