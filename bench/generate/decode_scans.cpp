#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "bench/generate/decoder.hpp"
#include "engine/model/architectures/architectures.hpp"

namespace train::bench {
namespace {

/// A model of configs/models/state_space, with fewer layers if `layers` is not 0.
engine::ModelSpec published(const std::string& name, std::int64_t layers = 0) {
  const std::string path = ACTORTRAIN_SOURCE_DIR "/configs/models/state_space/" + name + ".json";
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  engine::ModelSpec spec = engine::spec_from_config(text, path, 0).value();
  if (layers > 0) {
    spec.layers.resize(static_cast<std::size_t>(layers));
  }
  return spec;
}

void decode_batches(const std::string& name, int threads) {
  const engine::ModelSpec spec = published(name);
  const Weights weights = fresh_weights(spec);
  for (const auto& [texts, wanted] : {std::pair(1, 30.0), std::pair(32, 300.0)}) {
    Decoder decoder(spec, weights,
                    {.texts = texts, .prompt = 32, .tokens = 24, .threads = threads});
    std::vector<double> seconds;
    for (int turn = 0; turn < 3; ++turn) {
      seconds.push_back(decoder.seconds_a_token());
    }
    fmt::print("{}, {} texts: {:.1f} tokens/s, wanted {:.0f}\n", name, texts,
               texts / median(seconds), wanted);
  }
}

/// A token's time must not depend on how many came before it: four layers, so that prompts fit.
void decode_lengths(const std::string& name, int threads) {
  const engine::ModelSpec spec = published(name, 4);
  const Weights weights = fresh_weights(spec);
  std::vector<double> seconds;
  for (const std::int64_t prompt : {1024, 4096, 16384}) {
    Decoder decoder(spec, weights, {.prompt = prompt, .tokens = 64, .threads = threads});
    seconds.push_back(decoder.seconds_a_token());
    fmt::print("{}, 4 layers, behind {} tokens: {:.3f} ms a token\n", name, prompt,
               1e3 * seconds.back());
  }
  const auto [least, most] = std::minmax_element(seconds.begin(), seconds.end());
  fmt::print("{}: the slowest / the fastest {:.2f}, wanted 1.10 at most\n", name, *most / *least);
}

}  // namespace

void decode_scans(int threads) {
  for (const char* name : {"mamba-130m", "mamba2-130m"}) {
    decode_batches(name, threads);
    decode_lengths(name, threads);
  }
}

}  // namespace train::bench
