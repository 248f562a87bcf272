#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/models/export.hpp"
#include "checkpoint/models/gguf_format.hpp"
#include "checkpoint/models/gguf_model.hpp"
#include "cli/checkpoints/gguf_metadata.hpp"
#include "engine/model/architectures/architectures.hpp"
#include "engine/model/blocks/attention_block.hpp"
#include "engine/model/unit_parameters.hpp"
#include "storage/weight_files/gguf_encoding.hpp"
#include "tests/cli/gguf_cases.hpp"

// Models of tests/reference/fixtures/gguf_models.json, read, written as GGUF, and read again.
namespace train::cli::gguf_export_test {
using namespace checkpoint;
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using test::case_named;
using test::gguf_tensors;
using test::read_case;
using test::read_model;
using test::ReadModel;
using test::TempDirectory;

/// Tensors that a file holds besides weights, or that it holds alone.
class ListSource final : public engine::WeightSource {
 public:
  explicit ListSource(std::vector<float> values = {}) : values_(std::move(values)) {}
  Status read_rows(const engine::Parameter& /*parameter*/, std::int64_t /*first_row*/,
                   std::int64_t /*rows*/, std::span<float> out) const override {
    std::fill(out.begin(), out.end(), 0.0F);
    std::copy_n(values_.begin(), std::min(values_.size(), out.size()), out.begin());
    return {};
  }

 private:
  std::vector<float> values_;
};

/// A request for the model's file in `out`; of a file without layers for what that has.
ExportRequest request_of(const ReadModel& from, const fs::path& out, GgufKind kind, bool whole) {
  const auto config = nlohmann::ordered_json::parse(from.model.config_text());
  auto described = gguf_metadata(from.spec, config);
  INFO((described.ok() ? "" : described.error().message));
  REQUIRE(described.ok());
  ExportRequest request{.directory = out, .tensors = gguf_tensors(from.spec), .config_text = {}};
  if (!whole) {
    std::erase_if(request.tensors, [&](const ExportTensor& tensor) {
      return from.model.file().find(tensor.name) == nullptr;
    });
    for (ExportTensor& tensor : request.tensors) {
      const storage::GgufEntry* entry = from.model.file().find(tensor.name);
      std::vector<float> values(entry->elements_count);
      REQUIRE(from.model.file().read_fp32(*entry, 0, values).ok());
      tensor.parts.clear();
      tensor.source = std::make_shared<ListSource>(std::move(values));
    }
  }
  for (GgufConstant& constant : described->constants) {
    request.tensors.push_back(
        {.name = constant.name, .shape = {static_cast<std::int64_t>(constant.values.size())}});
    request.tensors.back().source = std::make_shared<ListSource>(std::move(constant.values));
  }
  request.format = gguf_format({.kind = kind,
                                .metadata = std::move(described->fields),
                                .layers = static_cast<std::int64_t>(from.spec.layers.size()),
                                .tied = from.spec.tie_embeddings});
  return request;
}

ExportReport write(const ExportRequest& request, const ReadModel& from) {
  auto report = export_tensors(request, from.model);
  INFO((report.ok() ? "" : report.error().message));
  REQUIRE(report.ok());
  return *report;
}

std::string bytes_of(const GgufModel& model, const storage::GgufEntry& entry) {
  std::string bytes(entry.size_bytes, '\0');
  REQUIRE(model.file().file().read(entry.begin, std::as_writable_bytes(std::span(bytes))).ok());
  return bytes;
}

/// Keys of the model that have no value, or another, in the other file. Those of the tokenizer are
/// no part of it; whole heads turn where no number of dimensions is said;
/// yarn_attn_factor is written as attn_factor, which llama.cpp reads.
std::vector<std::string> other_keys(const GgufModel& one, const GgufModel& other) {
  std::vector<std::string> names;
  for (const auto& [key, value] : one.file().metadata()) {
    const auto& all = other.file().metadata();
    const auto found = all.find(key);
    if (!key.starts_with("tokenizer.") && !key.starts_with("general.file_type") &&
        !key.ends_with("rope.dimension_count") && !key.ends_with("yarn_attn_factor") &&
        (found == all.end() || found->second != value)) {
      names.push_back(key);
    }
  }
  return names;
}

void check_same_weights(const ReadModel& one, const ReadModel& other) {
  for (const engine::UnitParameters& unit : engine::describe_units(one.spec)) {
    for (const engine::Parameter& parameter : unit.parameters) {
      INFO(parameter.name);
      std::vector<float> left(static_cast<std::size_t>(parameter.count()));
      std::vector<float> right = left;
      REQUIRE(one.model.read_rows(parameter, 0, parameter.rows(), left).ok());
      REQUIRE(other.model.read_rows(parameter, 0, parameter.rows(), right).ok());
      if (parameter.name.ends_with("A_log")) {  // Files have its exp.
        for (std::size_t i = 0; i < left.size(); ++i) {
          CHECK(std::abs(left[i] - right[i]) < 2e-7F * std::max(1.0F, std::abs(left[i])));
        }
        continue;
      }
      CHECK(test::same_bits(left, right));
    }
  }
}

/// Tensors that both files have, byte for byte; their number. Those in MXFP4 are written in
/// another type.
std::size_t check_same_tensors(const GgufModel& one, const GgufModel& other) {
  std::size_t same = 0;
  for (const storage::GgufEntry& entry : one.file().entries()) {
    const storage::GgufEntry* found = other.file().find(entry.name);
    if (found != nullptr && entry.type.name != "MXFP4") {
      INFO(entry.name);
      // The fixture's gate of a shared expert has one axis; llama.cpp's converter writes both.
      CHECK((found->shape == entry.shape || entry.name.ends_with("ffn_gate_inp_shexp.weight")));
      CHECK(found->type.code == entry.type.code);
      CHECK((bytes_of(one, entry) == bytes_of(other, *found) || entry.name.ends_with("ssm_a")));
      ++same;
    }
  }
  return same;
}

/// The config.json of a file without the ids of its tokenizer, and without what check_same_layers()
/// compares.
Json config_without_ids(const GgufModel& model) {
  Json config = Json::parse(model.config_text());
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id", "layer_types"}) {
    config.erase(key);
  }
  if (config.contains("rope_scaling")) {
    config["rope_scaling"].erase("attention_factor");
  }
  return config;
}

