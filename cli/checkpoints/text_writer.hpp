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
#include "cli/checkpoints/text_codec.hpp"
#include "cli/checkpoints/trained_model.hpp"
#include "engine/generate/text_generator.hpp"

namespace train::cli {

/// What a text shows of its tokens, up to the first stop text, which ends it and is not shown. What
/// may yet become a stop text is held back.
/// Not thread-safe. Borrows codec and stops, which must outlive this.
class StoppedText {
 public:
  StoppedText(const TextCodec& codec, std::span<const std::int32_t> prompt,
              const std::vector<std::string>& stops)
      : tokens_(codec, prompt), stops_(&stops) {}

  /// What can be shown now that `token` has come.
  [[nodiscard]] std::string add(std::int32_t token) { return shown_of(tokens_.add(token), false); }
  /// What is left to be shown at the end.
  [[nodiscard]] std::string finish() { return shown_of(tokens_.finish(), true); }
  [[nodiscard]] bool stopped() const { return stopped_; }

 private:
  [[nodiscard]] std::string shown_of(const std::string& added, bool at_end);

  TextCodec::Stream tokens_;
  const std::vector<std::string>* stops_;
  std::string held_;
  bool stopped_ = false;
};

/// Texts to be continued.
struct TextRequest {
  std::vector<std::vector<std::int32_t>> prompts;  ///< See TextCodec.
  std::int64_t tokens = 0;                         ///< New tokens of each at most.
  engine::SamplingOptions sampling;
  std::vector<std::string> stops = {};  ///< Texts that end a text; none of them empty.
};

/// What a token adds to a text.
struct WrittenToken {
  std::size_t text = 0;     ///< Index of the prompt.
  std::int32_t token = -1;  ///< -1: none; what was held back is shown.
  float log_probability = 0;
  std::string shown;  ///< May be empty.
};

/// Threads and memory for continuing texts with one model: weights, activations, caches.
/// Not thread-safe. Borrows model and codec, which must outlive this.
class TextWriter {
 public:
  TextWriter(const TrainedModel& model, const TextCodec& codec, std::int64_t threads,
             std::int64_t texts_at_once);

  /// Called with every token of each text; false ends that text.
  using OnToken = std::function<bool(const WrittenToken&)>;

  /// A text ends with the tokens that end texts (not given to `written`), with a stop text, or
  /// after `tokens`. Blocking.
  void write(const TextRequest& request, const OnToken& written);

 private:
  const TextCodec& codec_;
  std::unique_ptr<kernels::Stream> stream_;
  engine::TextGenerator generator_;
};

}  // namespace train::cli
