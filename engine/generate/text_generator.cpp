#include "engine/generate/text_generator.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"
#include "kernels/backend.hpp"
#include "kernels/head/log_probs.hpp"

namespace train::engine {
namespace {

std::size_t bytes_for(std::int64_t count) {
  return static_cast<std::size_t>(count) * sizeof(std::int32_t);
}

/// Rows of the largest pass, with those of ModelSpec::prefix.
std::int64_t most_rows(const ModelSpec& spec, const TextGenerator::Sizes& sizes) {
  return std::max(sizes.context + spec.prefix_tokens, sizes.texts);
}

std::int64_t length_of(const std::vector<std::int32_t>& tokens) {
  return static_cast<std::int64_t>(tokens.size());
}

}  // namespace

// A row of each text has to fit beside each other, and a prompt as long as the context.
TextGenerator::TextGenerator(const kernels::KernelTable& kernels, const ModelSpec& spec,
                             const Sizes& sizes, std::vector<const float*> weights)
    : kernels_(&kernels),
      sizes_(sizes),
      model_(spec, kernels, 1, std::max(sizes.context, sizes.texts), false,
             {.cached_texts = sizes.texts, .cache_form = sizes.cache}),
      weights_(std::move(weights)),
      tokens_(bytes_for(std::max(sizes.context, sizes.texts)), "tokens of a pass"),
      positions_(bytes_for(most_rows(spec, sizes)), "positions of a pass"),
      places_(bytes_for(most_rows(spec, sizes)), "texts of a pass"),
      logits_(bytes_for(sizes.texts * spec.vocab_size), "logits"),
      targets_(bytes_for(sizes.texts), "chosen tokens"),
      log_probabilities_(bytes_for(sizes.texts), "log-probabilities") {
  static_assert(sizeof(float) == sizeof(std::int32_t));
  TRAIN_CHECK(sizes.context > 0 && sizes.texts > 0, "{} texts of {}", sizes.texts, sizes.context);
  TRAIN_CHECK(weights_.size() == model_.unit_count() && kernels.device->is_host());
}

UnitMemory TextGenerator::memory_of(std::size_t unit) const {
  // The embedding comes first; only a tied head looks at it.
  return {.weights = weights_[unit], .tied_weights = weights_.front()};
}

void TextGenerator::add_row(Pass& pass, const Text& text, std::int64_t token, std::int64_t position,
                            std::int64_t before) {
  tokens_.as<std::int32_t>()[rows_] = text.tokens[static_cast<std::size_t>(token)];
  positions_.as<std::int32_t>()[before + rows_] = static_cast<std::int32_t>(position);
  places_.as<std::int32_t>()[before + rows_] = text.place;
  ++rows_;
  pass.lane.tokens = tokens_.as<std::int32_t>();
  pass.lane.positions = positions_.as<std::int32_t>();
  pass.lane.texts = places_.as<std::int32_t>();
  pass.lane.with_gradient = false;
}

// Positions count the model's prefix, and texts that are filled have rows for it.
void TextGenerator::add_prefix(const Text& text) {
  for (std::int64_t row = 0; row < model_.spec().prefix_tokens; ++row) {
    positions_.as<std::int32_t>()[row] = static_cast<std::int32_t>(row);
    places_.as<std::int32_t>()[row] = text.place;
  }
}

// Texts are documents of one sequence, as many as fit; with a prefix before each, one.
TextGenerator::Pass TextGenerator::fill_pass(std::span<Text* const> waiting) {
  Pass pass;
  rows_ = 0;
  const std::int64_t prefix = model_.spec().prefix_tokens;
  for (Text* text : waiting) {
    const std::int64_t length = std::min(length_of(text->tokens), sizes_.context);
    if (rows_ > 0 && (prefix > 0 || rows_ + length > sizes_.context)) {
      break;
    }
    add_prefix(*text);
    const std::int64_t first = length_of(text->tokens) - length;
    for (std::int64_t position = 0; position < length; ++position) {
      add_row(pass, *text, first + position, prefix + position, prefix);
    }
    text->kept = length_of(text->tokens) <= sizes_.context ? length : 0;
    pass.texts.push_back(text);
    pass.last_rows.push_back(rows_ - 1);
  }
  pass.lane.sequences = 1;
  pass.lane.seq_len = rows_;
  pass.lane.cache = CacheUse::fill;
  return pass;
}

TextGenerator::Pass TextGenerator::extend_pass(std::span<Text* const> texts) {
  Pass pass;
  rows_ = 0;
  for (Text* text : texts) {
    add_row(pass, *text, text->kept, model_.spec().prefix_tokens + text->kept, 0);
    ++text->kept;
    pass.texts.push_back(text);
    pass.last_rows.push_back(rows_ - 1);
  }
  pass.lane.sequences = rows_;
  pass.lane.seq_len = 1;
  pass.lane.cache = CacheUse::extend;
  return pass;
}

void TextGenerator::forward(kernels::Stream& stream, const Lane& lane) {
  for (std::size_t unit = 0; unit < model_.unit_count(); ++unit) {
    model_.unit(unit).forward(stream, memory_of(unit), lane);
  }
}

// Rows that lie side by side are multiplied together: the head's matrix is read once.
void TextGenerator::compute_logits(kernels::Stream& stream, const Pass& pass) {
  const UnitMemory head = memory_of(model_.unit_count() - 1);
  const std::int64_t vocab = model_.spec().vocab_size;
  auto* logits = logits_.as<float>();
  if (pass.lane.cache == CacheUse::extend) {
    model_.row_logits(stream, head, 0, static_cast<std::int64_t>(pass.texts.size()), logits);
    return;
  }
  for (const std::int64_t row : pass.last_rows) {
    model_.row_logits(stream, head, row, 1, logits);
    logits += vocab;
  }
}

void TextGenerator::choose(kernels::Stream& stream, const Pass& pass, const Request& request,
                           std::vector<NewToken>& chosen) {
  const std::int64_t vocab = model_.spec().vocab_size;
  const auto rows = static_cast<std::int64_t>(pass.texts.size());
  const float cap = model_.spec().logit_softcap;
  std::vector<float> capped;
  for (std::int64_t i = 0; i < rows; ++i) {
    std::span<const float> logits(logits_.as<float>() + i * vocab, static_cast<std::size_t>(vocab));
    if (cap > 0.0F) {
      capped.assign(logits.begin(), logits.end());
      cap_logits(capped, cap);
      logits = capped;
    }
    targets_.as<std::int32_t>()[i] =
        sample_token(logits, request.vocab, request.sampling,
                     length_of(pass.texts[static_cast<std::size_t>(i)]->tokens));
  }
  kernels_->logits_log_probs(stream, {.logits = logits_.as<float>(),
                                      .targets = targets_.as<std::int32_t>(),
                                      .results = {.log_probs = log_probabilities_.as<float>()},
                                      .rows = rows,
                                      .vocab = vocab,
                                      .softcap = cap});
  stream.synchronize();
  for (std::int64_t i = 0; i < rows; ++i) {
    Text& text = *pass.texts[static_cast<std::size_t>(i)];
    text.tokens.push_back(targets_.as<std::int32_t>()[i]);
    ++text.made;
    chosen.push_back({.text = text.index,
                      .token = text.tokens.back(),
                      .log_probability = log_probabilities_.as<float>()[i]});
  }
}

// One new token of each text: texts whose last token alone is new in one pass, others as documents.
std::vector<TextGenerator::NewToken> TextGenerator::step(kernels::Stream& stream,
                                                         std::vector<Text>& texts,
                                                         const Request& request) {
  std::vector<Text*> extended;
  std::vector<Text*> filled;
  for (Text& text : texts) {
    const bool fits = length_of(text.tokens) <= sizes_.context;
    const bool kept = text.kept > 0 && text.kept + 1 == length_of(text.tokens);
    (fits && kept ? extended : filled).push_back(&text);
  }
  std::vector<NewToken> chosen;
  const auto run = [&](const Pass& pass) {
    forward(stream, pass.lane);
    compute_logits(stream, pass);
    stream.synchronize();
    choose(stream, pass, request, chosen);
  };
  if (!extended.empty()) {
    run(extend_pass(extended));
  }
  for (std::span<Text* const> waiting = filled; !waiting.empty();) {
    const Pass pass = fill_pass(waiting);
    run(pass);
    waiting = waiting.subspan(pass.texts.size());
  }
  std::sort(chosen.begin(), chosen.end(),
            [](const NewToken& a, const NewToken& b) { return a.text < b.text; });
  return chosen;
}

void TextGenerator::generate(kernels::Stream& stream, const Request& request,
                             const OnToken& on_token) {
  std::vector<Text> texts;
  std::vector<std::int32_t> free_places;
  for (std::int64_t place = sizes_.texts; place-- > 0;) {
    free_places.push_back(static_cast<std::int32_t>(place));
  }
  std::size_t next = 0;
  while (request.tokens > 0) {
    while (next < request.prompts.size() && !free_places.empty()) {
      TRAIN_CHECK(!request.prompts[next].empty(), "a prompt needs at least one token");
      texts.push_back(
          {.index = next, .place = free_places.back(), .tokens = request.prompts[next]});
      free_places.pop_back();
      ++next;
    }
    if (texts.empty()) {
      return;
    }
    std::vector<std::size_t> ended;
    for (const NewToken& token : step(stream, texts, request)) {
      if (!on_token(token)) {
        ended.push_back(token.text);
      }
    }
    std::erase_if(texts, [&](const Text& text) {
      const bool ends = text.made == request.tokens ||
                        std::find(ended.begin(), ended.end(), text.index) != ended.end();
      if (ends) {
        free_places.push_back(text.place);
      }
      return ends;
    });
  }
}

std::vector<float> TextGenerator::log_probabilities(kernels::Stream& stream, const Tokens& text) {
  const std::int64_t length = length_of(text);
  TRAIN_CHECK(length > 0 && length <= sizes_.context, "{} tokens, a context of {}", length,
              sizes_.context);
  std::copy(text.begin(), text.end(), tokens_.as<std::int32_t>());
  std::vector<std::int32_t> targets(text.begin() + 1, text.end());
  targets.push_back(-1);
  const Lane lane{.sequences = 1,
                  .seq_len = length,
                  .tokens = tokens_.as<std::int32_t>(),
                  .targets = targets.data(),
                  .with_gradient = false};
  const std::size_t head = model_.unit_count() - 1;
  for (std::size_t unit = 0; unit < head; ++unit) {
    model_.unit(unit).forward(stream, memory_of(unit), lane);
  }
  std::vector<float> log_probabilities(static_cast<std::size_t>(length));
  model_.row_log_probs(stream, memory_of(head), lane, {.log_probs = log_probabilities.data()});
  stream.synchronize();
  log_probabilities.pop_back();
  return log_probabilities;
}

}  // namespace train::engine