/// Windows of all layers, and factors of all ropes, which a product of rounded factors may change
/// in the last digits.
void check_same_layers(const engine::ModelSpec& one, const engine::ModelSpec& other) {
  REQUIRE(one.layers.size() == other.layers.size());
  for (std::size_t i = 0; i < one.layers.size(); ++i) {
    const auto* attention = engine::find_block<engine::AttentionSpec>(one.layers[i]);
    CHECK(engine::block_sizes(one.layers[i]) == engine::block_sizes(other.layers[i]));
    const auto* found = engine::find_block<engine::AttentionSpec>(other.layers[i]);
    REQUIRE((attention == nullptr) == (found == nullptr));
    CHECK((found == nullptr || attention->window == found->window));
  }
  REQUIRE(one.ropes.size() == other.ropes.size());
  for (std::size_t i = 0; i < one.ropes.size(); ++i) {
    CHECK(one.ropes[i].frequencies == other.ropes[i].frequencies);
    CHECK(one.ropes[i].factor == Approx(other.ropes[i].factor).epsilon(1e-6));
  }
}

/// The cause that gguf_metadata() gives, or "written".
std::string metadata_error(const std::string& config_text) {
  const auto spec = engine::spec_from_config(config_text, "config", 0);
  INFO((spec.ok() ? "" : spec.error().message));
  REQUIRE(spec.ok());
  const auto made = gguf_metadata(*spec, nlohmann::ordered_json::parse(config_text));
  if (made.ok()) {
    return "written";
  }
  CHECK(made.error().kind == ErrorKind::user);
  CHECK(made.error().message.find("--format hf") != std::string::npos);
  return made.error().message;
}

