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

  /// Begins the texts anew, at their prompts.
  void begin();
  /// What the next token of each text follows from; of a text that is over its first token alone,
  /// so that its lane costs little.
  [[nodiscard]] engine::TextTokens texts() const;
  /// Appends the next token of each text; those of texts that are over are dropped. REQUIRES: one
  /// of each.
  void add(const Tokens& tokens);
  /// No text goes on.
  [[nodiscard]] bool over() const;
  /// New tokens of each text, without the one that ended it.
  [[nodiscard]] const std::vector<Tokens>& sampled() const { return sampled_; }

 private:
  Options options_;
  std::vector<Tokens> sampled_;
  std::vector<bool> over_;
};

}  // namespace train::run
