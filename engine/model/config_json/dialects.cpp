#include "engine/model/config_json/dialects.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

namespace train::engine {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::array<std::string_view, 3> kNumberWords = {"-Infinity", "Infinity", "NaN"};

/// Replaces the words outside of strings.
std::string with_numbers_as_objects(const std::string& text) {
  std::string result;
  bool quoted = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto rest = std::string_view(text).substr(at);
    const auto* const word =
        std::find_if(kNumberWords.begin(), kNumberWords.end(),
                     [&](std::string_view each) { return !quoted && rest.starts_with(each); });
    if (word != kNumberWords.end()) {
      result += "{\"__float__\": \"" + std::string(*word) + "\"}";
      at += word->size() - 1;
      continue;
    }
    if (quoted && text[at] == '\\' && at + 1 < text.size()) {
      result += text[at++];
    } else if (text[at] == '"') {
      quoted = !quoted;
    }
    result += text[at];
  }
  return result;
}

/// Moves `from`'s value to `to` where it has one.
void move_key(OrderedJson& config, const char* from, OrderedJson& into, const char* to) {
  if (const auto found = config.find(from); found != config.end()) {
    into[to] = OrderedJson(*found);
    config.erase(from);
  }
}

/// The original program's configuration in transformers' keys. What has no such
/// key stays, under "ssm_cfg." if it was there.
OrderedJson from_original(OrderedJson config) {
  OrderedJson mixer = config.at("ssm_cfg");
  config.erase("ssm_cfg");
  const OrderedJson layer = mixer.value("layer", OrderedJson("Mamba1"));
  const bool second = layer == "Mamba2";
  if (second || layer == "Mamba1") {
    mixer.erase("layer");
  }
  // Its own defaults, where they are not transformers'.
  OrderedJson made = {{"model_type", second ? "mamba2" : "mamba"},
                      {"hidden_size", 2560},
                      {"num_hidden_layers", 64}};
  if (!config.contains("vocab_size")) {
    config["vocab_size"] = 50277;
  }
  move_key(config, "d_model", made, "hidden_size");
  move_key(config, "n_layer", made, "num_hidden_layers");
  made["tie_word_embeddings"] = true;
  move_key(config, "tie_embeddings", made, "tie_word_embeddings");
  const OrderedJson multiple = config.value("pad_vocab_size_multiple", OrderedJson(8));
  const auto vocab = config.find("vocab_size");
  if (vocab != config.end() && vocab->is_number_integer() && multiple.is_number_integer() &&
      multiple > 0) {
    const auto by = multiple.get<std::int64_t>();
    *vocab = (vocab->get<std::int64_t>() + by - 1) / by * by;
  }
  if (second) {
    made.update({{"state_size", 128}, {"head_dim", 64}, {"n_groups", 1}});
  }
  for (const auto& [from, to] :
       {std::pair("d_state", "state_size"), std::pair("d_conv", "conv_kernel"),
        std::pair("expand", "expand"), std::pair("dt_rank", "time_step_rank"),
        std::pair("dt_min", "time_step_min"), std::pair("dt_max", "time_step_max"),
        std::pair("dt_init", "time_step_init_scheme"), std::pair("dt_scale", "time_step_scale"),
        std::pair("dt_init_floor", "time_step_floor"), std::pair("dt_limit", "time_step_limit"),
        std::pair("bias", "use_bias"), std::pair("conv_bias", "use_conv_bias"),
        std::pair("headdim", "head_dim"), std::pair("ngroups", "n_groups"),
        std::pair("chunk_size", "chunk_size")}) {
    move_key(mixer, from, made, to);
  }
  if (second && made.contains("hidden_size") && made["hidden_size"].is_number_integer() &&
      made["head_dim"].is_number_integer() && made["head_dim"] > 0) {
    const auto expand = made.value("expand", OrderedJson(2));
    if (expand.is_number_integer()) {
      made["num_heads"] = expand.get<std::int64_t>() * made["hidden_size"].get<std::int64_t>() /
                          made["head_dim"].get<std::int64_t>();
    }
  }
  for (const auto& [key, value] : mixer.items()) {
    made["ssm_cfg." + key] = value;
  }
  made.update(config);
  return made;
}

}  // namespace

std::string in_known_dialect(const std::string& text) {
  auto json = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  std::string known = text;
  if (json.is_discarded()) {
    known = with_numbers_as_objects(text);
    json = OrderedJson::parse(known, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded()) {
      return text;
    }
  }
  if (json.is_object() && !json.contains("model_type") && json.contains("ssm_cfg") &&
      json.at("ssm_cfg").is_object()) {
    known = from_original(std::move(json)).dump(2);
  }
  return known;
}

}  // namespace train::engine