Json config_of(std::string_view name) {
  const TempDirectory directory;
  return Json::parse(read_case(directory, case_named(name)).model.config_text());
}

std::string error_with(std::string_view name, const Json& changes) {
  Json config = config_of(name);
  config.update(changes);
  return metadata_error(config.dump());
}

}  // namespace

TEST_CASE("gguf export: a file that is read and written again says the same model",
          "[cli][gguf_export]") {
  std::size_t whole_count = 0;
  const Json fixture = test::read_fixture("gguf_models.json");
  for (const Json& entry : fixture.at("cases")) {
    const auto name = entry.at("name").get<std::string>();
    if (name == "neox_linear") {  // Its file has no layers, whose biases llama.cpp asks for.
      continue;
    }
    INFO(name);
    const TempDirectory directory;
    const bool whole = entry.contains("weights");
    const ReadModel from = read_case(directory, entry);
    const auto request = request_of(from, directory / "out", GgufKind::f32, whole);
    CHECK(write(request, from).files == std::vector<std::string>{"model.gguf"});
    const ReadModel again = read_model(directory / "out/model.gguf", whole);
    check_same_layers(again.spec, from.spec);
    CHECK(config_without_ids(again.model) == config_without_ids(from.model));
    const bool older = name == "deepseek3_joined";  // Written as newer files are.
    const bool further = name == "glm4_moe";        // Has a layer more, which is not read.
    CHECK((older || further || other_keys(from.model, again.model).empty()));
    if (whole) {
      check_same_weights(from, again);
      const std::size_t same = check_same_tensors(from.model, again.model);
      // One file of these has a tensor of its own for each expert, and another MXFP4.
      CHECK((same == from.model.file().entries().size() || older || further ||
             name == "mixtral_apart" || name == "gpt_oss_mxfp4"));
      ++whole_count;
    }
  }
  CHECK(whole_count == 25);
}

TEST_CASE("gguf export: half precision rounds to the nearest, vectors stay F32",
          "[cli][gguf_export]") {
  for (const auto& [kind, type] :
       {std::pair(GgufKind::f16, "F16"), std::pair(GgufKind::bf16, "BF16")}) {
    const TempDirectory directory;
    const ReadModel from = read_case(directory, case_named("gemma3"));
    (void)write(request_of(from, directory / "out", kind, true), from);
    const ReadModel again = read_model(directory / "out/model.gguf", true);
    const storage::WeightType stored = *storage::weight_type(type);
    for (const storage::GgufEntry& entry : from.model.file().entries()) {
      INFO(type << " " << entry.name);
      const storage::GgufEntry* found = again.model.file().find(entry.name);
      REQUIRE(found != nullptr);
      if (entry.shape.size() < 2) {
        CHECK(found->type.name == "F32");
        CHECK(bytes_of(again.model, *found) == bytes_of(from.model, entry));
        continue;
      }
      CHECK(found->type.name == type);
      std::vector<float> values(entry.elements_count);
      REQUIRE(from.model.file().read_fp32(entry, 0, values).ok());
      std::string rounded(2 * values.size(), '\0');
      REQUIRE(storage::from_floats(stored, values, std::as_writable_bytes(std::span(rounded))));
      CHECK(bytes_of(again.model, *found) == rounded);
    }
  }
}

