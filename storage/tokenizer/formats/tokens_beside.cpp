#include "storage/tokenizer/formats/tokens_beside.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "storage/files/untrusted_text.hpp"
#include "storage/tokenizer/formats/json_members.hpp"
#include "storage/tokenizer/formats/side_document.hpp"

namespace train::storage {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kConfig = "tokenizer_config.json";
constexpr const char* kAddedTokens = "added_tokens.json";
constexpr std::array kNames = {"bos_token", "eos_token", "unk_token", "sep_token",
                               "pad_token", "cls_token", "mask_token"};

/// A token that a file names, and the id that it gives it.
struct TokenBeside {
  AddedToken token;
  std::optional<std::uint32_t> id = {};
  const char* file = kConfig;
};

/// A text, or an object with one.
std::optional<AddedToken> token_of(const json& entry, bool special) {
  if (entry.is_string()) {
    return AddedToken{.content = entry.get<std::string>(), .special = special};
  }
  auto content = json_text(entry, "content");
  if (!content) {
    return std::nullopt;
  }
  special = json_flag(entry, "special", special);
  return AddedToken{.content = std::move(*content),
                    .single_word = json_flag(entry, "single_word", false),
                    .lstrip = json_flag(entry, "lstrip", false),
                    .rstrip = json_flag(entry, "rstrip", false),
                    .normalized = json_flag(entry, "normalized", !special),
                    .special = special};
}

Error no_token(const char* file, std::string_view key) {
  return user_error(fmt::format("{}: {} is no token with an id", file, shown(key)));
}

/// What is the beginning of a text, its end, and so on.
std::vector<TokenBeside> named_tokens(const json& document) {
  std::vector<TokenBeside> named;
  for (const char* name : kNames) {
    if (auto token = token_of(json_member(document, name), true)) {
      token->special = true;
      named.push_back({.token = std::move(*token)});
    }
  }
  const json& extra = json_member(document, "extra_special_tokens");
  for (const json& entry : extra.is_array() ? extra : json::array()) {
    if (auto token = token_of(entry, true)) {
      named.push_back({.token = std::move(*token)});
    }
  }
  return named;
}

/// {"32000": {"content": "<|im_start|>", ...}, ...}, by rising ids.
Result<std::vector<TokenBeside>> decoder_tokens(const json& decoder) {
  std::map<std::uint32_t, AddedToken> tokens;
  for (const auto& [key, entry] : decoder.items()) {
    const json number = json::parse(key, nullptr, /*allow_exceptions=*/false);
    const auto id = json_count(json{{"id", number}}, "id");
    auto token = token_of(entry, false);
    if (!id || !token) {
      return no_token(kConfig, "added_tokens_decoder." + key);
    }
    tokens.emplace(*id, std::move(*token));
  }
  std::vector<TokenBeside> all;
  for (auto& [id, token] : tokens) {
    all.push_back({.token = std::move(token), .id = id});
  }
  return all;
}

/// {"<|im_start|>": 32000, ...}, by rising ids; special are those that have a name.
Result<std::vector<TokenBeside>> listed_tokens(const json& list,
                                               const std::vector<TokenBeside>& named) {
  std::map<std::uint32_t, AddedToken> tokens;
  for (const auto& [content, id] : list.items()) {
    const auto number = json_count(list, content);
    if (!number) {
      return no_token(kAddedTokens, content);
    }
    const bool special = std::any_of(
        named.begin(), named.end(),
        [&name = content](const TokenBeside& one) { return one.token.content == name; });
    tokens.emplace(*number,
                   AddedToken{.content = content, .normalized = !special, .special = special});
  }
  std::vector<TokenBeside> all;
  for (auto& [id, token] : tokens) {
    all.push_back({.token = std::move(token), .id = id, .file = kAddedTokens});
  }
  return all;
}

Result<std::vector<TokenBeside>> tokens_beside(const fs::path& folder) {
  const json config = side_document(folder / kConfig);
  std::vector<TokenBeside> named = named_tokens(config);
  const json& decoder = json_member(config, "added_tokens_decoder");
  Result<std::vector<TokenBeside>> all = std::vector<TokenBeside>();
  if (decoder.is_object()) {
    all = decoder_tokens(decoder);
  } else {
    for (TokenBeside& one : named_tokens(side_document(folder / "special_tokens_map.json"))) {
      named.push_back(std::move(one));
    }
    const json list = side_document(folder / kAddedTokens);
    all = listed_tokens(list.is_object() ? list : json::object(), named);
  }
  TRAIN_RETURN_IF_ERROR(all);
  std::move(named.begin(), named.end(), std::back_inserter(*all));
  return all;
}

/// Tokens that are there already, and those that come to them.
class GrowingTokens {
 public:
  GrowingTokens(const AddedTokens& tokens, const Vocabulary& vocabulary)
      : tokens_(tokens.tokens()), vocabulary_(vocabulary) {
    next_ = static_cast<std::uint32_t>(vocabulary.size());
    for (const AddedToken& token : tokens_) {
      next_ = std::max(next_, token.id + 1);
    }
  }

