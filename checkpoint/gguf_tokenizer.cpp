#include "checkpoint/gguf_tokenizer.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace train::checkpoint {
namespace {

using Json = nlohmann::ordered_json;
using Texts = std::vector<std::string>;

constexpr std::int64_t control_token = 3;
constexpr std::int64_t user_defined_token = 4;

Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

/// A pattern, each match of which is a word, and bytes.
Json split_by(const char* pattern) {
  return {{"type", "Sequence"},
          {"pretokenizers",
           {{{"type", "Split"},
             {"pattern", {{"Regex", pattern}}},
             {"behavior", "Isolated"},
             {"invert", false}},
            byte_level(false)}}};
}

/// How texts are split before pairs are merged; null where it is not known.
Json pre_tokenizer_of(const std::string& name) {
  if (name == "gpt-2" || name == "default" || name.empty()) {
    return byte_level(true);
  }
  if (name == "smollm") {
    return {
        {"type", "Sequence"},
        {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}}, byte_level(true)}}};
  }
  if (name == "llama-bpe") {
    return split_by(
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
        "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+");
  }
  if (name == "qwen2") {
    return split_by(
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
        "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+");
  }
  return nullptr;
}

/// Tokens that no merge makes: control tokens are special.
Json added_tokens(const Texts& tokens, const std::vector<std::int64_t>& types) {
  Json added = Json::array();
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    if (types[id] == control_token || types[id] == user_defined_token) {
      added.push_back({{"id", id},
                       {"content", tokens[id]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", types[id] == control_token}});
    }
  }
  return added;
}

/// BOS before every text, where the file wants it.
Json post_processor_of(const storage::GgufFile& file, const Texts& tokens) {
  const auto* wanted = file.value_of<bool>("tokenizer.ggml.add_bos_token");
  const auto id = file.count_of("tokenizer.ggml.bos_token_id");
  if (wanted == nullptr || !*wanted || !id || *id >= tokens.size()) {
    return nullptr;
  }
  const std::string& bos = tokens[*id];
  return {{"type", "TemplateProcessing"},
          {"single",
           {{{"SpecialToken", {{"id", bos}, {"type_id", 0}}}},
            {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
          {"pair", Json::array()},
          {"special_tokens", {{bos, {{"id", bos}, {"ids", {*id}}, {"tokens", {bos}}}}}}};
}

Json config_of(const storage::GgufFile& file, const Texts& tokens) {
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}};
  for (const auto& [key, of] : {std::pair("bos_token", "tokenizer.ggml.bos_token_id"),
                                std::pair("eos_token", "tokenizer.ggml.eos_token_id"),
                                std::pair("unk_token", "tokenizer.ggml.unknown_token_id"),
                                std::pair("pad_token", "tokenizer.ggml.padding_token_id")}) {
    if (const auto id = file.count_of(of); id && *id < tokens.size()) {
      config[key] = tokens[*id];
    }
  }
  return config;
}

}  // namespace

Result<std::map<std::string, std::string>> gguf_tokenizer_files(const storage::GgufFile& file) {
  const auto* model = file.value_of<std::string>("tokenizer.ggml.model");
  const auto* pre = file.value_of<std::string>("tokenizer.ggml.pre");
  const Json splitting = pre_tokenizer_of(pre == nullptr ? "" : *pre);
  if (model == nullptr || *model != "gpt2" || splitting.is_null()) {
    return std::map<std::string, std::string>();
  }
  const auto* tokens = file.value_of<Texts>("tokenizer.ggml.tokens");
  const auto* merges = file.value_of<Texts>("tokenizer.ggml.merges");
  const auto* types = file.value_of<std::vector<std::int64_t>>("tokenizer.ggml.token_type");
  if (tokens == nullptr || merges == nullptr || types == nullptr ||
      types->size() != tokens->size()) {
    return user_error(fmt::format(
        "{}: tokenizer.ggml.tokens, merges and token_type are missing or do not fit each other",
        file.file().path().string()));
  }
  Json vocab = Json::object();
  for (std::size_t id = 0; id < tokens->size(); ++id) {
    vocab.push_back({(*tokens)[id], id});
  }
  const Json json = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added_tokens(*tokens, *types)},
      {"normalizer", pre != nullptr && *pre == "qwen2" ? Json{{"type", "NFC"}} : Json(nullptr)},
      {"pre_tokenizer", splitting},
      {"post_processor", post_processor_of(file, *tokens)},
      {"decoder", byte_level(true)},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", pre != nullptr && *pre == "llama-bpe"},
        {"vocab", std::move(vocab)},
        {"merges", *merges}}}};
  std::map<std::string, std::string> files = {
      {"tokenizer.json", json.dump(-1, ' ', false, Json::error_handler_t::replace)},
      {"tokenizer_config.json",
       config_of(file, *tokens).dump(2, ' ', false, Json::error_handler_t::replace)}};
  if (const auto* chat = file.value_of<std::string>("tokenizer.chat_template")) {
    files.emplace("chat_template.jinja", *chat);
  }
  return files;
}

}  // namespace train::checkpoint
