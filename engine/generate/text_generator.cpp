#include "engine/generate/text_generator.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "base/check.hpp"
#include "engine/philox.hpp"

namespace train::engine {

namespace {

/// NaN counts as the least likely value, so that the order below is total.
double comparable(float logit) {
  return std::isnan(logit) ? -std::numeric_limits<double>::infinity() : static_cast<double>(logit);
}

/// Token ids, most likely first, ties by id; only the first `kept` are in order.
std::vector<std::int32_t> ranked(std::span<const float> logits, std::size_t kept) {
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto before = [&](std::int32_t a, std::int32_t b) {
    const double left = comparable(logits[static_cast<std::size_t>(a)]);
    const double right = comparable(logits[static_cast<std::size_t>(b)]);
    return left != right ? left > right : a < b;
  };
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(kept), ids.end(),
                    before);
  ids.resize(kept);
  return ids;
}

/// Probabilities of the ranked tokens at a temperature, cut to the nucleus.
std::vector<double> nucleus(std::span<const float> logits, const std::vector<std::int32_t>& ids,
                            const SamplingOptions& options) {
  const double largest = comparable(logits[static_cast<std::size_t>(ids.front())]);
  std::vector<double> weights;
  for (const std::int32_t id : ids) {
    const double logit = comparable(logits[static_cast<std::size_t>(id)]);
    weights.push_back(std::exp((logit - largest) / options.temperature));
  }
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  double reached = 0.0;
  std::size_t kept = 0;
  while (kept < weights.size() && (kept == 0 || reached < options.top_p * total)) {
    reached += weights[kept++];
  }
  weights.resize(kept);
  return weights;
}

}  // namespace

std::int32_t sample_token(std::span<const float> logits, std::int64_t vocab,
                          const SamplingOptions& options, std::int64_t position) {
  TRAIN_CHECK(vocab > 0 && static_cast<std::size_t>(vocab) <= logits.size());
  const auto real = logits.first(static_cast<std::size_t>(vocab));
  const bool greedy = options.temperature <= 0.0;
  std::size_t kept = real.size();
  if (options.top_k > 0) {
    kept = std::min(kept, static_cast<std::size_t>(options.top_k));
  }
  const std::vector<std::int32_t> ids = ranked(real, greedy ? 1 : kept);
  if (greedy || !std::isfinite(comparable(real[static_cast<std::size_t>(ids.front())]))) {
    return ids.front();
  }
  const std::vector<double> weights = nucleus(real, ids, options);
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  const auto words =
      philox_at(options.seed, static_cast<std::uint64_t>(position), RandomDomain::sampling);
  double left = open_unit(words[0]) * total;
  std::size_t chosen = 0;
  while (chosen + 1 < weights.size() && left >= weights[chosen]) {
    left -= weights[chosen++];
  }
  return ids[chosen];
}

TextGenerator::TextGenerator(const kernels::KernelTable& kernels, const ModelSpec& spec,
                             std::int64_t context, std::vector<const float*> weights)
    : context_(context),
      model_(spec, kernels, 1, context, false),
      weights_(std::move(weights)),
      tokens_(static_cast<std::size_t>(context) * sizeof(std::int32_t), "prompt tokens"),
      logits_(static_cast<std::size_t>(spec.vocab_size) * sizeof(float), "logits") {
  TRAIN_CHECK(weights_.size() == model_.unit_count() && kernels.device->is_host());
}

UnitMemory TextGenerator::memory_of(std::size_t unit) const {
  // The embedding comes first; only a tied head looks at it.
  return {.weights = weights_[unit], .tied_weights = weights_.front()};
}

std::span<const float> TextGenerator::next_logits(kernels::Stream& stream,
                                                  std::span<const std::int32_t> text) {
  const auto length = std::min(static_cast<std::int64_t>(text.size()), context_);
  std::copy(text.end() - length, text.end(), tokens_.as<std::int32_t>());
  const Lane lane{.step = 0,
                  .index = 0,
                  .sequences = 1,
                  .seq_len = length,
                  .tokens = tokens_.as<std::int32_t>(),
                  .with_gradient = false};
  for (std::size_t unit = 0; unit < model_.unit_count(); ++unit) {
    model_.unit(unit).forward(stream, memory_of(unit), lane);
  }
  model_.last_logits(stream, memory_of(model_.unit_count() - 1), lane, logits_.as<float>());
  stream.synchronize();
  if (const float cap = model_.spec().logit_softcap; cap > 0.0F) {
    std::transform(logits_.as<float>(), logits_.as<float>() + model_.spec().vocab_size,
                   logits_.as<float>(), [cap](float x) { return cap * std::tanh(x / cap); });
  }
  return {logits_.as<float>(), static_cast<std::size_t>(model_.spec().vocab_size)};
}

void TextGenerator::generate(kernels::Stream& stream, const Request& request,
                             const OnToken& on_token) {
  TRAIN_CHECK(!request.prompt.empty(), "a prompt needs at least one token");
  std::vector<std::int32_t> text = request.prompt;
  for (std::int64_t made = 0; made < request.tokens; ++made) {
    const auto logits = next_logits(stream, text);
    const std::int32_t token = sample_token(logits, request.vocab, request.sampling,
                                            static_cast<std::int64_t>(text.size()));
    text.push_back(token);
    if (!on_token(token)) {
      return;
    }
  }
}

}  // namespace train::engine