TEST_CASE("gguf export: quantised types where rows allow them, else a line", "[cli][gguf_export]") {
  const GgufExport mixed{.kind = GgufKind::q4_k_m, .layers = 24};
  const auto format = gguf_format(mixed);
  const Status narrow = format->check({"blk.0.attn_q.weight", {256, 128}});
  REQUIRE_FALSE(narrow.ok());
  CHECK(narrow.error().kind == ErrorKind::user);
  CHECK_THAT(narrow.error().message, Catch::Contains("blk.0.attn_q.weight") &&
                                         Catch::Contains("128") && Catch::Contains("Q4_K") &&
                                         Catch::Contains("256") && Catch::Contains("q8_0"));
  CHECK(format->check({"blk.0.attn_q.weight", {128, 256}}).ok());
  CHECK(format->check({"blk.0.attn_norm.weight", {100}}).ok());
  const auto eights = gguf_format({.kind = GgufKind::q8_0});
  CHECK(eights->check({"blk.0.attn_q.weight", {8, 32}}).ok());
  const Status odd = eights->check({"blk.0.attn_q.weight", {8, 40}});
  REQUIRE_FALSE(odd.ok());
  CHECK_THAT(odd.error().message, Catch::Contains("Q8_0") && Catch::Contains("bf16"));
}

TEST_CASE("gguf export: q4_k_m gives the types that llama.cpp's mixture has",
          "[cli][gguf_export]") {
  struct Case {
    const char* name;
    const char* type;
  };
  const auto type_of = [](const char* name, const GgufExport& settings) {
    return std::string(gguf_type_of({name, {256, 256}}, settings).name);
  };
  // Layers of 24 with more bits: 0, 1, 2; 5, 8, 11, 14, 17, 20; 21, 22, 23.
  const GgufExport dense{.kind = GgufKind::q4_k_m, .layers = 24};
  for (const auto& [name, type] : {Case{"blk.0.attn_v.weight", "Q6_K"},
                                   {"blk.2.ffn_down.weight", "Q6_K"},
                                   {"blk.3.ffn_down.weight", "Q4_K"},
                                   {"blk.5.ffn_down.weight", "Q6_K"},
                                   {"blk.19.attn_v.weight", "Q4_K"},
                                   {"blk.21.attn_v.weight", "Q6_K"},
                                   {"blk.0.attn_q.weight", "Q4_K"},
                                   {"blk.0.attn_k.weight", "Q4_K"},
                                   {"blk.0.attn_qkv.weight", "Q6_K"},
                                   {"blk.3.attn_qkv.weight", "Q4_K"},
                                   {"blk.0.attn_output.weight", "Q4_K"},
                                   {"blk.23.ffn_down_exps.weight", "Q6_K"},
                                   {"blk.0.ffn_gate_inp.weight", "F32"},
                                   {"position_embd.weight", "F32"},
                                   {"token_embd.weight", "Q4_K"},
                                   {"output.weight", "Q6_K"}}) {
    INFO(name);
    CHECK(type_of(name, dense) == type);
  }
  const GgufExport tied{.kind = GgufKind::q4_k_m, .layers = 24, .tied = true};
  CHECK(type_of("token_embd.weight", tied) == "Q6_K");
  const GgufExport eight{.kind = GgufKind::q4_k_m, .layers = 24, .experts = 8};
  CHECK(type_of("blk.3.attn_v.weight", eight) == "Q8_0");
  CHECK(type_of("blk.3.attn_k.weight", eight) == "Q8_0");
  CHECK(type_of("blk.3.attn_output.weight", eight) == "Q5_K");
  CHECK(type_of("blk.3.attn_qkv.weight", eight) == "Q8_0");
  const GgufExport large{.kind = GgufKind::q4_k_m, .layers = 80, .large = true};
  CHECK(type_of("blk.10.attn_v.weight", large) == "Q5_K");
  CHECK(type_of("blk.9.attn_v.weight", large) == "Q6_K");
  // Values are counted over the layers that have them: of 8 the first, every third and the last.
  const std::vector<ExportTensor> sparse = {
      {"blk.3.attn_v.weight", {256, 256}},  {"blk.3.attn_v.bias", {256}},
      {"blk.7.attn_v.weight", {256, 256}},  {"blk.11.attn_v.weight", {256, 256}},
      {"blk.4.ssm_in.weight", {256, 256}},  {"blk.15.attn_v.weight", {256, 256}},
      {"blk.19.attn_v.weight", {256, 256}}, {"blk.23.attn_v.weight", {256, 256}},
      {"blk.27.attn_v.weight", {256, 256}}, {"blk.31.attn_v.weight", {256, 256}}};
  const GgufExport jamba{
      .kind = GgufKind::q4_k_m, .layers = 32, .attending = attending_layers(sparse)};
  std::string types;
  for (const std::int64_t layer : jamba.attending) {
    types += type_of(fmt::format("blk.{}.attn_v.weight", layer).c_str(), jamba) + " ";
  }
  CHECK(types == "Q6_K Q4_K Q4_K Q6_K Q4_K Q4_K Q6_K Q6_K ");
}

