#include "engine/generate/text_generator.hpp"
#include "kernels/head/head_loss.hpp"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <map>

#include "engine/generate/cache_bytes.hpp"
#include "engine/model/architectures/architectures.hpp"
#include "engine/model/blocks/latent_attention_block.hpp"
#include "engine/model/initial_weights.hpp"
#include "tests/engine/rank/small_model.hpp"
#include "tests/support/blocks/moving_average.hpp"

namespace train::engine::text_generator_test {
namespace {

using Tokens = TextGenerator::Tokens;
using NewToken = TextGenerator::NewToken;

/// What the generator wrote for each prompt.
struct Written {
  std::map<std::size_t, Tokens> tokens;
  std::map<std::size_t, std::vector<float>> log_probabilities;
};

/// A model with random weights of every kind.
class Writer {
 public:
  explicit Writer(ModelSpec spec) : spec_(std::move(spec)) {
    for (const UnitParameters& unit : describe_units(spec_)) {
      units_.emplace_back(static_cast<std::size_t>(unit.element_count));
      for (const Parameter& parameter : unit.parameters) {
        const auto rows = std::span(units_.back())
                              .subspan(static_cast<std::size_t>(parameter.offset),
                                       static_cast<std::size_t>(parameter.count()));
        fill_initial_rows(parameter, spec_, {.seed = 3, .init_std = 0.5}, 0, parameter.rows(),
                          rows);
        if (parameter.is_vector()) {
          for (std::size_t i = 0; i < rows.size(); ++i) {
            rows[i] = 0.8F + 0.05F * static_cast<float>(i % 7);
          }
        } else if (parameter.adapter) {
          for (std::size_t i = 0; i < rows.size(); ++i) {
            rows[i] = 0.1F * static_cast<float>(i % 7) - 0.28F;
          }
        }
      }
    }
  }

  [[nodiscard]] TextGenerator generator(std::int64_t context, std::int64_t texts,
                                        CacheForm cache = CacheForm::expanded) const {
    std::vector<const float*> weights;
    for (const auto& unit : units_) {
      weights.push_back(unit.data());
    }
    return {kernels::cpu_backend(),
            spec_,
            {.context = context, .texts = texts, .cache = cache},
            weights};
  }

  [[nodiscard]] Written write(std::int64_t context, std::int64_t texts,
                              const std::vector<Tokens>& prompts, std::int64_t tokens,
                              int threads = 1, double temperature = 0.0,
                              CacheForm cache = CacheForm::expanded) const {
    TextGenerator writer = generator(context, texts, cache);
    const auto stream = kernels::make_inline_stream(threads);
    Written written;
    writer.generate(*stream,
                    {.prompts = prompts,
                     .tokens = tokens,
                     .vocab = spec_.vocab_size,
                     .sampling = {.temperature = temperature, .seed = 5}},
                    [&](const NewToken& token) {
                      written.tokens[token.text].push_back(token.token);
                      written.log_probabilities[token.text].push_back(token.log_probability);
                      return true;
                    });
    return written;
  }

  /// The sum over the rows with a target, by the fused head of training.
  [[nodiscard]] double cross_entropy(const Tokens& tokens, const Tokens& targets) const {
    const auto stream = kernels::make_inline_stream(1);
    const auto length = static_cast<std::int64_t>(tokens.size());
    Model model(spec_, kernels::cpu_backend(), 1, length, false);
    kernels::LossSums sums;
    const Lane lane{.sequences = 1,
                    .seq_len = length,
                    .tokens = tokens.data(),
                    .targets = targets.data(),
                    .sums = &sums,
                    .with_gradient = false};
    for (std::size_t unit = 0; unit < model.unit_count(); ++unit) {
      model.unit(unit).forward(
          *stream, {.weights = units_[unit].data(), .tied_weights = units_.front().data()}, lane);
    }
    return sums.cross_entropy;
  }

