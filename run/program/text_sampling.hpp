#pragma once

#include <cstdint>
#include <vector>

#include "engine/lanes/text_lanes.hpp"

namespace train::run {

/// Texts that a run samples after a step, token by token: each is continued until a token ends it,
/// or it has as many new ones as it may. A plain class; the run's program owns it.
class TextSampling {
 public:
  using Tokens = std::vector<std::int32_t>;
  struct Options {
    std::vector<Tokens> prompts = {};  ///< Each has at least one token.
    std::int64_t tokens = 0;           ///< Largest number of new tokens of a text, 1 or more.
    Tokens ends = {};                  ///< Tokens that end a text, and are no part of it.
    std::int64_t vocab = 0;            ///< Ids that may be chosen are below it.
    std::int64_t context = 0;          ///< Tokens that the model sees at most.
  };

  TextSampling() = default;
  explicit TextSampling(Options options);

  /// Resets the texts to their prompts.
  void begin();
  /// Tokens that the next one of each text is computed from; for a finished text its first token
  /// alone, so that its lane costs little.
  [[nodiscard]] engine::TextTokens texts() const;
  /// Appends the next token of each text; tokens of finished texts are dropped. REQUIRES: one per
  /// text.
  void add(const Tokens& tokens);
  /// All texts are finished.
  [[nodiscard]] bool over() const;
  /// New tokens of each text, without the one that ended it.
  [[nodiscard]] const std::vector<Tokens>& sampled() const { return sampled_; }

 private:
  Options options_;
  std::vector<Tokens> sampled_;
  std::vector<bool> over_;
};

}  // namespace train::run
