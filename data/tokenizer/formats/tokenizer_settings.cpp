#include "data/tokenizer/formats/tokenizer_settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "data/tokenizer/formats/json_members.hpp"
#include "data/tokenizer/formats/side_document.hpp"

namespace train::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kExtra = "extra_special_tokens";
constexpr const char* kOldExtra = "additional_special_tokens";
constexpr std::array kNames = {"bos_token", "eos_token", "unk_token", "sep_token",
                               "pad_token", "cls_token", "mask_token"};

bool is_standard(std::string_view name) {
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

std::vector<AddedToken> extra_tokens_in(const json& list) {
  std::vector<AddedToken> tokens;
  for (const json& entry : list.is_array() ? list : json::array()) {
    if (auto token = token_of(entry, true)) {
      tokens.push_back(std::move(*token));
    }
  }
  return tokens;
}

/// Merges the two files.
class Merging {
 public:
  explicit Merging(const ordered_json& config) : config_(config) {
    if (json_list_is_empty(kExtra) && config_.contains(kOldExtra)) {
      config_[kExtra] = config_[kOldExtra];
      config_.erase(kOldExtra);
    }
    take_own_names(kExtra);
  }

  void add_map(const ordered_json& map) {
    for (const auto& [key, value] : map.items()) {
      if (key == kExtra && value.is_array() && config_.contains(kExtra)) {
        for (const auto& entry : value) {
          config_[kExtra].push_back(entry);
        }
      } else {
        config_[key] = value;
      }
    }
    take_own_names(kExtra);
  }

  TokenizerSettings finish(const json& config) const {
    TokenizerSettings settings{.config = config, .named = {}, .extra = {}, .late_extra = {}};
    for (const char* name : kNames) {
      add_named(name, config_.value(name, ordered_json()), settings);
    }
    for (const auto& [key, value] : config_.items()) {
      if (key.ends_with("_token") && !is_standard(key)) {
        add_named(key, value, settings);
      }
    }
    for (const auto& [key, value] : own_.items()) {
      add_named(key, value, settings);
    }
    settings.extra = extra_tokens_in(json(config_.value(kExtra, ordered_json())));
    if (!config_.contains(kExtra)) {
      settings.late_extra = extra_tokens_in(json(config_.value(kOldExtra, ordered_json())));
    }
    return settings;
  }

 private:
  [[nodiscard]] bool json_list_is_empty(const char* key) const {
    const auto found = config_.find(key);
    return found == config_.end() || found->is_null() || found->empty();
  }

  /// extra_special_tokens may be an object with the model's names for its tokens.
  void take_own_names(const char* key) {
    const auto found = config_.find(key);
    if (found == config_.end() || !found->is_object()) {
      return;
    }
    for (const auto& [name, value] : found->items()) {
      own_[name] = value;
    }
    config_.erase(key);
  }

  static void add_named(const std::string& name, const ordered_json& value,
                        TokenizerSettings& settings) {
    if (auto token = token_of(json(value), true)) {
      token->special = true;
      settings.named.push_back({.name = name, .token = std::move(*token)});
    }
  }

  ordered_json config_;
  ordered_json own_ = ordered_json::object();
};

}  // namespace

std::optional<std::string> TokenizerSettings::text_of(std::string_view name) const {
  const auto found =
      std::find_if(named.begin(), named.end(), [&](const Named& one) { return one.name == name; });
  return found == named.end() ? std::nullopt : std::optional(found->token.content);
}

std::optional<bool> TokenizerSettings::flag(std::string_view key) const {
  const json& member = json_member(config, key);
  return member.is_boolean() ? std::optional(member.get<bool>()) : std::nullopt;
}

bool TokenizerSettings::lists_added_tokens() const {
  return json_member(config, "added_tokens_decoder").is_object();
}

std::optional<AddedToken> token_of(const json& entry, bool special) {
  if (entry.is_string()) {
    return AddedToken{.content = entry.get<std::string>(), .special = special};
  }
  auto content = json_text(entry, "content");
  if (!content) {
    return std::nullopt;
  }
  // An object saved by transformers is complete.
  special = json_flag(entry, "special", special && json_member(entry, "__type").is_null());
  return AddedToken{.content = std::move(*content),
                    .single_word = json_flag(entry, "single_word", false),
                    .lstrip = json_flag(entry, "lstrip", false),
                    .rstrip = json_flag(entry, "rstrip", false),
                    .normalized = json_flag(entry, "normalized", !special),
                    .special = special};
}

Result<TokenizerSettings> read_tokenizer_settings(const fs::path& folder) {
  const auto config = TRAIN_TRY(side_members(folder / kTokenizerConfig));
  Merging merging(config);
  if (!config.value("added_tokens_decoder", ordered_json()).is_object()) {
    const auto map = TRAIN_TRY(side_members(folder / "special_tokens_map.json"));
    merging.add_map(map);
  }
  TokenizerSettings settings = merging.finish(json(config));
  if (settings.flag("split_special_tokens").value_or(false)) {
    return user_error(
        fmt::format("{}: split_special_tokens is true, which treats special tokens as plain text, "
                    "in chats too; set it to false",
                    (folder / kTokenizerConfig).string()));
  }
  return settings;
}

}  // namespace train::data