TEST_CASE("gguf export: several files have numbers, and the first the metadata",
          "[cli][gguf_export]") {
  const TempDirectory directory;
  const ReadModel from = read_case(directory, case_named("llama_biases"));
  auto request = request_of(from, directory / "out", GgufKind::f32, true);
  request.max_file_bytes = 512;
  const std::vector<std::string> files = write(request, from).files;
  REQUIRE(files.size() > 2);
  std::size_t tensors = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    INFO(files[i]);
    const auto part = storage::GgufFile::open(directory / "out" / files[i]);
    REQUIRE(part);
    CHECK(part->count_of("split.no") == i);
    CHECK(part->count_of("split.count") == files.size());
    CHECK(part->count_of("split.tensors.count") == request.tensors.size());
    CHECK((part->value_of<std::string>("general.architecture") != nullptr) == (i == 0));
    tensors += part->entries().size();
  }
  CHECK(tensors == request.tensors.size());
  // llama.cpp finds the others by this form of their names.
  char last[64];
  (void)std::snprintf(last, sizeof(last), "model-%05zu-of-%05zu.gguf", files.size(), files.size());
  CHECK(files.back() == last);
}

TEST_CASE("gguf export: a value that the type cannot hold is named, and leaves nothing",
          "[cli][gguf_export]") {
  const TempDirectory directory;
  const ReadModel from = read_case(directory, case_named("llama_biases"));
  auto request = request_of(from, directory / "out", GgufKind::f16, true);
  for (ExportTensor& tensor : request.tensors) {
    if (tensor.name == "blk.1.ffn_up.weight") {
      tensor.parts.clear();
      tensor.source = std::make_shared<ListSource>(std::vector<float>{1e6F});
    }
  }
  const auto report = export_tensors(request, from.model);
  REQUIRE_FALSE(report);
  CHECK(report.error().kind == ErrorKind::user);
  CHECK_THAT(report.error().message, Catch::Contains("blk.1.ffn_up.weight") &&
                                         Catch::Contains("F16") && Catch::Contains("bf16"));
  CHECK_FALSE(fs::exists(directory / "out"));
}

