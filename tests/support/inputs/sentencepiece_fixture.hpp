#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace train::test {

/// Small SentencePiece models with the reference implementation's token ids of texts
/// (tests/reference/texts/make_sentencepiece_fixtures.py).
inline const nlohmann::json& sentencepiece_fixture() {
  static const nlohmann::json fixture = [] {
    std::ifstream file(std::string(ACTORTRAIN_SOURCE_DIR) +
                       "/tests/reference/fixtures/sentencepiece.json");
    return nlohmann::json::parse(file);
  }();
  return fixture;
}

inline std::string from_base64(const std::string& text) {
  const std::string letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  unsigned bits = 0;
  int held = 0;
  for (const char letter : text) {
    if (letter == '=') {
      break;
    }
    bits = (bits << 6U | static_cast<unsigned>(letters.find(letter))) & 0xFFFFFU;
    held += 6;
    if (held >= 8) {
      held -= 8;
      bytes += static_cast<char>(bits >> static_cast<unsigned>(held) & 0xFFU);
    }
  }
  return bytes;
}

/// Bytes of a model.
inline std::string sentencepiece_model(const std::string& name) {
  return from_base64(sentencepiece_fixture().at("models").at(name).at("model"));
}

}  // namespace train::test