  [[nodiscard]] AddedToken* find(std::string_view content) {
    const auto found = std::find_if(tokens_.begin(), tokens_.end(), [&](const AddedToken& token) {
      return token.content == content;
    });
    return found == tokens_.end() ? nullptr : &*found;
  }
  /// Of a token with this text.
  [[nodiscard]] std::uint32_t id_for(std::string_view content) {
    const AddedToken* there = find(content);
    return there != nullptr ? there->id : vocabulary_.find(content).value_or(next_);
  }
  void add(AddedToken token) {
    next_ = std::max(next_, token.id + 1);
    tokens_.push_back(std::move(token));
  }
  [[nodiscard]] std::vector<AddedToken> take() { return std::move(tokens_); }

 private:
  std::vector<AddedToken> tokens_;
  const Vocabulary& vocabulary_;
  std::uint32_t next_ = 0;
};

/// Puts a token in, or its flags on the one with its text.
void add_or_flag(GrowingTokens& tokens, const TokenBeside& one) {
  AddedToken token = one.token;
  token.id = tokens.id_for(token.content);
  AddedToken* there = tokens.find(token.content);
  if (there == nullptr) {
    tokens.add(std::move(token));
  } else if (one.id) {  // a name alone brings no flags
    token.special = token.special || there->special;
    token.searched = there->searched;
    *there = std::move(token);
  } else {
    there->special = true;
  }
}

/// Of SentencePiece. Control tokens are in rendered text alone, whoever names them, and no rule
/// changes the text of any: see Tokenizer.
void add_to_pieces(GrowingTokens& plain, GrowingTokens& rendered, TokenBeside one) {
  one.token.normalized = false;
  add_or_flag(rendered, one);
  if (plain.find(one.token.content) == nullptr) {
    one.token.id = plain.id_for(one.token.content);
    one.token.searched = !one.token.special;
    plain.add(one.token);
  }
}

}  // namespace

Status add_tokens_beside(TokenizerParts& parts, const fs::path& folder) {
  const auto beside = tokens_beside(folder);
  TRAIN_RETURN_IF_ERROR(beside);
  const Vocabulary& vocabulary = parts.model.vocabulary();
  GrowingTokens plain(parts.added, vocabulary);
  GrowingTokens rendered(parts.rendered ? parts.rendered->controls : AddedTokens(), vocabulary);
  for (const TokenBeside& one : *beside) {
    if (one.token.content.empty()) {
      continue;
    }
    const std::uint32_t id = plain.id_for(one.token.content);
    if (one.id && *one.id != id) {
      return user_error(
          fmt::format("{}: {} has the id {}, but it is token {}: ids go on behind the vocabulary "
                      "without a gap; "
                      "name all of them, or give a tokenizer.json",
                      one.file, shown(one.token.content), *one.id, id));
    }
    if (parts.rendered) {
      add_to_pieces(plain, rendered, one);
    } else {
      add_or_flag(plain, one);
    }
  }
  auto added = AddedTokens::make(plain.take(), parts.rendered ? Normalizer() : parts.normalizer);
  TRAIN_RETURN_IF_ERROR(added);
  parts.added = std::move(*added);
  if (parts.rendered) {
    auto controls = AddedTokens::make(rendered.take(), Normalizer());
    TRAIN_RETURN_IF_ERROR(controls);
    parts.rendered->controls = std::move(*controls);
  }
  return {};
}

}  // namespace train::storage
