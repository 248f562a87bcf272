#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "engine/model/architectures/architectures.hpp"
#include "engine/model/architectures/decoder_parts.hpp"
#include "engine/model/blocks/state_space/mamba2_block.hpp"
#include "engine/model/blocks/state_space/mamba_block.hpp"

namespace train::engine {
namespace {

/// Refuses a width of the mixer that is not the one that its other keys make.
void check_inner(ModelConfig& config, std::int64_t inner) {
  config.take_as("d_inner", "intermediate_size");
  if (config.size_if_any("intermediate_size").value_or(inner) != inner) {
    config.refuse(fmt::format(
        "intermediate_size (d_inner) is not {}, which hidden_size and expand make: leave it out",
        inner));
  }
}

/// Width of the steps' input: a number, or "auto".
std::int64_t step_rank(ModelConfig& config, std::int64_t dim) {
  const nlohmann::json* rank = config.find("time_step_rank");
  return rank != nullptr && *rank == "auto" ? (dim + 15) / 16 : config.size("time_step_rank");
}

/// Initial values of the steps' bias.
Initializer read_step_bias(ModelConfig& config) {
  const double low = config.real("time_step_min");
  const double high = config.real("time_step_max");
  const double least = config.real("time_step_floor");
  if (low <= 0.0 || high < low || least <= 0.0) {
    config.refuse(
        fmt::format("time_step_min {}, time_step_max {} and time_step_floor {}: initial "
                    "steps are positive and rise from min to max",
                    low, high, least));
    return Initializer::step(1.0, 1.0, 1.0);
  }
  return Initializer::step(low, high, least);
}

/// Initial values of the steps' map.
void read_steps(ModelConfig& config, MambaSpec& mixer) {
  const double bound =
      config.real("time_step_scale") / std::sqrt(static_cast<double>(mixer.step_rank));
  const std::string scheme = config.text("time_step_init_scheme");
  if (scheme != "random" && scheme != "constant") {
    config.refuse(
        fmt::format("time_step_init_scheme is \"{}\": \"random\" and \"constant\" are "
                    "known",
                    scheme));
  }
  mixer.step_init =
      scheme == "constant" ? Initializer::constant(bound) : Initializer::uniform(-bound, bound);
}

void require_silu(ModelConfig& config) {
  if (config.activation("hidden_act") != kernels::ActivationKind::silu) {
    config.refuse("hidden_act: Mamba's convolution and gate have silu here; set it to \"silu\"");
  }
}

/// Keys that both of Mamba's mixers have.
void read_scan(ModelConfig& config, ScanSpec& mixer) {
  mixer.taps = config.size("conv_kernel");
  mixer.bias = config.flag("use_bias");
  mixer.conv_bias = config.flag("use_conv_bias");
  mixer.step_bias_init = read_step_bias(config);
  require_silu(config);
}

MambaSpec read_mixer(ModelConfig& config, std::int64_t dim) {
  MambaSpec mixer;
  const double expand = config.real("expand");
  mixer.inner = static_cast<std::int64_t>(expand * static_cast<double>(dim));
  mixer.states = config.size("state_size");
  mixer.step_rank = step_rank(config, dim);
  read_scan(config, mixer);
  check_inner(config, mixer.inner);
  if (mixer.inner < 1) {
    config.refuse(fmt::format("expand is {}: the mixer has no channels", expand));
    mixer.inner = 1;
  }
  read_steps(config, mixer);
  return mixer;
}

/// A number of a list, or what transformers 5 writes of one that JSON lacks.
double limit_of(const nlohmann::json& value) {
  if (value.is_object() && value.contains("__float__") && value.at("__float__") == "Infinity") {
    return std::numeric_limits<double>::infinity();
  }
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

/// Limits of a step: none, or the least and the largest.
void read_step_limits(ModelConfig& config, Mamba2Spec& mixer) {
  const nlohmann::json* limits = config.find("time_step_limit");
  if (limits == nullptr) {
    return;
  }
  const bool pair = limits->is_array() && limits->size() == 2;
  const double least = pair ? limit_of(limits->at(0)) : -1.0;
  const double most = pair ? limit_of(limits->at(1)) : -1.0;
  if (!(least >= 0.0 && least < most)) {
    config.refuse(
        fmt::format("time_step_limit is {}: give the least and a larger largest step, "
                    "[0.0, Infinity] for none",
                    limits->dump()));
    return;
  }
  mixer.least_step = static_cast<float>(least);
  mixer.most_step = static_cast<float>(most);
}

/// Keys of files that were converted from the original's: the same numbers once more.
void take_original_keys(ModelConfig& config) {
  config.take_alias("d_model", "hidden_size");
  config.take_alias("n_layer", "num_hidden_layers");
}

/// A model of layers x += mixer(norm(x)) alone.
template <class Mixer>
ModelSpec mixer_model(ModelConfig& config, const Mixer& mixer) {
  ModelSpec spec;
  spec.vocab_size = config.size("vocab_size");
  spec.embedding_dim = config.size("hidden_size");
  spec.embedding = "backbone.embeddings.weight";
  const auto eps = static_cast<float>(config.real("layer_norm_epsilon"));
  spec.final_norm = rms_norm("backbone.norm_f", eps);
  spec.head = "lm_head.weight";
  spec.tie_embeddings = config.flag("tie_word_embeddings");
  if (!config.flag("rms_norm")) {
    config.refuse("rms_norm is false: norms of state spaces are RMS norms here; set it to true");
  }
  (void)config.flag("residual_in_fp32");  // Activations have one type here, as memory has them.
  const auto block = std::make_shared<const Mixer>(mixer);
  const std::int64_t layers = config.size("num_hidden_layers");
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    spec.layers.push_back({.prefix = fmt::format("backbone.layers.{}.", layer),
                           .branches = {{.pre = rms_norm("norm", eps), .block = block}}});
  }
  return spec;
}

}  // namespace

std::string_view mamba_keys() {
  return R"({"vocab_size": 50280, "hidden_size": 768, "state_size": 16, "num_hidden_layers": 32,
    "layer_norm_epsilon": 1e-5, "expand": 2, "conv_kernel": 4, "use_bias": false,
    "use_conv_bias": true, "hidden_act": "silu", "time_step_rank": "auto", "time_step_scale": 1.0,
    "time_step_min": 0.001, "time_step_max": 0.1, "time_step_init_scheme": "random",
    "time_step_floor": 0.0001, "intermediate_size": null,
    "rms_norm": true, "residual_in_fp32": true, "tie_word_embeddings": true})";
}