  [[nodiscard]] const ModelSpec& spec() const { return spec_; }

 private:
  ModelSpec spec_;
  std::vector<std::vector<float>> units_;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  });
}

TEST_CASE("text generator: a text longer than the context is continued after its end",
          "[engine][text_generator]") {
  const Writer writer(testing::small_shape(Architecture::enoki));
  const auto written = [&](const Tokens& prompt, std::int64_t tokens) {
    return writer.write(8, 1, {prompt}, tokens);
  };
  const Tokens end = {5, 17, 2, 40, 33, 8, 1, 25};
  Tokens longer = {9, 9, 30};
  longer.insert(longer.end(), end.begin(), end.end());
  const Written expected = written(end, 6);
  const Tokens& tokens = expected.tokens.at(0);
  const std::vector<float>& log_probabilities = expected.log_probabilities.at(0);
  REQUIRE(std::ssize(tokens) == 6);
  CHECK(written(longer, 6).tokens.at(0) == tokens);
  CHECK(same_bits(written(longer, 6).log_probabilities.at(0), log_probabilities));
  // One at a time, each after all that came before.
  Tokens text = end;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const Written next = written(text, 1);
    CHECK(next.tokens.at(0) == Tokens{tokens[i]});
    CHECK(same_bits(next.log_probabilities.at(0), {log_probabilities[i]}));
    text.push_back(tokens[i]);
  }
}

constexpr std::int64_t kContext = 40;

/// Every kind of attention, scan, norm, position, head and router that has to do with a row's
/// place.
const std::map<std::string, std::string>& published_configs() {
  static const std::map<std::string, std::string> configs = {
      {"llama", R"("num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 1e4)"},
      {"qwen3", R"("num_key_value_heads": 1, "head_dim": 12, "rms_norm_eps": 1e-6,
                   "rope_theta": 1e6, "tie_word_embeddings": true)"},
      {"gemma2", R"("num_key_value_heads": 2, "head_dim": 8, "rms_norm_eps": 1e-6,
                    "rope_theta": 1e4, "sliding_window": 9, "query_pre_attn_scalar": 10,
                    "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0,
                    "hidden_activation": "gelu_pytorch_tanh")"},
      {"gemma3_text", R"("num_key_value_heads": 1, "head_dim": 8, "rms_norm_eps": 1e-6,
                         "rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window": 17,
                         "sliding_window_pattern": 2, "query_pre_attn_scalar": 20,
                         "hidden_activation": "gelu_pytorch_tanh")"},
      {"olmo2", R"("num_key_value_heads": 4, "rms_norm_eps": 1e-6, "rope_theta": 5e5)"},
      {"gpt_neox", R"("rotary_pct": 0.5, "layer_norm_eps": 1e-5, "hidden_act": "gelu")"},
      {"gpt2", R"("n_embd": 32, "n_head": 4, "n_layer": 3, "n_inner": 48, "n_positions": 40,
                  "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new",
                  "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0)"},
      {"mixtral", R"("num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
                     "num_local_experts": 6, "num_experts_per_tok": 2)"},
      {"olmoe", R"("num_key_value_heads": 4, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
                   "num_experts": 6, "num_experts_per_tok": 3, "norm_topk_prob": false,
                   "clip_qkv": 0.5)"},
      {"qwen2_moe", R"("num_key_value_heads": 2, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
                       "moe_intermediate_size": 24, "shared_expert_intermediate_size": 20,
                       "num_experts": 6, "num_experts_per_tok": 2, "norm_topk_prob": false,
                       "decoder_sparse_step": 2)"},
      {"qwen3_moe", R"("num_key_value_heads": 1, "head_dim": 12, "rms_norm_eps": 1e-6,
                       "rope_theta": 1e6, "moe_intermediate_size": 24, "num_experts": 6,
                       "num_experts_per_tok": 2, "norm_topk_prob": true,
                       "mlp_only_layers": [0])"},
      {"deepseek_v3", R"("rms_norm_eps": 1e-6, "num_key_value_heads": 4, "q_lora_rank": 12,
                         "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4,
                         "v_head_dim": 6, "moe_intermediate_size": 24, "n_routed_experts": 8,
                         "n_group": 4, "topk_group": 2, "num_experts_per_tok": 3,
                         "first_k_dense_replace": 1)"},
      {"glm4_moe", R"("num_key_value_heads": 2, "head_dim": 8, "rms_norm_eps": 1e-6,
                      "moe_intermediate_size": 24, "n_routed_experts": 6,
                      "num_experts_per_tok": 2, "use_qk_norm": true)"},
      {"gpt_oss", R"("num_key_value_heads": 2, "head_dim": 8, "rms_norm_eps": 1e-6,
                     "num_local_experts": 6, "num_experts_per_tok": 2, "sliding_window": 7)"},
      {"mamba", R"("expand": 1.5, "state_size": 5, "time_step_rank": 3)"},
      {"mamba2", R"("expand": 1.5, "num_heads": 6, "head_dim": 8, "n_groups": 2, "state_size": 5)"},
      {"jamba", R"("num_key_value_heads": 2, "rms_norm_eps": 1e-6, "num_experts": 4,
                   "attn_layer_period": 3, "attn_layer_offset": 1, "mamba_expand": 1,
                   "mamba_d_state": 5)"},
      {"hymba", R"("num_key_value_heads": 2, "rms_norm_eps": 1e-6, "num_memory_tokens": 5,
                    "sliding_window": 7, "global_attn_idx": [0], "kv_reuse_group": [[1, 2]],
                    "mamba_d_state": 5, "tie_word_embeddings": true)"},
      {"falcon_mamba", R"("expand": 1.5, "state_size": 8, "conv_kernel": 2)"},
  };
  return configs;
}

