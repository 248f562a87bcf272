#include "engine/model/config_json/config_keys.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "engine/model/architectures/architectures.hpp"

namespace train::engine {
namespace {

constexpr std::string_view kCausal =
    "attention is causal here; set it back, or train the model with a program for encoders";
constexpr std::string_view kAbout = "says what the file is";
constexpr std::string_view kTokens = "ids of tokens, which the tokenizer and `generate` use";
constexpr std::string_view kFresh = "initial weights of a fresh model, which are this engine's own";
constexpr std::string_view kCalls = "how transformers runs the model and what it returns";
constexpr std::string_view kHeads = "heads that are no language model's";
constexpr std::string_view kSampling = "how transformers samples";
constexpr std::string_view kParts = "parts of a model that also sees or hears";

constexpr auto kKeys = std::to_array<ConfigKey>({
    {"is_causal", KeyUse::refused, "true", kCausal},
    {"use_bidirectional_attention", KeyUse::refused, "false", kCausal},
    {"add_cross_attention", KeyUse::refused, "false", "a layer reads its own text alone"},
    {"attn_logit_softcapping", KeyUse::refused, "null",
     "scores of this family have no cap, in transformers neither; set it to null"},
    {"per_layer_config", KeyUse::refused, "{}", "layers have one configuration here"},
    {"pruned_heads", KeyUse::refused, "{}", "layers have all their heads here"},
    {"compression_config", KeyUse::refused, "null",
     "give the weights as they were before they were compressed"},

    {"attention_dropout", KeyUse::dropout},
    {"attn_pdrop", KeyUse::dropout},
    {"resid_pdrop", KeyUse::dropout},
    {"embd_pdrop", KeyUse::dropout},
    {"hidden_dropout", KeyUse::dropout},

    {"_name_or_path", KeyUse::no_effect, {}, kAbout},
    {"architectures", KeyUse::no_effect, {}, kAbout},
    {"auto_map", KeyUse::no_effect, {}, kAbout},
    {"dtype", KeyUse::no_effect, {}, kAbout},
    {"finetuning_task", KeyUse::no_effect, {}, kAbout},
    {"model_type", KeyUse::no_effect, {}, kAbout},
    {"name_or_path", KeyUse::no_effect, {}, kAbout},
    {"tokenizer_class", KeyUse::no_effect, {}, kAbout},
    // Weights that are quantised are refused where they are read; full ones may lie beside it.
    {"quantization_config", KeyUse::no_effect, {}, kAbout},
    {"torch_dtype", KeyUse::no_effect, {}, kAbout},
    {"transformers_version", KeyUse::no_effect, {}, kAbout},

    {"begin_suppress_tokens", KeyUse::no_effect, {}, kTokens},
    {"bos_token_id", KeyUse::no_effect, {}, kTokens},
    {"cls_token_id", KeyUse::no_effect, {}, kTokens},
    {"decoder_start_token_id", KeyUse::no_effect, {}, kTokens},
    {"eos_token_id", KeyUse::no_effect, {}, kTokens},
    {"pad_token_id", KeyUse::no_effect, {}, kTokens},
    {"sep_token_id", KeyUse::no_effect, {}, kTokens},

    {"embedding_initializer_range", KeyUse::no_effect, {}, kFresh},
    {"initializer_range", KeyUse::no_effect, {}, kFresh},

    {"_attn_implementation", KeyUse::no_effect, {}, kCalls},
    {"_attn_implementation_autoset", KeyUse::no_effect, {}, kCalls},
    {"_sliding_window_pattern", KeyUse::no_effect, {}, kCalls},
    {"attn_implementation", KeyUse::no_effect, {}, kCalls},
    {"cache_implementation", KeyUse::no_effect, {}, kCalls},
    {"chunk_size_feed_forward", KeyUse::no_effect, {}, kCalls},
    {"gradient_checkpointing", KeyUse::no_effect, {}, kCalls},
    {"is_decoder", KeyUse::no_effect, {}, kCalls},
    {"is_encoder_decoder", KeyUse::no_effect, {}, kCalls},
    {"n_ctx", KeyUse::no_effect, {}, kCalls},
    {"output_attentions", KeyUse::no_effect, {}, kCalls},
    {"output_hidden_states", KeyUse::no_effect, {}, kCalls},
    {"output_past", KeyUse::no_effect, {}, kCalls},
    {"pretraining_tp", KeyUse::no_effect, {}, kCalls},
    {"reorder_and_upcast_attn", KeyUse::no_effect, {}, kCalls},
    {"return_dict", KeyUse::no_effect, {}, kCalls},
    {"tie_encoder_decoder", KeyUse::no_effect, {}, kCalls},
    {"tie_last_hidden_states", KeyUse::no_effect, {}, kCalls},
    {"torchscript", KeyUse::no_effect, {}, kCalls},
    {"use_bfloat16", KeyUse::no_effect, {}, kCalls},
    {"use_cache", KeyUse::no_effect, {}, kCalls},

    {"classifier_dropout", KeyUse::no_effect, {}, kHeads},
    {"id2label", KeyUse::no_effect, {}, kHeads},
    {"label2id", KeyUse::no_effect, {}, kHeads},
    {"num_labels", KeyUse::no_effect, {}, kHeads},
    {"problem_type", KeyUse::no_effect, {}, kHeads},
    {"summary_activation", KeyUse::no_effect, {}, kHeads},
    {"summary_first_dropout", KeyUse::no_effect, {}, kHeads},
    {"summary_proj_to_labels", KeyUse::no_effect, {}, kHeads},
    {"summary_type", KeyUse::no_effect, {}, kHeads},
    {"summary_use_proj", KeyUse::no_effect, {}, kHeads},

    {"bad_words_ids", KeyUse::no_effect, {}, kSampling},
    {"diversity_penalty", KeyUse::no_effect, {}, kSampling},
    {"do_sample", KeyUse::no_effect, {}, kSampling},
    {"early_stopping", KeyUse::no_effect, {}, kSampling},
    {"encoder_no_repeat_ngram_size", KeyUse::no_effect, {}, kSampling},
    {"exponential_decay_length_penalty", KeyUse::no_effect, {}, kSampling},
    {"forced_bos_token_id", KeyUse::no_effect, {}, kSampling},
    {"forced_eos_token_id", KeyUse::no_effect, {}, kSampling},
    {"length_penalty", KeyUse::no_effect, {}, kSampling},
    {"max_length", KeyUse::no_effect, {}, kSampling},
    {"min_length", KeyUse::no_effect, {}, kSampling},
    {"no_repeat_ngram_size", KeyUse::no_effect, {}, kSampling},
    {"num_beam_groups", KeyUse::no_effect, {}, kSampling},
    {"num_beams", KeyUse::no_effect, {}, kSampling},
    {"num_return_sequences", KeyUse::no_effect, {}, kSampling},
    {"output_scores", KeyUse::no_effect, {}, kSampling},
    {"prefix", KeyUse::no_effect, {}, kSampling},
    {"remove_invalid_values", KeyUse::no_effect, {}, kSampling},
    {"repetition_penalty", KeyUse::no_effect, {}, kSampling},
    {"return_dict_in_generate", KeyUse::no_effect, {}, kSampling},
    {"suppress_tokens", KeyUse::no_effect, {}, kSampling},
    {"task_specific_params", KeyUse::no_effect, {}, kSampling},
    {"temperature", KeyUse::no_effect, {}, kSampling},
    {"top_k", KeyUse::no_effect, {}, kSampling},
    {"top_p", KeyUse::no_effect, {}, kSampling},
    {"typical_p", KeyUse::no_effect, {}, kSampling},

    {"audio_config", KeyUse::no_effect, {}, kParts},
    {"audio_token_id", KeyUse::no_effect, {}, kParts},
    {"boi_token_index", KeyUse::no_effect, {}, kParts},
    {"eoi_token_index", KeyUse::no_effect, {}, kParts},
    {"image_token_id", KeyUse::no_effect, {}, kParts},
    {"image_token_index", KeyUse::no_effect, {}, kParts},
    {"mm_tokens_per_image", KeyUse::no_effect, {}, kParts},
    {"multimodal_projector_bias", KeyUse::no_effect, {}, kParts},
    {"projector_hidden_act", KeyUse::no_effect, {}, kParts},
    {"spatial_merge_size", KeyUse::no_effect, {}, kParts},
    {"vision_config", KeyUse::no_effect, {}, kParts},
    {"vision_feature_layer", KeyUse::no_effect, {}, kParts},
    {"vision_feature_select_strategy", KeyUse::no_effect, {}, kParts},
});

/// Maps each key to the values that architectures assume without it, each with its architectures.
using Readers = std::map<std::string, std::vector<std::pair<std::string, std::string>>>;

void add_reader(Readers& readers, const std::string& key, const std::string& value,
                std::string_view model_type) {
  auto& values = readers[key];
  const auto same = std::find_if(values.begin(), values.end(),
                                 [&](const auto& entry) { return entry.first == value; });
  if (same == values.end()) {
    values.emplace_back(value, model_type);
  } else {
    same->second += fmt::format(", {}", model_type);
  }
}

std::string describe_read_keys() {
  Readers readers;
  for (const ModelArchitecture& architecture : model_architectures()) {
    const auto keys = nlohmann::json::parse(architecture.keys());
    for (const auto& [key, value] : keys.items()) {
      add_reader(readers, key, value.dump(), architecture.model_type);
    }
  }
  std::string text = "| key | without it |\n|---|---|\n";
  for (const auto& [key, values] : readers) {
    text += fmt::format("| `{}` |", key);
    for (const auto& [value, families] : values) {
      text += fmt::format("{} {}: {}", &value == &values.front().first ? "" : ";",
                          value == "null" ? "none" : fmt::format("`{}`", value), families);
    }
    text += " |\n";
  }
  return text;
}

std::string describe_refused_keys() {
  std::string text = "| key | harmless | why |\n|---|---|---|\n";
  for (const ConfigKey& key : kKeys) {
    if (key.use == KeyUse::refused) {
      text += fmt::format("| `{}` | `{}` | {} |\n", key.name, key.neutral, key.why);
    }
  }
  return text;
}

std::string names_of(KeyUse use, std::string_view why) {
  std::string names;
  for (const ConfigKey& key : kKeys) {
    if (key.use == use && key.why == why) {
      names += fmt::format("{}`{}`", names.empty() ? "" : ", ", key.name);
    }
  }
  return names;
}

}  // namespace

std::span<const ConfigKey> config_keys() { return kKeys; }

const ConfigKey* find_config_key(std::string_view name) {
  const auto found = std::find_if(kKeys.begin(), kKeys.end(),
                                  [&](const ConfigKey& key) { return key.name == name; });
  return found == kKeys.end() ? nullptr : &*found;
}

std::string describe_config_keys_markdown() {
  std::string text = "Read, and the value where a file has none:\n\n" + describe_read_keys();
  text +=
      "\nRefused, but for the harmless value and null, where an architecture does not read it:\n\n";
  text += describe_refused_keys();
  text += fmt::format("\nDropout, which a run says it trains without: {}.\n",
                      names_of(KeyUse::dropout, {}));
  text += "\nWithout effect:\n\n| what | keys |\n|---|---|\n";
  for (const std::string_view why : {kAbout, kTokens, kFresh, kCalls, kHeads, kSampling, kParts}) {
    text += fmt::format("| {} | {} |\n", why, names_of(KeyUse::no_effect, why));
  }
  return text;
}

}  // namespace train::engine