/// Mamba (Gu & Dao 2023).
ModelSpec mamba_model(ModelConfig& config) {
  take_original_keys(config);
  return mixer_model(config, read_mixer(config, config.size("hidden_size")));
}

std::string_view falcon_mamba_keys() {
  return R"({"vocab_size": 50280, "hidden_size": 768, "state_size": 16, "num_hidden_layers": 32,
    "layer_norm_epsilon": 1e-5, "expand": 2, "conv_kernel": 4, "use_bias": false,
    "use_conv_bias": true, "hidden_act": "silu", "time_step_rank": "auto", "time_step_scale": 1.0,
    "time_step_min": 0.001, "time_step_max": 0.1, "time_step_init_scheme": "random",
    "time_step_floor": 0.0001, "intermediate_size": null, "rms_norm": true,
    "residual_in_fp32": true, "mixer_rms_eps": 1e-6,
    "tie_word_embeddings": true})";
}

/// FalconMamba (Zuo et al. 2024, https://arxiv.org/abs/2410.05355): RMS norms without weights of
/// the steps' inputs, B and C.
ModelSpec falcon_mamba_model(ModelConfig& config) {
  take_original_keys(config);
  MambaSpec mixer = read_mixer(config, config.size("hidden_size"));
  mixer.norms = ScanNorms::plain;
  mixer.norm_eps = static_cast<float>(config.real("mixer_rms_eps"));
  return mixer_model(config, mixer);
}

std::string_view mamba2_keys() {
  return R"({"vocab_size": 32768, "hidden_size": 4096, "num_heads": 128, "head_dim": 64,
    "state_size": 128, "n_groups": 8, "num_hidden_layers": 64, "layer_norm_epsilon": 1e-5,
    "expand": 2, "conv_kernel": 4, "use_bias": false, "use_conv_bias": true, "hidden_act": "silu",
    "time_step_min": 0.001, "time_step_max": 0.1, "time_step_floor": 0.0001,
    "time_step_limit": null, "intermediate_size": null, "rms_norm": true,
    "residual_in_fp32": true, "tie_word_embeddings": false})";
}

/// Mamba-2 (Dao & Gu 2024). `chunk_size` divides the work of its programs, not its function.
ModelSpec mamba2_model(ModelConfig& config) {
  take_original_keys(config);
  Mamba2Spec mixer;
  const std::int64_t dim = config.size("hidden_size");
  const double expand = config.real("expand");
  mixer.heads = config.size("num_heads");
  mixer.width = config.size("head_dim");
  mixer.groups = config.size("n_groups");
  mixer.states = config.size("state_size");
  mixer.norm_eps = static_cast<float>(config.real("layer_norm_epsilon"));
  read_scan(config, mixer);
  const auto inner = static_cast<std::int64_t>(expand * static_cast<double>(dim));
  if (mixer.inner() != inner) {
    config.refuse(
        fmt::format("num_heads {} of head_dim {} are {} channels, but expand and "
                    "hidden_size make {}",
                    mixer.heads, mixer.width, mixer.inner(), inner));
  }
  check_inner(config, inner);
  read_step_limits(config, mixer);
  return mixer_model(config, mixer);
}

}  // namespace train::engine
