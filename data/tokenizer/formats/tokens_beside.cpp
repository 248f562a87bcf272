#include "data/tokenizer/formats/tokens_beside.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "data/tokenizer/formats/json_members.hpp"
#include "data/tokenizer/formats/side_document.hpp"
#include "storage/files/untrusted_text.hpp"

namespace train::data {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kAddedTokens = "added_tokens.json";

/// Token named in a file, with the id given there.
struct TokenBeside {
  AddedToken token;
  std::optional<std::uint32_t> id = {};
  const char* file = kTokenizerConfig;
  bool late = false;  ///< In TokenizerSettings::late_extra; not added to SentencePiece.
};

Error no_token(const char* file, std::string_view key) {
  return user_error(fmt::format("{}: {} is not a token with an id", file, storage::shown(key)));
}

/// {"32000": {"content": "<|im_start|>", ...}, ...}, by ascending id.
Result<std::vector<TokenBeside>> decoder_tokens(const json& decoder) {
  std::map<std::uint32_t, AddedToken> tokens;
  for (const auto& [key, entry] : decoder.items()) {
    const json number = json::parse(key, nullptr, /*allow_exceptions=*/false);
    const auto id = json_count(json{{"id", number}}, "id");
    auto token = token_of(entry, false);
    if (!id || !token) {
      return no_token(kTokenizerConfig, "added_tokens_decoder." + key);
    }
    tokens.emplace(*id, std::move(*token));
  }
  std::vector<TokenBeside> all;
  all.reserve(tokens.size());
  for (auto& [id, token] : tokens) {
    all.push_back({.token = std::move(token), .id = id});
  }
  return all;
}

bool has_text(const std::vector<AddedToken>& tokens, std::string_view content) {
  return std::any_of(tokens.begin(), tokens.end(),
                     [&](const AddedToken& token) { return token.content == content; });
}

bool has_name(const TokenizerSettings& settings, std::string_view content) {
  return std::any_of(
      settings.named.begin(), settings.named.end(),
      [&](const TokenizerSettings::Named& one) { return one.token.content == content; });
}

/// {"<|im_start|>": 32000, ...}, by ascending id; special are those the settings know by then.
Result<std::vector<TokenBeside>> listed_tokens(const json& list,
                                               const TokenizerSettings& settings) {
  std::map<std::uint32_t, AddedToken> tokens;
  for (const auto& [content, id] : list.items()) {
    const auto number = json_count(list, content);
    if (!number) {
      return no_token(kAddedTokens, content);
    }
    const bool special = has_name(settings, content) || has_text(settings.extra, content);
    tokens.emplace(*number,
                   AddedToken{.content = content, .normalized = !special, .special = special});
  }
  std::vector<TokenBeside> all;
  all.reserve(tokens.size());
  for (auto& [id, token] : tokens) {
    all.push_back({.token = std::move(token), .id = id, .file = kAddedTokens});
  }
  return all;
}

Result<std::vector<TokenBeside>> tokens_beside(const TokenizerSettings& settings,
                                               const fs::path& folder) {
  Result<std::vector<TokenBeside>> all = std::vector<TokenBeside>();
  if (settings.lists_added_tokens()) {
    all = decoder_tokens(json_member(settings.config, "added_tokens_decoder"));
  } else {
    const auto list = TRAIN_TRY(side_document(folder / kAddedTokens));
    all = listed_tokens(list, settings);
  }
  TRAIN_RETURN_IF_ERROR(all);
  for (const TokenizerSettings::Named& one : settings.named) {
    all->push_back({.token = one.token});
  }
  for (const AddedToken& token : settings.extra) {
    all->push_back({.token = token});
  }
  for (const AddedToken& token : settings.late_extra) {
    all->push_back({.token = token, .late = true});
  }
  return all;
}

/// Existing tokens and those added.
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
  /// Id for a token with this text.
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

bool same_flags(const AddedToken& a, const AddedToken& b) {
  return std::tuple(a.single_word, a.lstrip, a.rstrip, a.normalized, a.special) ==
         std::tuple(b.single_word, b.lstrip, b.rstrip, b.normalized, b.special);
}

/// Adds a token, or updates the flags of the one with its text if they differ. `is_named`: the
/// settings name it; a token whose flags change is then special.
void add_or_flag(GrowingTokens& tokens, const TokenBeside& one, bool is_named) {
  AddedToken token = one.token;
  token.id = tokens.id_for(token.content);
  token.special = token.special || is_named;
  AddedToken* there = tokens.find(token.content);
  if (there == nullptr) {
    tokens.add(std::move(token));
  } else if (one.id && !same_flags(one.token, *there)) {  // A name alone does not change flags.
    token.special = token.special || there->special;
    token.searched = there->searched;
    *there = std::move(token);
  }
}

/// Qwen2's class adds all named tokens again, as special without other flags.
void add_named_again(GrowingTokens& tokens, const TokenizerSettings& settings) {
  const auto again = [&tokens](const AddedToken& token) {
    if (AddedToken* const there = tokens.find(token.content)) {
      *there = {.content = token.content, .id = there->id, .special = true};
    }
  };
  for (const TokenizerSettings::Named& one : settings.named) {
    again(one.token);
  }
  std::for_each(settings.extra.begin(), settings.extra.end(), again);
  std::for_each(settings.late_extra.begin(), settings.late_extra.end(), again);
}

/// For SentencePiece. Control tokens occur only in rendered text, whatever names them, and the text
/// of tokens is never normalised: see Tokenizer.
void add_to_pieces(GrowingTokens& plain, GrowingTokens& rendered, TokenBeside one, bool is_named) {
  one.token.normalized = false;
  one.token.special = one.token.special || is_named;
  add_or_flag(rendered, one, is_named);
  if (plain.find(one.token.content) == nullptr) {
    one.token.id = plain.id_for(one.token.content);
    one.token.searched = !one.token.special;
    plain.add(one.token);
  }
}

}  // namespace

Status add_tokens_beside(TokenizerParts& parts, const TokenizerSettings& settings,
                         const fs::path& folder) {
  const auto beside = TRAIN_TRY(tokens_beside(settings, folder));
  const Vocabulary& vocabulary = parts.model.vocabulary();
  GrowingTokens plain(parts.added, vocabulary);
  GrowingTokens rendered(parts.rendered ? parts.rendered->controls : AddedTokens(), vocabulary);
  for (const TokenBeside& one : beside) {
    if (one.token.content.empty() || (one.late && parts.rendered)) {
      continue;
    }
    const std::uint32_t id = plain.id_for(one.token.content);
    if (one.id && *one.id != id) {
      return user_error(
          fmt::format("{}: {} has the id {}, but would be token {}: added ids must follow the "
                      "vocabulary without a gap; list all of them, or give a tokenizer.json",
                      one.file, storage::shown(one.token.content), *one.id, id));
    }
    const bool is_named = has_name(settings, one.token.content);
    if (parts.rendered) {
      add_to_pieces(plain, rendered, one, is_named);
    } else {
      add_or_flag(plain, one, is_named);
    }
  }
  if (json_text(settings.config, "tokenizer_class").value_or("").starts_with("Qwen2")) {
    add_named_again(plain, settings);
  }
  parts.added =
      TRAIN_TRY(AddedTokens::make(plain.take(), parts.rendered ? Normalizer() : parts.normalizer));
  if (parts.rendered) {
    parts.rendered->controls = TRAIN_TRY(AddedTokens::make(rendered.take(), Normalizer()));
  }
  return {};
}

}  // namespace train::data
