#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/generate/text_generator.hpp"
#include "engine/model/initial_weights.hpp"
#include "engine/model/model.hpp"
#include "kernels/backend.hpp"

// Parts shared by the measurements of bench_decode.
namespace train::bench {

using Weights = std::vector<std::vector<float>>;

/// Fresh weights of each unit.
inline Weights fresh_weights(const engine::ModelSpec& spec) {
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

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// A generator, and the time of its tokens behind prompts.
class Decoder {
 public:
  struct Options {
    std::int64_t texts = 1;
    std::int64_t prompt = 0;  ///< Tokens of each prompt.
    std::int64_t tokens = 0;  ///< New ones of each text.
    engine::CacheForm cache = engine::CacheForm::expanded;
    int threads = 1;
  };
  /// `weights` must outlive it.
  Decoder(const engine::ModelSpec& spec, const Weights& weights, const Options& options)
      : stream_(kernels::make_thread_stream("decode", options.threads)),
        generator_(kernels::cpu_backend(), spec,
                   {.context = options.prompt + options.tokens,
                    .texts = options.texts,
                    .cache = options.cache},
                   pointers(weights)) {
    for (std::int64_t text = 0; text < options.texts; ++text) {
      engine::TextGenerator::Tokens& prompt = request_.prompts.emplace_back();
      for (std::int64_t i = 0; i < options.prompt; ++i) {
        prompt.push_back(static_cast<std::int32_t>((i * i + 7 * i + text) % 509));
      }
    }
    request_.tokens = options.tokens;
    request_.vocab = spec.vocab_size;
    request_.sampling.temperature = 0.0;
  }

  /// Median time from one token of the first text to the next, which is that of a token of each.
  [[nodiscard]] double seconds_a_token() {
    std::vector<double> seconds;
    auto last = std::chrono::steady_clock::now();
    generator_.generate(*stream_, request_, [&](const engine::TextGenerator::NewToken& token) {
      if (token.text == 0) {
        const auto now = std::chrono::steady_clock::now();
        seconds.push_back(std::chrono::duration<double>(now - last).count());
        last = now;
      }
      return true;
    });
    seconds.erase(seconds.begin());  // The prompt's.
    return median(std::move(seconds));
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

/// Latents that are kept against keys and values, in turns.
void decode_latents(int threads);
/// Models of scans: tokens a second of one text and of many, and behind prompts of many lengths.
void decode_scans(int threads);

}  // namespace train::bench