ModelSpec published_spec(const std::string& model_type) {
  const std::string config = R"({"model_type": ")" + model_type +
                             R"(", "vocab_size": 61, "hidden_size": 32, "intermediate_size": 48,
      "num_hidden_layers": 3, "num_attention_heads": 4, "max_position_embeddings": 64, )" +
                             published_configs().at(model_type) + "}";
  auto spec = spec_from_config(config, model_type, kContext);
  INFO((spec ? std::string() : spec.error().message));
  REQUIRE(spec.ok());
  return *spec;
}

Writer published_writer(const std::string& model_type) {
  return Writer(published_spec(model_type));
}

/// Prompts of unlike lengths; one takes the whole context but a token.
std::vector<Tokens> some_prompts() {
  std::vector<Tokens> prompts;
  for (const int length : {3, 1, 20, static_cast<int>(kContext) - 1, 7}) {
    Tokens prompt;
    for (int i = 0; i < length; ++i) {
      prompt.push_back((i * i * 3 + length * 5 + i) % 41);
    }
    prompts.push_back(prompt);
  }
  return prompts;
}

void check_bits(const Writer& writer) {
  const std::vector<Tokens> prompts = some_prompts();
  constexpr std::int64_t kNew = 12;
  const Written alone = writer.write(kContext, 1, prompts, kNew, 1, 0.9);
  for (const std::int64_t texts : {2, 5, 8}) {
    const Written together = writer.write(kContext, texts, prompts, kNew, 2, 0.9);
    CHECK(together.tokens == alone.tokens);
    for (const auto& [text, found] : together.log_probabilities) {
      CHECK(same_bits(found, alone.log_probabilities.at(text)));
    }
  }
  TextGenerator reader = writer.generator(kContext, 1);
  const auto stream = kernels::make_inline_stream(2);
  for (std::size_t text = 0; text < prompts.size(); ++text) {
    Tokens whole = prompts[text];
    whole.insert(whole.end(), alone.tokens.at(text).begin(), alone.tokens.at(text).end());
    whole.resize(std::min<std::size_t>(whole.size(), kContext));
    const std::vector<float> read = reader.log_probabilities(*stream, whole);
    const std::vector<float> expected(read.begin() + std::ssize(prompts[text]) - 1, read.end());
    std::vector<float> found = alone.log_probabilities.at(text);
    found.resize(expected.size());
    CAPTURE(text);
    CHECK(same_bits(found, expected));
  }
}

