#include "engine/generate/text_generator.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace train::engine {

TextGenerator::TextGenerator(const kernels::KernelTable& kernels, const ModelShape& shape,
                             std::int64_t context, std::vector<const float*> weights)
    : context_(context),
      model_(shape, kernels, 1, context, false),
      weights_(std::move(weights)),
      tokens_(static_cast<std::size_t>(context) * sizeof(std::int32_t), "prompt tokens"),
      logits_(static_cast<std::size_t>(shape.vocab_size) * sizeof(float), "logits") {
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
  return {logits_.as<float>(), static_cast<std::size_t>(model_.shape().vocab_size)};
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