TEST_CASE("gguf export: models that llama.cpp computes otherwise are refused by what it lacks",
          "[cli][gguf_export]") {
  const auto refused = [](const std::string& error, const char* part) {
    INFO(error);
    CHECK(error.find(part) != std::string::npos);
    CHECK(error.find('\n') == std::string::npos);
  };
  for (const char* name : {"llama", "qwen3", "gemma2", "gemma3", "olmo3_yarn", "qwen3_moe"}) {
    INFO(name);
    CHECK(error_with(name, Json::object()) == "written");
  }
  refused(error_with("gemma2", {{"query_pre_attn_scalar", 20}}), "scores scaled by");
  refused(error_with("gemma3", {{"query_pre_attn_scalar", 20}}), "scores scaled by");
  refused(error_with("gemma2", {{"attn_logit_softcapping", nullptr}}), "without a cap");
  refused(
      error_with("qwen2",
                 {{"use_sliding_window", true}, {"sliding_window", 16}, {"max_window_layers", 0}}),
      "sliding windows");
  refused(error_with("qwen3_moe", {{"norm_topk_prob", false}}), "norm_topk_prob");
  refused(error_with("qwen3_moe", {{"mlp_only_layers", {0}}}), "layers without");
  refused(error_with("deepseek3", {{"attention_bias", true}}), "biases of latent attention");
  refused(error_with("deepseek3", {{"n_shared_experts", 0}}), "without a shared one");
  refused(error_with("deepseek3", {{"num_hidden_layers", 27}}), "a latent of queries");
  refused(error_with("deepseek3", {{"rope_interleave", false}}), "rope_interleave");
  refused(error_with("deepseek3", {{"first_k_dense_replace", 99}}), "layers without experts");
  refused(error_with("gpt_oss", {{"swiglu_limit", 6.0}}), "swiglu_limit");
  refused(error_with("gpt_oss", {{"attention_bias", false}}), "without biases");
  refused(error_with("gpt_oss", {{"tie_word_embeddings", true}}), "embedding that is the head");
  Json gain = config_of("deepseek3");
  gain["rope_scaling"]["mscale"] = 1.0;
  refused(metadata_error(gain.dump()), "mscale_all_dim");
  for (const char* name : {"mamba", "falcon_mamba", "mamba2", "jamba", "jamba_dense"}) {
    INFO(name);
    CHECK(error_with(name, Json::object()) == "written");
  }
  refused(error_with("mamba2", {{"time_step_limit", {0.1, 0.3}}}), "time_step_limit");
  refused(error_with("mamba", {{"expand", 1}}), "another expand than 2");
  refused(error_with("mamba2", {{"use_bias", true}}), "biases of the scans' maps");
  refused(error_with("mamba", {{"use_conv_bias", false}}), "convolutions without biases");
  refused(error_with("jamba", {{"head_dim", 8}}), "heads that are not as wide as the model");
  // What llama.cpp has no tensor for, or asks for and misses.
  for (const char* name : {"olmoe", "qwen2_moe", "olmo2", "neox"}) {
    INFO(name);
    refused(error_with(name, {{"tie_word_embeddings", true}}), "an embedding that is the head");
  }
  refused(error_with("gemma2", {{"tie_word_embeddings", false}}), "a head of its own");
  refused(error_with("deepseek3", {{"rms_norm_eps", 1e-5}}), "norms of latents with an epsilon");
  refused(error_with("olmoe", {{"num_key_value_heads", 1}}), "heads that share keys");
  for (const char* name : {"qwen2", "qwen2_moe", "olmo2", "phi3"}) {
    INFO(name);
    refused(error_with(name, {{"head_dim", 12}}), "heads that are not as wide as the model");
  }
  for (const char* name : {"qwen3", "qwen3_moe", "gemma2", "gemma3", "olmo2", "olmoe"}) {
    INFO(name);
    refused(error_with(name, {{"attention_bias", true}}), "a bias of attention's output");
  }
  refused(error_with("neox", {{"attention_bias", false}}), "attention without biases");
  for (const auto& [name, key] :
       {std::pair("llama", "hidden_act"), std::pair("qwen3_moe", "hidden_act"),
        std::pair("gemma2", "hidden_activation"), std::pair("neox", "hidden_act"),
        std::pair("gpt2", "activation_function")}) {
    INFO(name);
    refused(error_with(name, {{key, "relu"}}), "activation");
  }
  CHECK(error_with("neox", {{"hidden_act", "gelu_new"}}) == "written");
  refused(error_with("gpt2", {{"activation_function", "gelu"}}), "activation");
  Json yarn = config_of("qwen2_yarn");
  yarn[yarn.contains("rope_scaling") ? "rope_scaling" : "rope_parameters"]["truncate"] = false;
  refused(metadata_error(yarn.dump()), "truncate");
}