TEST_CASE("text generator: log-probabilities have the bits of the forward pass of training",
          "[engine][text_generator][GEN-1]") {
  for (const auto& [model_type, ignored] : published_configs()) {
    CAPTURE(model_type);
    check_bits(published_writer(model_type));
  }
}

TEST_CASE("text generator: the same of our own models, whose norms rotate what they normalise",
          "[engine][text_generator][GEN-1]") {
  for (const Architecture architecture : {Architecture::enoki, Architecture::dstar_qwen3}) {
    check_bits(Writer(testing::small_shape(architecture)));
  }
}

TEST_CASE("text generator: the same of a block that keeps another state",
          "[engine][text_generator][GEN-1]") {
  ModelSpec spec = testing::small_shape(Architecture::enoki);
  spec.layers[1].branches[0].block = std::make_shared<const testing::MovingAverageSpec>();
  check_bits(Writer(spec));
}

TEST_CASE("text generator: what training's loss says of a text is what its tokens say",
          "[engine][text_generator][GEN-1]") {
  const Writer writer = published_writer("gemma2");
  const Tokens text = some_prompts()[2];
  const auto stream = kernels::make_inline_stream(1);
  TextGenerator reader = writer.generator(kContext, 1);
  const std::vector<float> read = reader.log_probabilities(*stream, text);
  double sum = 0.0;
  for (const float value : read) {
    sum += static_cast<double>(value);
  }
  std::vector<std::int32_t> targets(text.begin() + 1, text.end());
  targets.push_back(-1);
  CHECK(-sum == Approx(writer.cross_entropy(text, targets)).epsilon(1e-7));
}

/// Models of latent attention: with and without a latent of queries; with adapters on all maps,
/// which are what they add to the up-projection's rows.
std::vector<ModelSpec> latent_specs() {
  std::vector<ModelSpec> specs = {published_spec("deepseek_v3")};
  for (LayerSpec layer : specs.front().layers) {
    CHECK(find_block<LatentAttentionSpec>(layer) != nullptr);
  }
  ModelSpec plain = specs.front();
  for (LayerSpec& layer : plain.layers) {
    auto attention = block_of<LatentAttentionSpec>(layer);
    attention.query_rank = 0;
    attention.query = "self_attn.q_proj";
    layer.branches.front().block = std::make_shared<const LatentAttentionSpec>(attention);
  }
  specs.push_back(plain);
  plain.lora = {.rank = 3, .alpha = 2.0, .targets = {"all-linear"}};
  specs.push_back(plain);
  return specs;
}

TEST_CASE("text generator: with kept latents a text's bits are its own, alone and in any batch",
          "[engine][text_generator][GEN-1][latent_cache]") {
  const std::vector<Tokens> prompts = some_prompts();
  constexpr std::int64_t kNew = 12;
  for (const ModelSpec& spec : latent_specs()) {
    const Writer writer(spec);
    CAPTURE(spec.lora.rank);
    const Written alone = writer.write(kContext, 1, prompts, kNew, 1, 0.9, CacheForm::latent);
    for (const std::int64_t texts : {2, 5, 8}) {
      const Written together =
          writer.write(kContext, texts, prompts, kNew, 3, 0.9, CacheForm::latent);
      CHECK(together.tokens == alone.tokens);
      for (const auto& [text, found] : together.log_probabilities) {
        CHECK(same_bits(found, alone.log_probabilities.at(text)));
      }
    }
  }
}

