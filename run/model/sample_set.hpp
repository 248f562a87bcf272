#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "configs/run_config.hpp"
#include "run/model/text_codec.hpp"

namespace train::run {

/// Texts that a run samples while it trains: 0 if it samples none.
[[nodiscard]] std::int64_t samples_of(const configs::RunSection& section);

/// Prompts that a run continues while it trains (run.sample_interval_steps): first texts, then
/// chats, as tokens; and what is written of the texts. Immutable.
class SampleSet {
 public:
  using Tokens = std::vector<std::int32_t>;

  /// Tokenizes them with the tokenizer of the run in `root`, which may not exist yet, for a model
  /// of `vocab` tokens. Chats are rendered with the template of the data's conversations, of the
  /// run's model or of model.from, on a fixed day. Blocks. Errors (user): no tokenizer or template
  /// is found; a prompt that is not a conversation, that the template refuses, or of tokens that
  /// the model does not know: names the key and the prompt.
  [[nodiscard]] static Result<SampleSet> open(const configs::RunConfig& config,
                                              const std::filesystem::path& root,
                                              std::int64_t vocab);

  [[nodiscard]] const std::vector<Tokens>& prompts() const { return prompts_; }
  /// The prompts as the run file has them.
  [[nodiscard]] const std::vector<std::string>& shown() const { return shown_; }
  [[nodiscard]] const TextCodec& codec() const { return codec_; }
  /// UTF-8 of the tokens that follow a prompt; what is no character is shown as U+FFFD.
  [[nodiscard]] std::string text(std::size_t prompt, std::span<const std::int32_t> tokens) const;

 private:
  explicit SampleSet(TextCodec codec) : codec_(std::move(codec)) {}

  TextCodec codec_;
  std::vector<std::string> shown_;
  std::vector<Tokens> prompts_;
};

}  // namespace train::run
