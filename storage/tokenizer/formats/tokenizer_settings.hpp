#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "storage/tokenizer/stages/added_tokens.hpp"

namespace train::storage {

inline constexpr const char* kTokenizerConfig = "tokenizer_config.json";

/// What tokenizer_config.json and special_tokens_map.json say of a tokenizer's tokens, put together
/// as transformers 5 does: where the first lists its added_tokens_decoder it goes alone, else what
/// the second names takes the place of the first's.
struct TokenizerSettings {
  struct Named {
    std::string name;  ///< As "eos_token".
    AddedToken token;
  };

  nlohmann::json config;     ///< tokenizer_config.json; an empty object if there is none.
  std::vector<Named> named;  ///< What is a text's beginning, its end, and so on; then the model's.
  std::vector<AddedToken> extra;
  /// Some of `extra`, known too late to be special in added_tokens.json.
  std::vector<AddedToken> late_extra;

  /// The text of the token with this name.
  [[nodiscard]] std::optional<std::string> text_of(std::string_view name) const;
  /// The configuration's own value of a switch.
  [[nodiscard]] std::optional<bool> flag(std::string_view key) const;
  [[nodiscard]] bool lists_added_tokens() const;
};

/// A token as these files have it: a text, or an object with one; nothing of anything else.
[[nodiscard]] std::optional<AddedToken> token_of(const nlohmann::json& entry, bool special);

/// Of a directory without either file: nothing. Errors (user, names the file): no JSON object; a
/// setting that is not supported.
[[nodiscard]] Result<TokenizerSettings> read_tokenizer_settings(
    const std::filesystem::path& folder);

}  // namespace train::storage