TEST_CASE("gguf export: the ropes of OLMo 3's windowed layers are those that llama.cpp computes",
          "[cli][gguf_export]") {
  const auto with_theta = [](double theta, const char* kind) {
    Json config = config_of("olmo3_yarn");
    config.erase("rope_theta");
    config.erase("rope_scaling");
    const Json plain = {{"rope_type", "default"}, {"rope_theta", 5000.0}};
    config["rope_parameters"] = {{"full_attention", plain}, {"sliding_attention", plain}};
    config["rope_parameters"][kind]["rope_theta"] = theta;
    return config;
  };
  REQUIRE(metadata_error(with_theta(5000.0, "full_attention").dump()) == "written");
  for (const char* kind : {"full_attention", "sliding_attention"}) {
    INFO(kind);
    CHECK(metadata_error(with_theta(77.0, kind).dump()).find("rope_theta") != std::string::npos);
  }
  Json scaled = with_theta(5000.0, "full_attention");
  scaled["rope_parameters"]["sliding_attention"].update({{"rope_type", "linear"}, {"factor", 4.0}});
  CHECK(metadata_error(scaled.dump()).find("scaled ropes of windowed layers") != std::string::npos);
}

TEST_CASE("gguf export: factors for long contexts are named for Llama's family, as llama.cpp asks",
          "[cli][gguf_export]") {
  const std::vector<double> factors(6, 2.0);
  for (const auto& [name, named] : {std::pair("llama", true), std::pair("phi3_longrope", false)}) {
    INFO(name);
    Json config = config_of(name);
    config["rope_scaling"] = {{"rope_type", "longrope"},
                              {"short_factor", std::vector<double>(6, 1.0)},
                              {"long_factor", factors},
                              {"original_max_position_embeddings", 64}};
    const auto spec = engine::spec_from_config(config.dump(), "config", 0);
    INFO((spec.ok() ? "" : spec.error().message));
    REQUIRE(spec.ok());
    const auto made = gguf_metadata(*spec, nlohmann::ordered_json::parse(config.dump()));
    REQUIRE(made.ok());
    const auto has = [&made](const std::string& key) {
      return std::ranges::any_of(made->fields,
                                 [&key](const auto& field) { return field.key.ends_with(key); });
    };
    CHECK(has("rope.scaling.type") == named);
    CHECK(has("rope.scaling.original_context_length"));
    CHECK(made->constants.size() == 2);
    CHECK(std::ranges::any_of(made->notes, [](const std::string& note) {
      return note.find("is larger than 64 tokens") != std::string::npos;
    }));
  }
  Json other = config_of("qwen2");
  other["rope_scaling"] = {{"rope_type", "longrope"},
                           {"short_factor", {1.0, 2.0}},
                           {"long_factor", {1.0, 4.0}},
                           {"original_max_position_embeddings", 64}};
  CHECK(metadata_error(other.dump()).find("rope type longrope") != std::string::npos);
}

TEST_CASE("gguf export: an architecture without a place in llama.cpp is refused by its name",
          "[cli][gguf_export]") {
  CHECK(gguf_architecture("gemma3_text") == "gemma3");
  std::vector<std::string> without = {"enoki"};
  for (const engine::ModelArchitecture& architecture : engine::model_architectures()) {
    if (gguf_architecture(architecture.model_type).empty()) {
      without.emplace_back(architecture.model_type);
    }
  }
  CHECK(without == std::vector<std::string>{"enoki", "hymba"});
  for (const std::string& name : without) {
    engine::ModelSpec spec;
    spec.architecture = name;
    const auto made = gguf_metadata(spec, nlohmann::ordered_json::object());
    REQUIRE_FALSE(made.ok());
    CHECK(made.error().kind == ErrorKind::user);
    CHECK_THAT(made.error().message, Catch::Contains(name) && Catch::Contains("qwen3_moe") &&
                                         Catch::Contains("--format hf"));
  }
}

}  // namespace train::cli::gguf_export_test
