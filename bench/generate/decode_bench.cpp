// Speed and memory of decoding: latent attention with kept latents against kept keys and values, in
// turns on the same machine, and models of scans. Usage: bench_decode [THREADS [latents|scans]]. A
// missed target is reported, not a failure. Needs quiet cores.
#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "bench/generate/decoder.hpp"
#include "engine/generate/cache_bytes.hpp"
#include "engine/model/architectures/architectures.hpp"

namespace train::bench {
namespace {

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

}  // namespace

void decode_latents(int threads) {
  const engine::ModelSpec spec = small_deepseek();
  const Weights weights = fresh_weights(spec);
  const Decoder::Options options{.prompt = kPrompt, .tokens = kNew, .threads = threads};
  Decoder expanded(spec, weights, options);
  Decoder::Options narrow_options = options;
  narrow_options.cache = CacheForm::latent;
  Decoder latent(spec, weights, narrow_options);
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
}

}  // namespace train::bench

int main(int argc, char* argv[]) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const std::string_view part = argc > 2 ? argv[2] : "";
  if (part != "scans") {
    train::bench::decode_latents(threads);
  }
  if (part != "latents") {
    train::bench::decode_scans(threads);
  }
  return 0;
}
