#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "data/tokenizer/stages/added_tokens.hpp"

namespace train::data {

inline constexpr const char* kTokenizerConfig = "tokenizer_config.json";

/// Token settings of tokenizer_config.json and special_tokens_map.json, merged as transformers 5
/// does: a tokenizer_config.json with added_tokens_decoder is used alone; otherwise names in
/// special_tokens_map.json override it.
struct TokenizerSettings {
  struct Named {
    std::string name;  ///< Such as "eos_token".
    AddedToken token;
  };

  nlohmann::json config;     ///< tokenizer_config.json; an empty object if missing.
  std::vector<Named> named;  ///< Tokens with a role (beginning, end, ...), then the model's.
  std::vector<AddedToken> extra;
  /// Subset of `extra` that is read too late to count as special in added_tokens.json.
  std::vector<AddedToken> late_extra;

  /// Text of the token with this name.
  [[nodiscard]] std::optional<std::string> text_of(std::string_view name) const;
  /// Boolean setting of the configuration.
  [[nodiscard]] std::optional<bool> flag(std::string_view key) const;
  [[nodiscard]] bool lists_added_tokens() const;
};

/// Token in these files: a string, or an object with one; nullopt for anything else.
[[nodiscard]] std::optional<AddedToken> token_of(const nlohmann::json& entry, bool special);

/// Reads both files; empty settings if neither exists. Errors (user, names the file): not a JSON
/// object; an unsupported setting.
[[nodiscard]] Result<TokenizerSettings> read_tokenizer_settings(
    const std::filesystem::path& folder);

}  // namespace train::data
