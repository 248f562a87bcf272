#include "checkpoint/models/gguf_model.hpp"

#include <bit>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/model/architectures/architectures.hpp"
#include "engine/model/blocks/attention_block.hpp"
#include "engine/model/blocks/mlp_block.hpp"
#include "engine/model/model.hpp"
#include "tests/storage/weight_files/gguf_bytes.hpp"
#include "tests/support/disks/temp_directory.hpp"

namespace train::checkpoint {
namespace {

using train::test::GgufBytes;
using train::test::TempDirectory;

constexpr std::uint32_t kFloat32 = 0;
constexpr std::uint32_t kIsCount = 4;  // uint32
constexpr std::uint32_t kIsText = 8;

struct GgufTensor {
  std::string name;
  std::vector<std::uint64_t> dimensions;  ///< The fastest first.
  [[nodiscard]] std::uint64_t count() const {
    std::uint64_t all = 1;
    for (const std::uint64_t dimension : dimensions) {
      all *= dimension;
    }
    return all;
  }
};

/// One layer, width 8, 2 heads of 4, 1 of keys, 12 tokens, MLP 6.
std::vector<GgufTensor> tiny_tensors() {
  return {{"token_embd.weight", {8, 12}},       {"output_norm.weight", {8}},
          {"blk.0.attn_norm.weight", {8}},      {"blk.0.attn_q.weight", {8, 8}},
          {"blk.0.attn_k.weight", {8, 4}},      {"blk.0.attn_v.weight", {8, 4}},
          {"blk.0.attn_output.weight", {8, 8}}, {"blk.0.ffn_norm.weight", {8}},
          {"blk.0.ffn_gate.weight", {8, 6}},    {"blk.0.ffn_up.weight", {8, 6}},
          {"blk.0.ffn_down.weight", {6, 8}}};
}

using Counts = std::vector<std::pair<std::string, std::uint64_t>>;

/// Element `i` of a tensor is i. `more`: numbers below "<architecture>.".
std::string gguf_of(const std::vector<GgufTensor>& tensors, const std::string& architecture,
                    const Counts& more = {}) {
  GgufBytes file;
  Counts counts = {{"embedding_length", 8},        {"block_count", 1},
                   {"feed_forward_length", 6},     {"attention.head_count", 2},
                   {"attention.head_count_kv", 1}, {"context_length", 64}};
  if (architecture == "gemma3") {
    counts.emplace_back("attention.sliding_window", 16);
  }
  counts.insert(counts.end(), more.begin(), more.end());
  file.start(tensors.size(), counts.size() + 1);
  file.text("general.architecture").number(kIsText, 4).text(architecture);
  for (const auto& [key, value] : counts) {
    file.key(architecture + "." + key, kIsCount, value, 4);
  }
  std::uint64_t offset = 0;
  for (const GgufTensor& tensor : tensors) {
    file.tensor(tensor.name, tensor.dimensions, kFloat32, offset);
    offset += (tensor.count() * sizeof(float) + 31) / 32 * 32;
  }
  file.data(0);
  for (const GgufTensor& tensor : tensors) {
    for (std::uint64_t i = 0; i < tensor.count(); ++i) {
      file.number(std::bit_cast<std::uint32_t>(static_cast<float>(i)), 4);
    }
    file.data(0);
  }
  return file.bytes;
}

std::string gguf_error(const TempDirectory& directory, const std::vector<GgufTensor>& tensors,
                       const std::string& architecture = "llama", const Counts& more = {}) {
  test::write_bytes(directory / "model.gguf", gguf_of(tensors, architecture, more));
  auto opened = GgufModel::open(directory / "model.gguf");
  if (!opened.ok()) {
    return opened.error().message;
  }
  const auto spec = engine::spec_from_config(opened->config_text(), "gguf", 0);
  REQUIRE(spec.ok());
  const Status checked = opened->check(*spec);
  return checked.ok() ? "whole" : checked.error().message;
}

std::vector<float> elements_of(const GgufModel& model, const engine::Parameter& parameter) {
  std::vector<float> values(static_cast<std::size_t>(parameter.count()));
  REQUIRE(model.read_rows(parameter, 0, parameter.rows(), values).ok());
  return values;
}

}  // namespace

TEST_CASE("gguf model: a Llama's metadata, names and order of rows", "[checkpoint][gguf_model]") {
  const TempDirectory directory;
  test::write_bytes(directory / "model.gguf", gguf_of(tiny_tensors(), "llama"));
  auto opened = GgufModel::open(directory / "model.gguf");
  REQUIRE(opened.ok());
  const auto spec = engine::spec_from_config(opened->config_text(), "gguf", 0);
  REQUIRE(spec.ok());
  CHECK(spec->architecture == "llama");
  CHECK(spec->tie_embeddings);
  CHECK(engine::block_of<engine::AttentionSpec>(spec->layers.front()).head_dim == 4);
  REQUIRE(opened->check(*spec).ok());
  const std::vector<float> query =
      elements_of(*opened, {.name = "model.layers.0.self_attn.q_proj.weight", .shape = {8, 8}});
  // Rows 0, 2 and 1, 3 of a head of 4 were neighbours: pairs (0, 1), (2, 3) of the file.
  std::vector<float> first_of_rows;
  for (std::size_t row = 0; row < 8; ++row) {
    first_of_rows.push_back(query[8 * row]);
  }
  CHECK(first_of_rows == std::vector<float>{0, 16, 8, 24, 32, 48, 40, 56});
  const std::vector<float> value =
      elements_of(*opened, {.name = "model.layers.0.self_attn.v_proj.weight", .shape = {4, 8}});
  CHECK(value[8] == 8.0F);
}

TEST_CASE("gguf model: Gemma's gains are stored with their one", "[checkpoint][gguf_model]") {
  const TempDirectory directory;
  auto tensors = tiny_tensors();
  for (const char* name : {"post_attention_norm", "post_ffw_norm"}) {
    tensors.push_back({std::string("blk.0.") + name + ".weight", {8}});
  }
  for (const char* name : {"attn_q_norm", "attn_k_norm"}) {
    tensors.push_back({std::string("blk.0.") + name + ".weight", {4}});
  }
  CHECK(gguf_error(directory, tensors, "gemma3") == "whole");
  auto opened = GgufModel::open(directory / "model.gguf");
  REQUIRE(opened.ok());
  const auto spec = engine::spec_from_config(opened->config_text(), "gguf", 0);
  REQUIRE(spec.ok());
  REQUIRE(opened->check(*spec).ok());
  const std::vector<float> gain = elements_of(
      *opened, {.name = "model.layers.0.pre_feedforward_layernorm.weight", .shape = {8}});
  CHECK(gain == std::vector<float>{-1, 0, 1, 2, 3, 4, 5, 6});
  const std::vector<float> query =
      elements_of(*opened, {.name = "model.layers.0.self_attn.q_proj.weight", .shape = {8, 8}});
  CHECK(query[8] == 8.0F);
}

TEST_CASE("gguf model: what does not fit is named", "[checkpoint][gguf_model]") {
  const TempDirectory directory;
  const auto has = [](const std::string& text, const char* part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  CHECK(gguf_error(directory, tiny_tensors()) == "whole");
  has(gguf_error(directory, tiny_tensors(), "rwkv6"), "general.architecture is \"rwkv6\": llama");
  auto tensors = tiny_tensors();
  tensors.pop_back();
  has(gguf_error(directory, tensors), "tensor blk.0.ffn_down.weight is missing");
  tensors = tiny_tensors();
  tensors[3].dimensions = {8, 4};
  has(gguf_error(directory, tensors), "blk.0.attn_q.weight has shape [4, 8]");
  tensors = tiny_tensors();
  tensors.push_back({"blk.0.extra.weight", {8}});
  has(gguf_error(directory, tensors), "tensor blk.0.extra.weight is not part of such a model");
  tensors.back().name = "rope_freqs.weight";  // 0, 1, ... 7
  has(gguf_error(directory, tensors), "rope_freqs.weight is not a list of 2 positive numbers");
  tensors = tiny_tensors();
  tensors.erase(tensors.begin());
  has(gguf_error(directory, tensors), "token_embd.weight is missing");
}

TEST_CASE("gguf model: scans have rates of decay, which are negative",
          "[checkpoint][gguf_model][state_space]") {
  const TempDirectory directory;
  const std::vector<GgufTensor> tensors = {{"token_embd.weight", {8, 12}},
                                           {"output_norm.weight", {8}},
                                           {"blk.0.attn_norm.weight", {8}},
                                           {"blk.0.ssm_in.weight", {8, 32}},
                                           {"blk.0.ssm_conv1d.weight", {4, 16}},
                                           {"blk.0.ssm_x.weight", {16, 11}},
                                           {"blk.0.ssm_dt.weight", {3, 16}},
                                           {"blk.0.ssm_dt.bias", {16}},
                                           {"blk.0.ssm_a", {4, 16}},
                                           {"blk.0.ssm_d", {16}},
                                           {"blk.0.ssm_out.weight", {16, 8}}};
  const Counts keys = {{"ssm.inner_size", 16},
                       {"ssm.state_size", 4},
                       {"ssm.conv_kernel", 4},
                       {"ssm.time_step_rank", 3}};
  CHECK(gguf_error(directory, tensors, "mamba", keys) == "whole");
  auto opened = GgufModel::open(directory / "model.gguf");
  REQUIRE(opened.ok());
  const auto spec = engine::spec_from_config(opened->config_text(), "gguf", 0);
  REQUIRE(spec.ok());
  CHECK(spec->architecture == "mamba");
  REQUIRE(opened->check(*spec).ok());
  std::vector<float> rates(64);  // The file's are 0, 1, 2 ...
  const Status read =
      opened->read_rows({.name = "backbone.layers.0.mixer.A_log", .shape = {16, 4}}, 0, 16, rates);
  REQUIRE_FALSE(read.ok());
  CHECK(read.error().kind == ErrorKind::user);
  CHECK(read.error().message.find("blk.0.ssm_a has 0 at element 0: rates of decay are negative") !=
        std::string::npos);
  CHECK(elements_of(*opened, {.name = "backbone.layers.0.mixer.D", .shape = {16}})[5] == 5.0F);
  Counts less = keys;
  less.pop_back();
  CHECK(gguf_error(directory, tensors, "mamba", less).find("mamba.ssm.time_step_rank is missing") !=
        std::string::npos);
  less.emplace_back("ssm.time_step_rank", 5);
  less.emplace_back("ssm.group_count", 1);
  CHECK(gguf_error(directory, tensors, "mamba2", less)
            .find("mamba2.ssm.time_step_rank is 5: that many heads do not divide 16 channels") !=
        std::string::npos);
}

TEST_CASE("gguf model: a key that nobody reads is refused by its name",
          "[checkpoint][gguf_model]") {
  const TempDirectory directory;
  const auto refused = [&](const char* key, std::uint64_t value, const char* part,
                           const std::string& architecture = "llama") {
    const std::string error = gguf_error(directory, tiny_tensors(), architecture, {{key, value}});
    INFO(error);
    CHECK(error.find(architecture + "." + key + " is " + std::to_string(value)) !=
          std::string::npos);
    CHECK(error.find(part) != std::string::npos);
  };
  refused("logit_scale", 2, "give the model's own directory");
  refused("attention.value_length", 2, "as wide as keys");
  refused("expert_count", 8, "no experts", "qwen2");
  refused("expert_weights_scale", 2, "give the model's own directory");
  refused("rope.dimension_count", 2, "whole heads");
  refused("rope.dimension_count", 6, "at most the width of a head", "qwen2");
  refused("attention.sliding_window", 8, "which layers", "qwen2");
  refused("rope.scaling.yarn_log_multiplier", 1, "give the model's own directory");
  CHECK(gguf_error(directory, tiny_tensors(), "llama", {{"vocab_size", 12}}) == "whole");
  CHECK(gguf_error(directory, tiny_tensors(), "llama", {{"logit_scale", 0}}) == "whole");
  CHECK(gguf_error(directory, tiny_tensors(), "llama", {{"attention.sliding_window", 8}}) ==
        "whole");
}

TEST_CASE("gguf model: experts chosen by sigmoids, and latent attention, are named or refused",
          "[checkpoint][gguf_model]") {
  const TempDirectory directory;
  const auto refused = [&](const std::string& architecture, const Counts& keys,
                           const std::string& part) {
    const std::string error = gguf_error(directory, tiny_tensors(), architecture, keys);
    INFO(error);
    CHECK(error.find(architecture + "." + part) != std::string::npos);
  };
  Counts experts = {{"expert_gating_func", 2},
                    {"expert_count", 4},
                    {"expert_used_count", 2},
                    {"expert_feed_forward_length", 6}};
  refused("glm4moe", {{"expert_gating_func", 1}}, "expert_gating_func is 1: 2, sigmoids");
  experts.emplace_back("nextn_predict_layers", 1);
  refused("glm4moe", experts, "nextn_predict_layers is 1: the file has 1 layers");
  experts.pop_back();
  refused("deepseek2", experts, "rope.dimension_count is missing");
  experts.emplace_back("rope.dimension_count", 2);
  refused("deepseek2", experts, "attention.kv_lora_rank is missing");
  experts.emplace_back("attention.kv_lora_rank", 4);
  Counts narrow = experts;
  narrow.emplace_back("attention.key_length", 2);
  refused("deepseek2", narrow, "attention.key_length is 2: 2 elements of it are rotated");
  experts.emplace_back("attention.key_length", 6);
  experts.emplace_back("attention.value_length", 4);
  refused("deepseek2", experts, "expert_group_count is missing: the file does not say");
  experts.emplace_back("expert_group_count", 2);
  experts.emplace_back("expert_group_used_count", 1);
  CHECK(gguf_error(directory, tiny_tensors(), "deepseek2", experts)
            .find("blk.0.attn_q.weight has shape") != std::string::npos);
  refused("gpt-oss", {}, "attention.sliding_window is missing");
}

}  // namespace train::checkpoint
