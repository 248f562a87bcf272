#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "cli/checkpoints/trained_model.hpp"
#include "engine/generate/text_generator.hpp"
#include "run/model/text_codec.hpp"

namespace train::cli {

/// Visible text of tokens up to the first stop text, which ends it and is not shown. Text that may
/// become a stop text is held back. Not thread-safe. Borrows codec and stops, which must outlive
/// this object.
class StoppedText {
 public:
  StoppedText(const run::TextCodec& codec, std::span<const std::int32_t> prompt,
              const std::vector<std::string>& stops)
      : tokens_(codec, prompt), stops_(&stops) {}

  /// Text that can be shown after `token`.
  [[nodiscard]] std::string add(std::int32_t token) { return shown_of(tokens_.add(token), false); }
  /// Remaining text at the end.
  [[nodiscard]] std::string finish() { return shown_of(tokens_.finish(), true); }
  [[nodiscard]] bool stopped() const { return stopped_; }

 private:
  [[nodiscard]] std::string shown_of(const std::string& added, bool at_end);

  run::TextCodec::Stream tokens_;
  const std::vector<std::string>* stops_;
  std::string held_;
  bool stopped_ = false;
};

/// Texts to continue.
struct TextRequest {
  std::vector<std::vector<std::int32_t>> prompts;  ///< Encoded prompts; see TextCodec.
  std::int64_t tokens = 0;                         ///< Largest number of new tokens for each.
  engine::SamplingOptions sampling;
  std::vector<std::string> stops = {};  ///< Stop texts, non-empty.
};

/// Contribution of a token to a text.
struct WrittenToken {
  std::size_t text = 0;     ///< Index of the prompt.
  std::int32_t token = -1;  ///< -1: no token; held back text is shown.
  float log_probability = 0;
  std::string shown;  ///< May be empty.
};

/// Threads and memory for generation with one model: weights, activations, caches. Not thread-safe.
/// Borrows model and codec, which must outlive this object.
class TextWriter {
 public:
  TextWriter(const TrainedModel& model, const run::TextCodec& codec, std::int64_t threads,
             std::int64_t texts_at_once, engine::CacheForm cache = engine::CacheForm::expanded);

  /// Called for every token of each text; false ends that text.
  using OnToken = std::function<bool(const WrittenToken&)>;

  /// A text ends at an end-of-text token (not passed to `written`), at a stop text, or after
  /// `tokens`. Blocking.
  void write(const TextRequest& request, const OnToken& written);

 private:
  const run::TextCodec& codec_;
  std::unique_ptr<kernels::Stream> stream_;
  engine::TextGenerator generator_;
};

}  // namespace train::cli