TEST_CASE("text generator: kept latents give the text of kept keys and values",
          "[engine][text_generator][latent_cache]") {
  const std::vector<Tokens> prompts = some_prompts();
  constexpr std::int64_t kNew = 12;
  for (const ModelSpec& spec : latent_specs()) {
    const Writer writer(spec);
    CAPTURE(spec.lora.rank);
    const Written expected = writer.write(kContext, 5, prompts, kNew);
    const Written found = writer.write(kContext, 5, prompts, kNew, 1, 0.0, CacheForm::latent);
    CHECK(found.tokens == expected.tokens);
    double worst = 0.0;
    std::size_t others = 0;
    for (const auto& [text, values] : expected.log_probabilities) {
      const std::vector<float>& own = found.log_probabilities.at(text);
      REQUIRE(own.size() == values.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double off = std::abs(static_cast<double>(own[i]) - static_cast<double>(values[i]));
        worst = std::max(worst, off);
        others += own[i] != values[i] ? 1 : 0;
      }
      CHECK(own.front() == values.front());  // The first pass over a text is training's.
    }
    CHECK(worst < 2e-5);
    CHECK(others > 0);  // Another rounding: the latents were read.
  }
}

TEST_CASE("text generator: latents take a fraction of the memory of keys and values",
          "[engine][text_generator][latent_cache]") {
  const ModelSpec spec = published_spec("deepseek_v3");
  const auto expanded = cache_bytes(spec, CacheForm::expanded);
  const auto latent = cache_bytes(spec, CacheForm::latent);
  REQUIRE((expanded && latent));
  CHECK(expanded->token == 3 * 4 * 4 * (8 + 4 + 6));
  CHECK(latent->token == 3 * 4 * (16 + 4));
  // What a model of many texts allocates differs by as much.
  constexpr std::int64_t kTexts = 64;
  const auto planned = [&](std::int64_t texts, CacheForm form) {
    return static_cast<std::int64_t>(planned_activation_bytes(
        spec, 1, kContext, false, {.cached_texts = texts, .cache_form = form}));
  };
  const std::int64_t saved =
      planned(kTexts, CacheForm::expanded) - planned(kTexts, CacheForm::latent);
  const std::int64_t scratch = kTexts * 4 * 4 * (16 + 4 + 16);
  const std::int64_t all = kTexts * kContext * (expanded->token - latent->token);
  CHECK(saved >= all - 2 * scratch);
  CHECK_FALSE(cache_bytes(published_spec("llama"), CacheForm::latent));
  const auto windows = cache_bytes(published_spec("gemma3_text"), CacheForm::expanded);
  REQUIRE(windows);
  CHECK(windows->token == 3 * 4 * 2 * 8);
  CHECK(windows->windows.at(17) == 2 * 4 * 2 * 8);
}

TEST_CASE("text generator: a text that is told to end leaves its place to the next",
          "[engine][text_generator]") {
  const Writer writer = published_writer("llama");
  const std::vector<Tokens> prompts = some_prompts();
  const Written all = writer.write(kContext, 1, prompts, 6);
  TextGenerator generator = writer.generator(kContext, 2);
  const auto stream = kernels::make_inline_stream(1);
  std::map<std::size_t, Tokens> written;
  generator.generate(*stream,
                     {.prompts = prompts,
                      .tokens = 6,
                      .vocab = writer.spec().vocab_size,
                      .sampling = {.temperature = 0.0}},
                     [&](const NewToken& token) {
                       Tokens& text = written[token.text];
                       text.push_back(token.token);
                       return token.text % 2 == 0 || text.size() < 2;
                     });
  for (std::size_t text = 0; text < prompts.size(); ++text) {
    Tokens expected = all.tokens.at(text);
    expected.resize(text % 2 == 0 ? 6 : 2);
    CHECK(written.at(text) == expected);
  }
}

}  // namespace
}  // namespace train::engine::text_generator_test
