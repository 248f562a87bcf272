// A published config.json is read as transformers reads it:
// tests/reference/models/make_config_fixtures.py made what is wanted.

#include "engine/model/config_json/config_keys.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/architectures/architectures.hpp"
#include "engine/model/blocks/attention_block.hpp"
#include "engine/model/blocks/latent_attention_block.hpp"
#include "engine/model/blocks/state_space/mamba2_block.hpp"
#include "engine/model/blocks/state_space/mamba_block.hpp"
#include "engine/model/config_json/rope_settings.hpp"
#include "engine/model/spec.hpp"

namespace train::engine::config_keys_test {
namespace {

using Json = nlohmann::json;

constexpr const char* kFixture = ACTORTRAIN_SOURCE_DIR "/tests/reference/fixtures/configs.json";
constexpr const char* kDocument = ACTORTRAIN_SOURCE_DIR "/docs/models.md";

std::string text_of(const char* path) {
  std::ifstream file(path);
  REQUIRE(file);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

const Json& fixture() {
  static const Json read = Json::parse(text_of(kFixture));
  return read;
}

Result<ModelSpec> read(const Json& config) {
  return spec_from_config(config.dump(), "c.json", fixture().at("length"));
}

/// A case's whole config.json.
Json config_of(const Json& base, const Json& entry) {
  Json config = base;
  for (const auto& key : entry.at("drop")) {
    config.erase(key.get<std::string>());
  }
  config.update(entry.at("set"));
  return config;
}

/// Calls `check(config, entry)` for every case of every family.
template <class Check>
void for_each_case(const Check& check) {
  for (const auto& [family, made] : fixture().at("families").items()) {
    for (const auto& [name, entry] : made.at("cases").items()) {
      INFO(family << ": " << name);
      check(config_of(made.at("base"), entry), entry);
    }
  }
}

void check_rope(const RopeSpec& rope, const Json& wanted) {
  if (wanted.is_null()) {
    return;  // of no layer
  }
  CHECK(rope.factor == Approx(wanted.at(1).get<double>()).epsilon(1e-6));
  REQUIRE(rope.frequencies.size() == wanted.at(0).size());
  for (std::size_t i = 0; i < rope.frequencies.size(); ++i) {
    CHECK(rope.frequencies[i] == Approx(wanted.at(0).at(i).get<double>()).epsilon(2e-6));
  }
}

void check_spec(const ModelSpec& spec, const Json& wanted) {
  CHECK(count_parameters(spec).total == wanted.at("parameters").get<std::int64_t>());
  const Json ropes = wanted.value("ropes", Json::array());
  REQUIRE(spec.ropes.size() == ropes.size());
  for (std::size_t i = 0; i < ropes.size(); ++i) {
    check_rope(spec.ropes[i], ropes.at(i));
  }
  for (std::size_t i = 0; i < spec.layers.size(); ++i) {
    const auto* attention = find_block<AttentionSpec>(spec.layers[i]);
    if (find_block<MambaSpec>(spec.layers[i]) != nullptr ||
        find_block<Mamba2Spec>(spec.layers[i]) != nullptr) {
      continue;
    }
    if (attention == nullptr) {
      CHECK(block_of<LatentAttentionSpec>(spec.layers[i]).rope == 0U);
      CHECK(wanted.at("windows").at(i) == 0);
      continue;
    }
    CHECK(attention->window == wanted.at("windows").at(i).get<std::int64_t>());
    CHECK(attention->rope.value_or(0) ==
          (ropes.size() == 2 && wanted.at("windows").at(i) != 0 ? 1U : 0U));
  }
}

/// `config` with its ropes said by `keys` instead.
Json with_ropes(Json config, const Json& keys) {
  for (const std::string& key : all_rope_keys()) {
    config.erase(key);
  }
  config.update(keys);
  return config;
}

void check_same_ropes(const ModelSpec& spec, const Json& config) {
  const auto again = read(config);
  REQUIRE(again.ok());
  REQUIRE(again->ropes.size() == spec.ropes.size());
  for (std::size_t i = 0; i < spec.ropes.size(); ++i) {
    CHECK(again->ropes[i].frequencies == spec.ropes[i].frequencies);
    CHECK(again->ropes[i].factor == spec.ropes[i].factor);
  }
}

/// A configuration of an architecture in which every key of it matters.
Json config_with_all(const ModelArchitecture& architecture) {
  Json config = {{"model_type", std::string(architecture.model_type)}};
  const Json keys = Json::parse(architecture.keys());
  if (keys.contains("use_sliding_window")) {
    config["use_sliding_window"] = true;
  }
  if (architecture.model_type == "qwen2_moe") {
    config["layer_types"] = std::vector<std::string>(24, "full_attention");
  }
  if (architecture.model_type == "glm4_moe") {
    config["head_dim"] = 128;  // That of its class is odd in half.
  }
  if (architecture.model_type == "hymba") {  // Its files give all sizes.
    config.update(Json::parse(R"({"vocab_size": 160, "hidden_size": 50, "intermediate_size": 40,
      "num_hidden_layers": 4, "num_attention_heads": 5, "num_key_value_heads": 1,
      "max_position_embeddings": 128, "orig_max_position_embeddings": 32, "rope_type": "ntk",
      "tie_word_embeddings": true})"));
  }
  Json scaling = {{"rope_type", "yarn"}, {"factor", 2.0}};
  if (architecture.model_type == "phi3") {
    scaling = {{"rope_type", "longrope"},
               {"short_factor", std::vector<double>(48, 1.0)},
               {"long_factor", std::vector<double>(48, 2.0)}};
  }
  if (keys.contains("rope_scaling")) {
    config["rope_scaling"] = scaling;
  }
  return config;
}

/// Maps each key to the values that architectures assume without it, each with its architectures.
using Readers = std::map<std::string, std::vector<std::pair<std::string, std::string>>>;

Readers readers_of_keys() {
  Readers readers;
  for (const ModelArchitecture& architecture : model_architectures()) {
    const Json keys = Json::parse(architecture.keys());
    for (const auto& [key, value] : keys.items()) {
      auto& values = readers[key];
      const auto same =
          std::find_if(values.begin(), values.end(),
                       [&, text = value.dump()](const auto& entry) { return entry.first == text; });
      if (same == values.end()) {
        values.emplace_back(value.dump(), architecture.model_type);
      } else {
        same->second += fmt::format(", {}", architecture.model_type);
      }
    }
  }
  return readers;
}

std::string names_of(const ConfigKeys& keys) {
  std::string names = fmt::format("`{}`", keys.names);
  for (std::size_t at = 0; (at = names.find(' ', at)) != std::string::npos; at += 4) {
    names.replace(at, 1, "`, `");
  }
  return names;
}

/// The table of docs/models.md: what every architecture reads, with the value that it takes where
/// the file has none, and what becomes of the other keys. Ends with a line break.
std::string keys_in_markdown() {
  std::string text =
      "Read, and the value where a file has none:\n\n| key | without it |\n|---|---|\n";
  for (const auto& [key, values] : readers_of_keys()) {
    text += fmt::format("| `{}` |", key);
    for (const auto& [value, families] : values) {
      text += fmt::format("{} {}: {}", &value == &values.front().first ? "" : ";",
                          value == "null" ? "none" : fmt::format("`{}`", value), families);
    }
    text += " |\n";
  }
  text +=
      "\nRefused, but for the harmless value and null, where an architecture does not read it:\n\n"
      "| key | harmless | why |\n|---|---|---|\n";
  for (const ConfigKeys& keys : config_keys()) {
    if (keys.use == KeyUse::refused) {
      text += fmt::format("| {} | `{}` | {} |\n", names_of(keys), keys.neutral, keys.why);
    } else if (keys.use == KeyUse::dropout) {
      text += fmt::format("\nDropout, which a run says it trains without: {}.\n", names_of(keys));
      text += "\nWithout effect:\n\n| what | keys |\n|---|---|\n";
    } else {
      text += fmt::format("| {} | {} |\n", keys.why, names_of(keys));
    }
  }
  return text;
}

}  // namespace

TEST_CASE("config_keys: every key of transformers' classes is read with its default, or known",
          "[engine][config_keys]") {
  for (const auto& [family, fields] : fixture().at("fields").items()) {
    const ModelArchitecture* architecture = find_architecture(family);
    REQUIRE(architecture != nullptr);
    const Json keys = Json::parse(architecture->keys());
    for (const auto& [field, otherwise] : fields.items()) {
      INFO(family << " " << field);
      if (keys.contains(field)) {
        CHECK(keys.at(field) == otherwise);
      } else {
        CHECK(find_config_key(field) != nullptr);
      }
    }
  }
}

TEST_CASE("config_keys: every key of an architecture has a part in it", "[engine][config_keys]") {
  for (const ModelArchitecture& architecture : model_architectures()) {
    const Json config = config_with_all(architecture);
    REQUIRE(read(config).ok());
    const Json keys = Json::parse(architecture.keys());
    for (const auto& [key, otherwise] : keys.items()) {
      INFO(architecture.model_type << " " << key);
      Json wrong = config;
      wrong[key] = Json::array({"?"});
      const auto spec = read(wrong);
      CHECK((!spec.ok() || !spec->unread_keys.empty()));
    }
  }
}

TEST_CASE("config_keys: configurations of every family are read as transformers reads them",
          "[engine][config_keys]") {
  std::size_t compared = 0;
  for_each_case([&](const Json& config, const Json& entry) {
    const auto spec = read(config);
    if (entry.at("refused").get<bool>()) {
      CHECK_FALSE(spec.ok());
    } else if (entry.contains("wanted")) {
      INFO((spec.ok() ? "" : spec.error().message));
      REQUIRE(spec.ok());
      check_spec(*spec, entry.at("wanted"));
      ++compared;
    }
  });
  CHECK(compared > 500);
}

TEST_CASE("config_keys: the ropes that are written are those that were read, in either dialect",
          "[engine][config_keys]") {
  std::size_t old_dialects = 0;
  for_each_case([&](const Json& config, const Json& entry) {
    const auto spec = read(config);
    if (!spec.ok() || spec->rope_keys.empty()) {
      return;
    }
    const Json keys = Json::parse(spec->rope_keys);
    check_same_ropes(*spec, with_ropes(config, keys));
    check_same_ropes(*spec, with_ropes(config, {{"rope_parameters", keys.at("rope_parameters")}}));
    // Without a scaling GPT-OSS has that of its class: only rope_parameters can say that there is
    // none.
    const bool is_said = config.at("model_type") != "gpt_oss" || keys.contains("rope_scaling");
    if (keys.size() > 1 && is_said) {
      Json old = keys;
      old.erase("rope_parameters");
      check_same_ropes(*spec, with_ropes(config, old));
      ++old_dialects;
    }
    CHECK(entry.is_object());
  });
  CHECK(old_dialects > 400);
}

TEST_CASE("config_keys: what nobody reads is named, and dropout is no refusal",
          "[engine][config_keys]") {
  const auto spec = read({{"model_type", "gpt2"},
                          {"attn_pdrop", 0.1},
                          {"embd_pdrop", 0},
                          {"summary_first_dropout", 0.1},
                          {"classifier_dropout", 0.1},
                          {"logit_scale", 0.5},
                          {"clip_qkv", nullptr}});
  REQUIRE(spec.ok());
  CHECK(spec->unread_keys == std::vector<std::string>{"logit_scale"});
  CHECK(spec->dropout == std::vector<std::string>{"attn_pdrop 0.1"});
  const auto share = read({{"model_type", "llama"}, {"partial_rotary_factor", 0.5}});
  REQUIRE(share.ok());
  REQUIRE(share->unread_keys.size() == 1);
  CHECK(share->unread_keys.front().starts_with("partial_rotary_factor"));
  const auto second =
      read({{"model_type", "llama"},
            {"rope_theta", 5000.0},
            {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 7000.0}}}});
  REQUIRE(second.ok());
  CHECK(second->unread_keys ==
        std::vector<std::string>{"rope_theta 5000.0 (rope_parameters.rope_theta is 7000.0)"});
}

TEST_CASE("config_keys: a cap of 0, by which transformers divides, is refused",
          "[engine][config_keys]") {
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    CAPTURE(key);
    const auto none = read({{"model_type", "gemma2"}, {key, nullptr}});
    CHECK(none.ok());
    const auto zero = read({{"model_type", "gemma2"}, {key, 0.0}});
    REQUIRE_FALSE(zero.ok());
    CHECK_THAT(zero.error().message,
               Catch::Contains(fmt::format("{} is 0", key)) && Catch::Contains("set it to null"));
  }
}

TEST_CASE("config_keys: the table of docs/models.md is the code's", "[engine][config_keys]") {
  INFO("`./dev docs` renews the table");
  CHECK(text_of(kDocument).ends_with(keys_in_markdown()));
}

TEST_CASE("config_keys: the table of docs/models.md is written anew", "[.write]") {
  const std::string table = keys_in_markdown();
  const std::string before = text_of(kDocument);
  const std::size_t begin = before.find(table.substr(0, table.find('\n')));
  REQUIRE(begin != std::string::npos);
  std::ofstream file(kDocument);
  file << before.substr(0, begin) << table;
  REQUIRE(file.flush());
}

}  // namespace train::engine::config_keys_test
