#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "configs/run_config.hpp"
#include "data/tokenizer/text_stream.hpp"
#include "data/tokenizer/tokenizer.hpp"

namespace train::run {

/// `bytes` tokenizer for prompts: one token per byte. An empty text becomes one end-of-text token,
/// so that there is something to continue.
[[nodiscard]] std::vector<std::int32_t> encode_bytes(std::string_view text);

/// Display form of a token: its byte; end-of-text as a line break; control characters as '?'.
[[nodiscard]] std::string show_byte(std::int32_t token);

/// Converts a run's tokens to text and back: with the tokenizer of its model or of its data; or as
/// bytes. Threading: as Tokenizer.
class TextCodec {
 public:
  /// `vocab`: of the model; identifies bytes if nothing else does. Blocks. Errors (user): no
  /// tokenizer is found, and the tokens cannot be bytes; those of Tokenizer::load.
  /// The tokenizer is in the run's copy of its model, in model.from, or beside the data.
  static Result<TextCodec> of_run(const std::filesystem::path& run,
                                  const configs::RunConfig& config, std::int64_t vocab);

  /// Tokenizer in a published model's directory. Errors: those of Tokenizer::load.
  static Result<TextCodec> of_directory(const std::filesystem::path& directory, std::int64_t vocab);

  /// Encodes a prompt with the tokens that the tokenizer puts around a text, except at its end. An
  /// empty prompt becomes the end-of-text token, so that there is something to continue.
  [[nodiscard]] Result<std::vector<std::int32_t>> encode(std::string_view text) const;
  /// Encodes a text that already contains its special tokens, such as a chat template's: nothing is
  /// added.
  [[nodiscard]] Result<std::vector<std::int32_t>> encode_rendered(std::string_view text) const;
  /// Directory or file of the tokenizer; empty: bytes.
  [[nodiscard]] const std::filesystem::path& files() const { return files_; }
  /// Valid ids are less than this.
  [[nodiscard]] std::int64_t vocab() const { return vocab_; }
  /// Tokens that end a text, in no order.
  [[nodiscard]] const std::vector<std::int32_t>& ends() const { return ends_; }
  /// True if a token ends a text: the tokenizer's end-of-text, those named in the model's
  /// generation_config.json or config.json, and turn ends that a run's data trains; byte models
  /// continue past their end-of-text.
  [[nodiscard]] bool ends_text(std::int32_t token) const;

  /// Streaming decoder for tokens after a prompt: see data::TextStream.
  class Stream {
   public:
    Stream(const TextCodec& codec, std::span<const std::int32_t> prompt);
    /// Text added by `token`; empty while a character is incomplete.
    [[nodiscard]] std::string add(std::int32_t token);
    /// Returns the remaining text at the end.
    [[nodiscard]] std::string finish();

   private:
    std::optional<data::TextStream> text_;  ///< nullopt: bytes.
  };

 private:
  [[nodiscard]] Result<std::vector<std::int32_t>> checked(
      const std::vector<std::uint32_t>& ids) const;

  std::shared_ptr<const data::Tokenizer> tokenizer_;  ///< Null: bytes.
  std::filesystem::path files_;
  std::vector<std::int32_t> ends_;
  std::int64_t vocab_ = 0;
};

}  // namespace train::run
