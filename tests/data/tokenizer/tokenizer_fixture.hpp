#pragma once

#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/formats/tokenizer_json.hpp"
#include "data/tokenizer/text_encoder.hpp"
#include "data/tokenizer/tokenizer.hpp"
#include "tests/storage/number_list.hpp"

namespace train::test {

using Ids = std::vector<std::uint32_t>;

/// What tests/reference/texts/make_tokenizer_fixtures.py made: tokenizers, texts and the
/// reference's ids.
inline const nlohmann::json& tokenizer_fixtures() {
  static const nlohmann::json fixtures = read_fixture("tokenizers.json");
  return fixtures;
}

/// The id of a token as the file writes it; none: there is no such token.
inline std::optional<std::uint32_t> id_of(const data::Tokenizer& tokenizer,
                                          std::string_view token) {
  for (std::uint32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.token_text(id) == token) {
      return id;
    }
  }
  return std::nullopt;
}

inline data::Tokenizer tokenizer_of(const nlohmann::json& file) {
  auto parts = data::read_tokenizer_json(file.dump());
  REQUIRE(parts.ok());
  return data::Tokenizer(std::make_shared<const data::TokenizerParts>(std::move(parts).value()));
}

inline nlohmann::json fixture_file(std::string_view name) {
  for (const auto& one : tokenizer_fixtures()) {
    if (one.at("name") == name) {
      return one.at("file");
    }
  }
  FAIL("no fixture " << name);
  return {};
}

inline Ids encoded(const data::Tokenizer& tokenizer, std::string_view text, bool special = false) {
  auto ids = tokenizer.encode(text, special);
  REQUIRE(ids.ok());
  return std::move(ids).value();
}

}  // namespace train::test
