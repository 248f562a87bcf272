#include "run/program/text_sampling.hpp"

#include <algorithm>
#include <utility>

#include "base/check.hpp"

namespace train::run {

TextSampling::TextSampling(Options options) : options_(std::move(options)) { begin(); }

void TextSampling::begin() {
  sampled_.assign(options_.prompts.size(), {});
  over_.assign(options_.prompts.size(), options_.tokens == 0);
}

engine::TextTokens TextSampling::texts() const {
  engine::TextTokens texts{.vocab = options_.vocab, .context = options_.context};
  for (std::size_t i = 0; i < sampled_.size(); ++i) {
    Tokens text = options_.prompts[i];
    if (over_[i]) {
      text.resize(1);
    } else {
      text.insert(text.end(), sampled_[i].begin(), sampled_[i].end());
    }
    const std::int64_t length = std::ssize(text);
    const std::int64_t unseen = std::max<std::int64_t>(0, length - options_.context);
    texts.lengths.push_back(length);
    texts.tokens.insert(texts.tokens.end(), text.begin() + unseen, text.end());
  }
  return texts;
}

void TextSampling::add(const Tokens& tokens) {
  TRAIN_CHECK(tokens.size() == sampled_.size(), "{} tokens of {} texts", tokens.size(),
              sampled_.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (over_[i]) {
      continue;
    }
    if (std::ranges::find(options_.ends, tokens[i]) != options_.ends.end()) {
      over_[i] = true;
      continue;
    }
    sampled_[i].push_back(tokens[i]);
    over_[i] = std::ssize(sampled_[i]) == options_.tokens;
  }
}

bool TextSampling::over() const { return std::ranges::find(over_, false) == over_.end(); }

}  // namespace train::run
