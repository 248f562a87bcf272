// Speed and memory of decoding with latent attention: kept latents against kept keys and values, in
// turns on the same machine. Usage: bench_decode [THREADS]. A missed target is reported, not a
// failure. Needs quiet cores.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/generate/cache_bytes.hpp"
#include "engine/generate/text_generator.hpp"
#include "engine/model/architectures/architectures.hpp"
#include "engine/model/initial_weights.hpp"
#include "engine/model/model.hpp"

namespace {

using namespace train;
using engine::CacheForm;

constexpr std::int64_t kPrompt = 4096;
constexpr std::int64_t kNew = 48;
constexpr int kTurns = 9;

/// DeepSeek-V3's layers without experts: width 512, 8 heads, latents of 128 + 32.
engine::ModelSpec small_deepseek() {
  const std::string config = R"({"model_type": "deepseek_v3", "vocab_size": 512,
    "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 8, "q_lora_rank": null,
    "kv_lora_rank": 128, "qk_rope_head_dim": 32, "qk_nope_head_dim": 64, "v_head_dim": 64,
    "n_routed_experts": 8, "n_group": 1, "topk_group": 1, "moe_intermediate_size": 64,
    "first_k_dense_replace": 4, "max_position_embeddings": 8192, "rms_norm_eps": 1e-6})";
  return engine::spec_from_config(config, "bench_decode", kPrompt + kNew).value();
}

using Weights = std::vector<std::vector<float>>;

Weights weights_of(const engine::ModelSpec& spec) {
  Weights units;
  for (const engine::UnitParameters& unit : engine::describe_units(spec)) {
    units.emplace_back(static_cast<std::size_t>(unit.element_count));
    for (const engine::Parameter& parameter : unit.parameters) {
      const auto elements = std::span(units.back())
                                .subspan(static_cast<std::size_t>(parameter.offset),
                                         static_cast<std::size_t>(parameter.count()));
      engine::fill_initial_rows(parameter, spec, {.seed = 1}, 0, parameter.rows(), elements);
    }
  }
  return units;
}

/// A generator, and the median time of its tokens behind a prompt.
class Decoder {
 public:
  Decoder(const engine::ModelSpec& spec, const Weights& weights, CacheForm form, int threads)
      : stream_(kernels::make_thread_stream("decode", threads)),
        generator_(kernels::cpu_backend(), spec,
                   {.context = kPrompt + kNew, .texts = 1, .cache = form}, pointers(weights)) {
    engine::TextGenerator::Tokens& prompt = request_.prompts.emplace_back();
    for (std::int64_t i = 0; i < kPrompt; ++i) {
      prompt.push_back(static_cast<std::int32_t>((i * i + 7 * i) % 509));
    }
    request_.tokens = kNew;
    request_.vocab = spec.vocab_size;
    request_.sampling.temperature = 0.0;
  }

  [[nodiscard]] double seconds_a_token() {
    std::vector<double> seconds;
    auto last = std::chrono::steady_clock::now();
    generator_.generate(*stream_, request_, [&](const engine::TextGenerator::NewToken&) {
      const auto now = std::chrono::steady_clock::now();
      seconds.push_back(std::chrono::duration<double>(now - last).count());
      last = now;
      return true;
    });
    seconds.erase(seconds.begin());  // The prompt's.
    std::sort(seconds.begin(), seconds.end());
    return seconds[seconds.size() / 2];
  }

 private:
  static std::vector<const float*> pointers(const Weights& weights) {
    std::vector<const float*> all;
    for (const auto& unit : weights) {
      all.push_back(unit.data());
    }
    return all;
  }

  std::unique_ptr<kernels::Stream> stream_;
  engine::TextGenerator generator_;
  engine::TextGenerator::Request request_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char* argv[]) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const engine::ModelSpec spec = small_deepseek();
  const Weights weights = weights_of(spec);
  Decoder expanded(spec, weights, CacheForm::expanded, threads);
  Decoder latent(spec, weights, CacheForm::latent, threads);
  std::vector<double> of_expanded, of_latent, ratios;
  for (int turn = 0; turn < kTurns; ++turn) {
    of_expanded.push_back(expanded.seconds_a_token());
    of_latent.push_back(latent.seconds_a_token());
    ratios.push_back(of_expanded.back() / of_latent.back());
  }
  fmt::print(
      "{}, {} threads; 4 layers of 512, 8 heads of 96 and 64, latents of 128 + 32; {} tokens\n",
      kernels::kernel_set(), threads, kPrompt);
  fmt::print("tokens/s: {:.1f} with keys and values, {:.1f} with latents\n",
             1.0 / median(of_expanded), 1.0 / median(of_latent));
  const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
  fmt::print("ratio {:.2f} ({:.2f} to {:.2f}), wanted 1.0\n", median(ratios), *least, *most);
  const auto kept = engine::cache_bytes(spec, CacheForm::expanded)->token;
  const auto narrow = engine::cache_bytes(spec, CacheForm::latent)->token;
  fmt::print("bytes a token: {} and {}, ratio {:.3f}, wanted 0.2 at most\n", kept, narrow,
             static_cast<double>(narrow) / static_cast<double>(kept));
  return 0;
}
