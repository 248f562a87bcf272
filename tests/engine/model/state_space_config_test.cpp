// Configurations of state spaces, in transformers' keys and in those of the original program.

#include <catch2/catch.hpp>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/model/architectures/architectures.hpp"
#include "engine/model/blocks/state_space/mamba2_block.hpp"
#include "engine/model/blocks/state_space/mamba_block.hpp"
#include "engine/model/config_json/dialects.hpp"
#include "engine/model/spec.hpp"

namespace train::engine::state_space_config_test {
namespace {

using Json = nlohmann::json;

Json small(const char* family) {
  Json config = {{"model_type", family},   {"vocab_size", 160},        {"hidden_size", 48},
                 {"num_hidden_layers", 2}, {"time_step_rank", "auto"}, {"state_size", 8}};
  if (config["model_type"] == "mamba2") {
    config.update({{"num_heads", 6}, {"head_dim", 16}, {"n_groups", 2}});
  }
  return config;
}

std::string refusal_of(const std::string& text) {
  const auto spec = spec_from_config(text, "c.json", 0);
  if (spec.ok()) {
    return "accepted";
  }
  CHECK(spec.error().kind == ErrorKind::user);
  CHECK(spec.error().message.find('\n') == std::string::npos);
  CHECK(spec.error().message.starts_with("c.json: "));
  return spec.error().message;
}

const Mamba2Spec& mixer_of(const ModelSpec& spec) {
  return block_of<Mamba2Spec>(spec.layers.at(0));
}

}  // namespace

TEST_CASE("state space config: what is not supported is named with a way out",
          "[engine][state_space]") {
  struct Row {
    const char* family;
    Json changes;
    const char* part;
  };
  const std::vector<Row> rows = {
      {"mamba", {{"conv_kernel", 9}}, "9 taps: 1 to 8 are supported"},
      {"mamba", {{"state_size", 129}}, "129 states: 1 to 128 are supported"},
      {"mamba", {{"hidden_act", "gelu"}}, "hidden_act"},
      {"mamba", {{"intermediate_size", 90}}, "intermediate_size (d_inner) is not 96"},
      {"mamba", {{"d_model", 64}}, "d_model is 64, but hidden_size is 48"},
      {"mamba", {{"time_step_rank", 0}}, "time_step_rank is 0"},
      {"mamba", {{"time_step_init_scheme", "zero"}}, "time_step_init_scheme is \"zero\""},
      {"mamba", {{"time_step_min", 0.2}}, "time_step_min 0.2, time_step_max 0.1"},
      {"falcon_mamba", {{"mixer_rms_eps", -1.0}}, "mixer_rms_eps is -1.0"},
      {"mamba2", {{"num_heads", 5}}, "num_heads 5 of head_dim 16 are 80 channels"},
      {"mamba2", {{"n_groups", 4}}, "6 heads do not divide into n_groups 4"},
      {"mamba2", {{"state_size", 257}}, "up to 256 of 256 are supported"},
      {"mamba2", {{"time_step_limit", {0.5, 0.1}}}, "time_step_limit is [0.5,0.1]"},
      {"mamba2", {{"time_step_limit", {0.5}}}, "time_step_limit is [0.5]"},
      {"mamba2", {{"rms_norm", false}}, "rms_norm is false"},
      {"mamba2", {{"norm_before_gate", true}}, "norm_before_gate is true"},
      {"mamba", {{"attn_layer_idx", {1}}}, "attn_layer_idx is [1]"},
      {"mamba",
       {{"model_type", "hymba"}},
       "model_type \"hymba\" is not supported, whose models have attention and a scan side by "
       "side"},
      {"mamba2",
       {{"model_type", "bamba"}},
       "model_type \"bamba\" is not supported, whose models have attention among layers of "
       "Mamba-2"}};
  for (const char* family : {"mamba", "falcon_mamba", "mamba2"}) {
    CHECK(refusal_of(small(family).dump()) == "accepted");
  }
  for (const Row& row : rows) {
    Json config = small(row.family);
    config.update(row.changes);
    const std::string found = refusal_of(config.dump());
    INFO(found);
    CHECK(found.find(row.part) != std::string::npos);
  }
}

TEST_CASE("state space config: limits of steps are read in both ways to write infinity",
          "[engine][state_space]") {
  const auto limits_of = [](const std::string& limit) {
    std::string text = small("mamba2").dump();
    text.insert(1, "\"time_step_limit\": " + limit + ", \"note\": \"Infinity \\\" NaN\", ");
    const auto spec = spec_from_config(text, "c.json", 0);
    INFO((spec.ok() ? "" : spec.error().message));
    REQUIRE(spec.ok());
    return std::pair(mixer_of(*spec).least_step, mixer_of(*spec).most_step);
  };
  constexpr float infinity = std::numeric_limits<float>::infinity();
  CHECK(limits_of("null") == std::pair(0.0F, infinity));
  CHECK(limits_of("[0.0, Infinity]") == std::pair(0.0F, infinity));
  CHECK(limits_of("[0.25, {\"__float__\": \"Infinity\"}]") == std::pair(0.25F, infinity));
  CHECK(limits_of("[0.25, 1.5]") == std::pair(0.25F, 1.5F));
  CHECK(refusal_of("{\"model_type\": Infinite}") ==
        "c.json: not a JSON object; give a model's config.json, or its directory");
}

TEST_CASE("state space config: the original program's keys are transformers'",
          "[engine][state_space]") {
  const Json first = {{"d_model", 768},         {"n_layer", 24},
                      {"vocab_size", 50277},    {"ssm_cfg", Json::object()},
                      {"rms_norm", true},       {"residual_in_fp32", true},
                      {"fused_add_norm", true}, {"pad_vocab_size_multiple", 8}};
  const auto mamba = spec_from_config(first.dump(), "c.json", 0);
  REQUIRE(mamba.ok());
  CHECK(mamba->architecture == "mamba");
  CHECK(count_parameters(*mamba).total == 129'135'360);
  Json second = first;
  second["ssm_cfg"] = {{"layer", "Mamba2"}};
  second["pad_vocab_size_multiple"] = 16;
  second["d_intermediate"] = 0;
  second["attn_layer_idx"] = Json::array();
  second["attn_cfg"] = Json::object();
  second["tie_embeddings"] = true;
  const auto mamba2 = spec_from_config(second.dump(), "c.json", 0);
  INFO((mamba2.ok() ? "" : mamba2.error().message));
  REQUIRE(mamba2.ok());
  CHECK(mamba2->architecture == "mamba2");
  CHECK(count_parameters(*mamba2).total == 128'989'632);
  CHECK(mixer_of(*mamba2).groups == 1);
  CHECK(mamba2->unread_keys.empty());
  second["ssm_cfg"] = {{"layer", "Mamba2"}, {"D_has_hdim", true}};
  CHECK(refusal_of(second.dump()).find("ssm_cfg.D_has_hdim is true") != std::string::npos);
  // Any other text stays.
  CHECK(in_known_dialect("{\"a\": [1,  2]}") == "{\"a\": [1,  2]}");
  CHECK(in_known_dialect("no JSON, Infinity") == "no JSON, Infinity");
}

}  // namespace train::engine::state_space_config_test
