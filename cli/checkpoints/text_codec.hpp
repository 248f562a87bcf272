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
#include "storage/tokenizer/text_stream.hpp"
#include "storage/tokenizer/tokenizer.hpp"

namespace train::cli {

/// What turns a run's tokens into text and back: the tokenizer that its data was made with, kept
/// with the model or beside the data; or bytes.
/// Threading: as Tokenizer.
class TextCodec {
 public:
  /// `vocab`: of the model; tells bytes where nothing else does. Blocks.
  /// Errors (user): no tokenizer is to be found, and the tokens cannot be bytes; those of
  /// Tokenizer::load.
  static Result<TextCodec> of_run(const std::filesystem::path& run,
                                  const configs::RunConfig& config, std::int64_t vocab);

  /// The tokenizer in a published model's directory. Errors: those of Tokenizer::load.
  static Result<TextCodec> of_directory(const std::filesystem::path& directory, std::int64_t vocab);

  /// A prompt; what the tokenizer adds to every text is added, but for an end. An empty one is the
  /// end-of-text, so that there is always something to continue.
  [[nodiscard]] Result<std::vector<std::int32_t>> encode(std::string_view text) const;
  /// The same of a text that holds its special tokens already, as a chat template's does: nothing
  /// is added.
  [[nodiscard]] Result<std::vector<std::int32_t>> encode_rendered(std::string_view text) const;
  /// The directory or file of the tokenizer; empty: bytes.
  [[nodiscard]] const std::filesystem::path& files() const { return files_; }
  /// Ids that mean something: those below it.
  [[nodiscard]] std::int64_t vocab() const { return vocab_; }
  /// Whether a token ends a text: the tokenizer's end-of-text, what the model's
  /// generation_config.json or config.json names as such, and what a run's data trains as the end
  /// of an assistant's turn; bytes go on after theirs.
  [[nodiscard]] bool ends_text(std::int32_t token) const;

  /// The text of tokens that come behind a prompt one after the other: see storage::TextStream.
  class Stream {
   public:
    Stream(const TextCodec& codec, std::span<const std::int32_t> prompt);
    /// What `token` adds to the text; nothing while a character is not complete.
    [[nodiscard]] std::string add(std::int32_t token);
    /// What is left at the end.
    [[nodiscard]] std::string finish();

   private:
    std::optional<storage::TextStream> text_;  ///< None: bytes.
  };

 private:
  [[nodiscard]] Result<std::vector<std::int32_t>> checked(
      const std::vector<std::uint32_t>& ids) const;

  std::shared_ptr<const storage::Tokenizer> tokenizer_;  ///< Null: bytes.
  std::filesystem::path files_;
  std::vector<std::int32_t> ends_;
  std::int64_t vocab_ = 0;
};

}  // namespace train::cli
