#include "checkpoint/models/gguf_model.hpp"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/check.hpp"
#include "engine/model/unit_parameters.hpp"

namespace train::checkpoint {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// An architecture of GGUF files and what its published form is.
struct GgufArchitecture {
  std::string_view name;
  std::string_view model_type;
  bool interleaved;  ///< Queries and keys.
  bool gemma;
};
constexpr std::array kGgufArchitectures = {
    GgufArchitecture{"llama", "llama", true, false},
    GgufArchitecture{"qwen2", "qwen2", false, false},
    GgufArchitecture{"qwen3", "qwen3", false, false},
    GgufArchitecture{"gemma3", "gemma3_text", false, true},
};

/// Names below "model.layers.N." and below "blk.N.".
struct TensorName {
  std::string_view published;
  std::string_view in_file;
};
constexpr std::array kLayerNames = {
    TensorName{"input_layernorm.weight", "attn_norm.weight"},
    TensorName{"self_attn.q_proj.weight", "attn_q.weight"},
    TensorName{"self_attn.k_proj.weight", "attn_k.weight"},
    TensorName{"self_attn.v_proj.weight", "attn_v.weight"},
    TensorName{"self_attn.o_proj.weight", "attn_output.weight"},
    TensorName{"self_attn.q_proj.bias", "attn_q.bias"},
    TensorName{"self_attn.k_proj.bias", "attn_k.bias"},
    TensorName{"self_attn.v_proj.bias", "attn_v.bias"},
    TensorName{"self_attn.q_norm.weight", "attn_q_norm.weight"},
    TensorName{"self_attn.k_norm.weight", "attn_k_norm.weight"},
    TensorName{"mlp.gate_proj.weight", "ffn_gate.weight"},
    TensorName{"mlp.up_proj.weight", "ffn_up.weight"},
    TensorName{"mlp.down_proj.weight", "ffn_down.weight"},
    TensorName{"pre_feedforward_layernorm.weight", "ffn_norm.weight"},
    TensorName{"post_feedforward_layernorm.weight", "post_ffw_norm.weight"},
};

bool is_gain(const std::string& parameter) { return parameter.ends_with("norm.weight"); }

/// Rows of interleaved pairs back to halves, head by head: row 2i + j of a head is row j D/2 + i.
void pairs_to_halves(std::span<float> matrix, std::int64_t heads, std::size_t rows) {
  const std::size_t cols = matrix.size() / rows;
  const std::size_t dim = rows / static_cast<std::size_t>(heads);
  const std::vector<float> before(matrix.begin(), matrix.end());
  for (std::size_t row = 0; row < rows; ++row) {
    const std::size_t in_head = row % dim;
    const std::size_t to = row - in_head + in_head % 2 * (dim / 2) + in_head / 2;
    std::copy_n(before.begin() + static_cast<std::ptrdiff_t>(row * cols), cols,
                matrix.begin() + static_cast<std::ptrdiff_t>(to * cols));
  }
}

/// Errors (user): it is not known.
Result<const GgufArchitecture*> architecture_named(const std::string& name,
                                                   const std::string& path) {
  std::string known;
  for (const GgufArchitecture& entry : kGgufArchitectures) {
    if (entry.name == name) {
      return &entry;
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", entry.name);
  }
  return user_error(
      fmt::format("{}: general.architecture is \"{}\": {} are known", path, name, known));
}

}  // namespace

Result<GgufModel> GgufModel::open(const fs::path& path) {
  auto file = storage::GgufFile::open(path);
  TRAIN_RETURN_IF_ERROR(file);
  GgufModel model(std::move(file).value());
  const auto* name = model.file_.value_of<std::string>("general.architecture");
  const std::string architecture = name == nullptr ? "" : *name;
  if (model.file_.find("rope_freqs.weight") != nullptr) {
    return user_error(fmt::format(
        "{}: its rope's frequencies are a tensor, rope_freqs.weight, which is not read; give the "
        "model's own directory",
        path.string()));
  }
  TRAIN_RETURN_IF_ERROR(model.read_config(architecture));
  return model;
}

Status GgufModel::read_config(const std::string& architecture) {
  const std::string path = file_.file().path().string();
  const auto known = architecture_named(architecture, path);
  TRAIN_RETURN_IF_ERROR(known);
  const GgufArchitecture* found = *known;
  std::string missing;
  const auto count = [&](const char* key, std::optional<std::uint64_t> otherwise = {}) {
    const auto value = file_.count_of(fmt::format("{}.{}", architecture, key));
    if (!value && !otherwise && missing.empty()) {
      missing = fmt::format("{}.{}", architecture, key);
    }
    return value ? *value : otherwise.value_or(1);
  };
  const auto real = [&](const char* key, double otherwise) {
    const auto* value = file_.value_of<double>(fmt::format("{}.{}", architecture, key));
    return value == nullptr ? otherwise : *value;
  };
  const storage::GgufEntry* embedding = file_.find("token_embd.weight");
  const std::uint64_t heads = count("attention.head_count");
  const std::uint64_t width = count("embedding_length");
  const std::uint64_t kv_heads = count("attention.head_count_kv", heads);
  Json config = {
      {"model_type", std::string(found->model_type)},
      {"vocab_size", embedding == nullptr ? 1 : embedding->shape.front()},
      {"hidden_size", width},
      {"intermediate_size", count("feed_forward_length")},
      {"num_hidden_layers", count("block_count")},
      {"num_attention_heads", heads},
      {"num_key_value_heads", kv_heads},
      {"head_dim", count("attention.key_length", width / std::max<std::uint64_t>(1, heads))},
      {"max_position_embeddings", count("context_length")},
      {"rms_norm_eps", real("attention.layer_norm_rms_epsilon", 1e-5)},
      {"rope_theta", real("rope.freq_base", 10000.0)},
      {"tie_word_embeddings", file_.find("output.weight") == nullptr}};
  if (found->gemma) {
    config["hidden_activation"] = "gelu_pytorch_tanh";
    config["query_pre_attn_scalar"] = config["head_dim"];
    config["sliding_window"] = count("attention.sliding_window");
    config["sliding_window_pattern"] = 6;
    config["rope_local_base_freq"] = 10000.0;
    config["torch_dtype"] = "bfloat16";
  } else {
    config["hidden_act"] = "silu";
  }
  for (const auto& [key, of] : {std::pair("bos_token_id", "tokenizer.ggml.bos_token_id"),
                                std::pair("eos_token_id", "tokenizer.ggml.eos_token_id")}) {
    if (const auto id = file_.count_of(of)) {
      config[key] = *id;
    }
  }
  if (!missing.empty() || embedding == nullptr) {
    return user_error(
        fmt::format("{}: {} is missing", path, missing.empty() ? "token_embd.weight" : missing));
  }
  interleaved_ = found->interleaved;
  gains_plus_one_ = found->gemma;
  heads_ = static_cast<std::int64_t>(heads);
  kv_heads_ = static_cast<std::int64_t>(kv_heads);
  config_text_ = config.dump(2) + "\n";
  return {};
}

std::optional<std::string> GgufModel::name_in_file(const std::string& parameter) const {
  if (parameter == "model.embed_tokens.weight") {
    return "token_embd.weight";
  }
  if (parameter == "model.norm.weight") {
    return "output_norm.weight";
  }
  if (parameter == "lm_head.weight") {
    return "output.weight";
  }
  const std::string_view prefix = "model.layers.";
  if (!parameter.starts_with(prefix)) {
    return std::nullopt;
  }
  const std::string_view rest = std::string_view(parameter).substr(prefix.size());
  const std::string_view layer = rest.substr(0, rest.find('.'));
  const std::string_view name = rest.substr(std::min(rest.size(), layer.size() + 1));
  if (name ==
      "post_attention_layernorm.weight") {  // before the MLP, or with Gemma behind attention
    return fmt::format("blk.{}.{}", layer,
                       gains_plus_one_ ? "post_attention_norm.weight" : "ffn_norm.weight");
  }
  for (const TensorName& known : kLayerNames) {
    if (known.published == name) {
      return fmt::format("blk.{}.{}", layer, known.in_file);
    }
  }
  return std::nullopt;
}

std::int64_t GgufModel::interleaved_heads(const std::string& parameter) const {
  if (!interleaved_) {
    return 0;
  }
  if (parameter.ends_with("self_attn.q_proj.weight")) {
    return heads_;
  }
  return parameter.ends_with("self_attn.k_proj.weight") ? kv_heads_ : 0;
}

Status GgufModel::check(const engine::ModelSpec& model) const {
  const std::string path = file_.file().path().string();
  std::set<std::string, std::less<>> wanted;
  for (const engine::UnitParameters& unit : engine::describe_units(model)) {
    for (const engine::Parameter& parameter : unit.parameters) {
      const auto name = name_in_file(parameter.name);
      const storage::GgufEntry* entry = name ? file_.find(*name) : nullptr;
      if (entry == nullptr) {
        return user_error(
            fmt::format("{}: tensor {} is missing", path, name.value_or(parameter.name)));
      }
      if (entry->shape != parameter.shape()) {
        return user_error(fmt::format("{}: tensor {} has shape [{}], its metadata wants [{}]", path,
                                      *name, fmt::join(entry->shape, ", "),
                                      fmt::join(parameter.shape(), ", ")));
      }
      wanted.insert(*name);
    }
  }
  for (const storage::GgufEntry& entry : file_.entries()) {
    if (!wanted.contains(entry.name)) {
      return user_error(
          fmt::format("{}: tensor {} belongs to nothing in such a model", path, entry.name));
    }
  }
  return {};
}

Status GgufModel::read(const std::string& parameter, std::span<float> out) const {
  const auto name = name_in_file(parameter);
  const storage::GgufEntry* entry = name ? file_.find(*name) : nullptr;
  TRAIN_CHECK(entry != nullptr, "no tensor for {}", parameter);
  TRAIN_RETURN_IF_ERROR(file_.read_fp32(*entry, 0, out));
  if (const std::int64_t heads = interleaved_heads(parameter); heads > 0) {
    pairs_to_halves(out, heads, static_cast<std::size_t>(entry->shape.front()));
  }
  if (gains_plus_one_ && is_gain(parameter)) {
    for (float& gain : out) {
      gain -= 1.0F;
    }
  }
  return {};
}

}  // namespace train::checkpoint
