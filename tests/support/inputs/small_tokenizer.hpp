#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace train::test {

/// Character that represents a byte in vocabularies of byte-level tokenizers.
inline std::string byte_letter(int byte) {
  int others = 0;
  for (int i = 0; i < byte; ++i) {
    others += (i >= 33 && i <= 126) || (i >= 161 && i <= 172) || i >= 174 ? 0 : 1;
  }
  const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  const int point = itself ? byte : 256 + others;
  if (point < 0x80) {
    return std::string(1, static_cast<char>(point));
  }
  return {static_cast<char>(0xC0 | (point >> 6)), static_cast<char>(0x80 | (point & 0x3F))};
}

/// Text of a tokenizer.json: bytes, some pairs of letters, and <|endoftext|> as id 264.
inline std::string small_tokenizer_json() {
  nlohmann::ordered_json vocab;
  int next = 0;
  for (int byte = 0; byte < 256; ++byte) {
    vocab[byte_letter(byte)] = next++;
  }
  const std::string space = byte_letter(' ');
  const std::vector<std::pair<std::string, std::string>> pairs = {
      {"t", "h"}, {"th", "e"},  {space, "the"}, {"e", "r"},
      {"i", "n"}, {space, "a"}, {"o", "u"},     {"ou", "r"}};
  nlohmann::ordered_json merges = nlohmann::ordered_json::array();
  for (const auto& [left, right] : pairs) {
    vocab[left + right] = next++;
    merges.push_back(left + " " + right);
  }
  const nlohmann::ordered_json byte_level = {{"type", "ByteLevel"},
                                             {"add_prefix_space", false},
                                             {"trim_offsets", true},
                                             {"use_regex", true}};
  const nlohmann::ordered_json json = {{"version", "1.0"},
                                       {"truncation", nullptr},
                                       {"padding", nullptr},
                                       {"added_tokens",
                                        {{{"id", next},
                                          {"content", "<|endoftext|>"},
                                          {"single_word", false},
                                          {"lstrip", false},
                                          {"rstrip", false},
                                          {"normalized", false},
                                          {"special", true}}}},
                                       {"normalizer", nullptr},
                                       {"pre_tokenizer", byte_level},
                                       {"post_processor", nullptr},
                                       {"decoder", byte_level},
                                       {"model",
                                        {{"type", "BPE"},
                                         {"dropout", nullptr},
                                         {"unk_token", nullptr},
                                         {"continuing_subword_prefix", nullptr},
                                         {"end_of_word_suffix", nullptr},
                                         {"fuse_unk", false},
                                         {"byte_fallback", false},
                                         {"vocab", vocab},
                                         {"merges", merges}}}};
  return json.dump();
}

}  // namespace train::test
