#include "engine/model/architectures/architectures.hpp"

#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "configs/models/shipped_models.hpp"
#include "engine/model/experts/experts_block.hpp"
#include "engine/model/spec.hpp"

namespace train::engine::architectures_test {
namespace {

using Json = nlohmann::json;

Json tiny_llama() {
  return {{"model_type", "llama"},    {"vocab_size", 32},
          {"hidden_size", 16},        {"intermediate_size", 24},
          {"num_hidden_layers", 2},   {"num_attention_heads", 4},
          {"num_key_value_heads", 2}, {"max_position_embeddings", 64}};
}

std::string refusal_of(const Json& config, std::int64_t sequence_length = 0) {
  const auto spec = spec_from_config(config.dump(), "c.json", sequence_length);
  if (spec.ok()) {
    return "accepted";
  }
  CHECK(spec.error().kind == ErrorKind::user);
  CHECK(spec.error().message.find('\n') == std::string::npos);
  CHECK(spec.error().message.starts_with("c.json: "));
  return spec.error().message;
}

/// tiny_llama() with one key changed.
std::string refusal_with(const char* key, const Json& value) {
  Json config = tiny_llama();
  config[key] = value;
  return refusal_of(config);
}

}  // namespace

TEST_CASE("architectures: published sizes have the published number of parameters",
          "[engine][architectures]") {
  // sum(p.numel()) of transformers' classes; of Hymba, which it lacks, of tests/reference's.
  const std::map<std::string_view, std::int64_t> published = {
      {"llama-3.2-1b", 1'235'814'400},    {"llama-3.1-8b", 8'030'261'248},
      {"qwen3-0.6b", 596'049'920},        {"gemma-3-1b", 999'885'952},
      {"phi-4", 14'659'507'200},          {"gemma-3-270m", 268'098'176},
      {"smollm2-135m", 134'515'008},      {"pythia-6.9b", 6'857'302'016},
      {"llama-3.2-3b", 3'212'749'824},    {"smollm2-360m", 361'821'120},
      {"smollm2-1.7b", 1'711'376'384},    {"tinyllama-1.1b", 1'100'048'384},
      {"mistral-7b-v0.3", 7'248'023'552}, {"qwen3-1.7b", 1'720'574'976},
      {"qwen3-4b", 4'022'468'096},        {"qwen3-8b", 8'190'735'360},
      {"qwen2.5-0.5b", 494'032'768},      {"qwen2.5-1.5b", 1'543'714'304},
      {"qwen2.5-7b", 7'615'616'512},      {"gemma-2-2b", 2'614'341'888},
      {"olmo-2-1b", 1'484'916'736},       {"olmo-2-7b", 7'298'617'344},
      {"olmo-3-7b", 7'298'011'136},       {"pythia-70m", 70'426'624},
      {"pythia-160m", 162'322'944},       {"pythia-410m", 405'334'016},
      {"pythia-1.4b", 1'414'647'808},     {"gpt2", 124'439'808},
      {"gpt2-medium", 354'823'168},       {"gpt2-large", 774'030'080},
      {"gpt2-xl", 1'557'611'200},         {"mixtral-8x7b", 46'702'792'704},
      {"olmoe-1b-7b", 6'919'161'856},     {"qwen1.5-moe-a2.7b", 14'315'784'192},
      {"qwen3-30b-a3b", 30'532'122'624},  {"deepseek-v3", 671'026'404'352},
      {"glm-4.5", 352'797'814'784},       {"glm-4.5-air", 106'852'245'504},
      {"mamba-130m", 129'135'360},        {"mamba-2.8b", 2'768'345'600},
      {"falcon-mamba-7b", 7'272'665'088}, {"mamba2-130m", 128'989'632},
      {"mamba2-2.7b", 2'702'599'680},     {"gpt-oss-20b", 20'914'757'184},
      {"gpt-oss-120b", 116'829'156'672},  {"hymba-1.5b", 1'522'797'824}};
  CHECK(configs::shipped_models().size() == published.size());
  for (const configs::ShippedModel& shape : configs::shipped_models()) {
    CAPTURE(shape.name);
    const auto spec = spec_from_config(std::string(shape.config_json), std::string(shape.name), 0);
    REQUIRE(spec.ok());
    REQUIRE(published.contains(shape.name));
    CHECK(count_parameters(*spec).total == published.at(shape.name));
  }
}

TEST_CASE("architectures: every one of the list has a shape or is known by another",
          "[engine][architectures]") {
  for (const ModelArchitecture& architecture : model_architectures()) {
    CAPTURE(architecture.model_type);
    CHECK(find_architecture(architecture.model_type) == &architecture);
    CHECK_FALSE(architecture.class_name.empty());
  }
  CHECK(find_architecture("enoki") == nullptr);
}

TEST_CASE("architectures: what changes the maths and is not supported is named",
          "[engine][architectures]") {
  CHECK(refusal_of(tiny_llama()) == "accepted");
  const auto has = [](const std::string& text, const char* part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  has(refusal_with("model_type", "bloom"), "model_type \"bloom\" is not supported: llama, mistral");
  has(refusal_with("model_type", 3), "model_type is 3: it must be a string");
  has(refusal_with("hidden_act", "tanh"), "hidden_act is \"tanh\"");
  has(refusal_with("is_causal", false), "is_causal is false");
  // It is told by the weights whether they are.
  CHECK(refusal_with("quantization_config", Json::object({{"bits", 4}})) == "accepted");
  has(refusal_with("rope_scaling", Json::object({{"rope_type", "dynamic"}, {"factor", 2}})),
      "rope_type \"dynamic\" is not supported");
  has(refusal_with("rope_scaling", Json::object({{"type", "linear"}, {"rope_type", "su"}})),
      "rope_type \"su\" is not supported");
  has(refusal_with("rope_parameters", Json::object({{"full_attention", Json::object()}})),
      "rope_parameters.full_attention is an object");
  has(refusal_with("rope_scaling", Json::object({{"rope_type", "llama3"}})),
      "factor of the rope's scaling is missing");
  has(refusal_with("num_attention_heads", 0), "num_attention_heads is 0");
  has(refusal_with("num_key_value_heads", 3), "is not a multiple of num_key_value_heads 3");
  has(refusal_with("hidden_size", nullptr), "hidden_size is null");
  has(refusal_with("tie_word_embeddings", "yes"), "tie_word_embeddings is \"yes\"");
  Json gemma = tiny_llama();
  gemma["model_type"] = "gemma3_text";
  gemma["head_dim"] = 8;
  gemma["attn_logit_softcapping"] = 30.0;
  has(refusal_of(gemma), "attn_logit_softcapping is 30.0");
  gemma.erase("attn_logit_softcapping");
  gemma["layer_types"] = {"full_attention"};
  has(refusal_of(gemma), "layer_types must be a list of 2 names");
  CHECK_FALSE(spec_from_config("[1]", "c.json", 0).ok());
  CHECK_FALSE(spec_from_config("{", "c.json", 0).ok());
}

namespace {

struct Row {
  const char* family;
  Json changes;
  const char* part;
};

/// Checks that a tiny model of the family is accepted as it is, and refused with each change.
void check_refused(const std::vector<Row>& rows) {
  for (const Row& row : rows) {
    Json config = tiny_llama();
    config["model_type"] = row.family;
    if (row.family == std::string("deepseek_v3")) {
      config["num_key_value_heads"] = config["num_attention_heads"];
      config["first_k_dense_replace"] = 1;  // A layer of two has experts.
    }
    CHECK(refusal_of(config) == "accepted");
    config.update(row.changes);
    INFO(row.family << ": " << row.changes << ": " << refusal_of(config));
    CHECK(refusal_of(config).find(row.part) != std::string::npos);
  }
}

}  // namespace

TEST_CASE("architectures: what routers and experts cannot do is named", "[engine][architectures]") {
  const std::vector<Row> rows = {
      {"mixtral", {{"router_jitter_noise", 0.1}}, "router_jitter_noise is 0.1"},
      {"mixtral", {{"num_experts_per_tok", 9}}, "num_experts_per_tok is 9 of 8 experts"},
      {"mixtral", {{"num_local_experts", 0}}, "num_local_experts is 0"},
      {"mixtral",
       {{"num_local_experts", 4}, {"num_experts", 6}},
       "num_experts is 6, but num_local_experts is 4"},
      {"mixtral", {{"router_aux_loss_coef", "no"}}, "router_aux_loss_coef is \"no\""},
      {"olmoe", {{"clip_qkv", 0.0}}, "clip_qkv is 0"},
      {"olmoe", {{"clip_qkv", -8.0}}, "clip_qkv is -8"},
      {"olmoe", {{"norm_topk_prob", 1}}, "norm_topk_prob is 1"},
      {"olmoe", {{"capacity_factor", 1.25}}, "capacity_factor is 1.25"},
      {"qwen2_moe", {{"mlp_only_layers", 2}}, "mlp_only_layers is 2"},
      {"qwen2_moe", {{"mlp_only_layers", {-1}}}, "mlp_only_layers is [-1]"},
      {"qwen2_moe", {{"decoder_sparse_step", 0}}, "decoder_sparse_step is 0"},
      {"qwen2_moe",
       {{"use_sliding_window", true}, {"sliding_window", 8}},
       "list them in layer_types"},
      {"qwen3_moe", {{"input_jitter_noise", 0.01}}, "input_jitter_noise is 0.01"},
      {"qwen3_moe", {{"scoring_func", "sigmoid"}}, "scoring_func is \"sigmoid\""},
      {"qwen3_moe", {{"n_group", 4}}, "n_group is 4"},
      {"qwen3_moe", {{"moe_intermediate_size", nullptr}}, "moe_intermediate_size is null"},
      {"deepseek_v3",
       {{"num_key_value_heads", 2}},
       "num_key_value_heads is 2, but must equal the 4 heads"},
      {"deepseek_v3", {{"n_group", 3}}, "n_group"},
      {"deepseek_v3", {{"topk_group", 9}}, "topk_group"},
      {"deepseek_v3", {{"n_group", 256}}, "n_group"},
      {"deepseek_v3", {{"num_experts_per_tok", 129}}, "num_experts_per_tok"},
      {"deepseek_v3", {{"scoring_func", "softmax"}}, "scoring_func is \"softmax\""},
      {"deepseek_v3", {{"topk_method", "greedy"}}, "topk_method is \"greedy\""},
      {"deepseek_v3", {{"moe_layer_freq", 2}}, "moe_layer_freq is not 1"},
      {"deepseek_v3", {{"head_dim", 128}}, "head_dim is 128"},
      {"deepseek_v3",
       {{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}, {"mscale_all_dim", "all"}}}},
       "mscale_all_dim of the rope's scaling is not a number"},
      {"deepseek_v3",
       {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 4.0}, {"mscale_all_dim", 1.0}}}},
       "mscale_all_dim of rope_scaling"},
      {"glm4_moe", {{"num_mtp_layers", 2}, {"num_nextn_predict_layers", 1}}, "num_mtp_layers is 2"},
      {"glm4_moe", {{"num_experts", 4}, {"n_routed_experts", 8}}, "num_experts is 4"},
      {"gpt_oss", {{"output_router_logits", true}}, "without router_aux_loss_coef"},
      {"gpt_oss", {{"sliding_window", nullptr}}, "sliding_attention without a window"}};
  check_refused(rows);
}

TEST_CASE("architectures: sizes of latents, and numbers of layers and experts, that cannot be",
          "[engine][architectures]") {
  check_refused(
      {{"deepseek_v3", {{"q_lora_rank", -1}}, "q_lora_rank is -1"},
       {"deepseek_v3", {{"q_lora_rank", 0}}, "q_lora_rank is 0"},
       {"deepseek_v3", {{"v_head_dim", 0}}, "v_head_dim is 0"},
       {"deepseek_v3", {{"qk_rope_head_dim", 7}}, "over 7 of 7 elements"},
       {"deepseek_v3", {{"kv_lora_rank", 4294967296}}, "parts of 4294967296 elements are too wide"},
       {"deepseek_v3", {{"qk_nope_head_dim", 8589934592}}, "it must be at most 4294967296"},
       {"deepseek_v3", {{"num_nextn_predict_layers", 65537}}, "it must be at most 65536"},
       {"deepseek_v3", {{"n_routed_experts", 131072}}, "n_routed_experts is 131072"},
       {"deepseek_v3",
        {{"n_shared_experts", 65536}, {"moe_intermediate_size", 131072}},
        "n_shared_experts is 65536, of moe_intermediate_size 131072"},
       {"deepseek_v3", {{"routed_scaling_factor", 1e39}}, "routed_scaling_factor is 1e+39"},
       {"deepseek_v3", {{"routed_scaling_factor", -1}}, "routed_scaling_factor is -1"},
       {"glm4_moe",
        {{"num_hidden_layers", 20}, {"n_routed_experts", 65536}},
        "20 layers have 1245184 experts in all"},
       {"llama", {{"num_hidden_layers", 1 << 20}}, "num_hidden_layers is 1048576"}});
}

TEST_CASE("architectures: layers with experts are those that transformers has them in",
          "[engine][architectures]") {
  Json config = tiny_llama();
  config["model_type"] = "qwen3_moe";
  config["num_hidden_layers"] = 6;
  config["decoder_sparse_step"] = 2;
  config["mlp_only_layers"] = {3, 99};
  config["num_local_experts"] = 5;
  config["num_experts_per_tok"] = 2;
  const ModelSpec spec = spec_from_config(config.dump(), "c.json", 0).value();
  std::vector<std::int64_t> indices;
  for (const LayerSpec& layer : spec.layers) {
    const auto* experts = find_block<ExpertsSpec>(layer);
    indices.push_back(experts == nullptr ? -1 : experts->index);
    CHECK((experts == nullptr || (experts->experts == 5 && experts->layers == 2)));
  }
  CHECK(indices == std::vector<std::int64_t>{-1, 0, -1, -1, -1, 1});
}

TEST_CASE("architectures: longrope's factors follow the run's length, learned positions bound it",
          "[engine][architectures]") {
  Json phi = tiny_llama();
  phi["model_type"] = "phi3";
  phi["original_max_position_embeddings"] = 32;
  phi["rope_scaling"] = {
      {"type", "longrope"}, {"short_factor", {1.0, 1.0}}, {"long_factor", {2.0, 2.0}}};
  const auto at = [&](std::int64_t length) {
    return spec_from_config(phi.dump(), "c.json", length).value().ropes.front().frequencies;
  };
  CHECK(at(32).front() == 1.0F);
  CHECK(at(33).front() == 0.5F);
  const Json gpt2 = {{"model_type", "gpt2"}, {"vocab_size", 8}, {"n_positions", 16},
                     {"n_embd", 8},          {"n_layer", 1},    {"n_head", 2}};
  CHECK(refusal_of(gpt2, 16) == "accepted");
  CHECK(refusal_of(gpt2, 17).find("16 learned positions") != std::string::npos);
}

TEST_CASE("architectures: Gemma's factor is that of fp32, whatever the type of the weights",
          "[engine][architectures]") {
  Json gemma = tiny_llama();
  gemma["model_type"] = "gemma3_text";
  gemma["head_dim"] = 8;
  gemma["hidden_size"] = 1152;
  for (const char* dtype : {"float32", "bfloat16", "float16"}) {
    gemma["dtype"] = dtype;
    CHECK(spec_from_config(gemma.dump(), "c.json", 0).value().embedding_scale ==
          Approx(33.941125).epsilon(1e-7));
  }
}

TEST_CASE("architectures: the text half of a model that also sees", "[engine][architectures]") {
  Json half = tiny_llama();
  half["model_type"] = "gemma3_text";
  half["head_dim"] = 8;
  const Json both = {{"model_type", "gemma3"}, {"text_config", half}};
  CHECK(spec_from_config(both.dump(), "c.json", 0).value().architecture == "gemma3_text");
  using Ordered = nlohmann::ordered_json;
  const Ordered whole = {{"model_type", "gemma3"},
                         {"text_config", {{"hidden_size", 48}, {"eos_token_id", 1}}},
                         {"vision_config", {{"hidden_size", 9}}},
                         {"architectures", {"Gemma3ForConditionalGeneration"}},
                         {"eos_token_id", {1, 106}},
                         {"pad_token_id", 0},
                         {"quantization_config", {{"bits", 4}}},
                         {"tie_word_embeddings", false}};
  const Ordered half_of_it = language_model_config(whole);
  CHECK(half_of_it == Ordered({{"hidden_size", 48},
                               {"eos_token_id", 1},
                               {"pad_token_id", 0},
                               {"tie_word_embeddings", false},
                               {"model_type", "gemma3_text"}}));
  CHECK(language_model_config(half_of_it) == half_of_it);
}

TEST_CASE("architectures: FLOPs count windows", "[engine][architectures]") {
  Json config = tiny_llama();
  config["model_type"] = "mistral";
  const auto flops = [&](std::int64_t window) {
    config["sliding_window"] = window;
    return flops_per_token(spec_from_config(config.dump(), "c.json", 0).value(), 64);
  };
  // 2 layers, 4 heads of 4: 12 * 32 for each key that a query sees.
  CHECK(flops(64) - flops(32) == Approx(12.0 * 32.0 * (32.0 - 24.0)));
  CHECK(flops(1000) == flops(64));
}

}  // namespace train::engine::architectures_test
