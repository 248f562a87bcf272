#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/process/descriptor.hpp"
#include "base/result.hpp"
#include "data/tokens/dataset_facts.hpp"

namespace train::data {

/// Token files of one split, cut into sequences of a fixed length T.
///
/// A file of N tokens holds (N - 1) / T sequences; a sequence never crosses files. Targets are the
/// tokens shifted by one. Threading: reading is const and thread-safe.
class TokenSplit {
 public:
  struct Layout {
    std::int64_t sequence_length = 256;           ///< T, tokens.
    std::optional<std::int64_t> said_bytes = {};  ///< Bytes per token, 2 or 4; nullopt: unknown.
    bool is_ours = false;                         ///< The files were written by `data prepare`.
    std::int64_t vocab_size = 0;                  ///< Vocabulary of the model; 0: no limit.
    std::int64_t said_vocab_size = 0;  ///< Vocabulary of the data in meta.json; 0: not given.
    bool may_be_short = false;         ///< Accept files without a whole sequence.
  };

  TokenSplit() = default;
  /// Maps `files`, in that order. Errors (user): unreadable, those of token_encoding_of(), fewer
  /// than T + 1 tokens in every file; an id at a file's beginning or end not less than
  /// `said_vocab_size`.
  static Result<TokenSplit> open(std::span<const std::filesystem::path> files,
                                 const Layout& layout);

  [[nodiscard]] std::uint64_t tokens() const { return tokens_; }
  [[nodiscard]] std::uint64_t sequences() const { return sequences_; }
  [[nodiscard]] std::int64_t sequence_length() const { return layout_.sequence_length; }

  /// Fills `tokens` and `targets` (T each) with sequence `index` < sequences(). Blocks on the disk
  /// if a page is not in memory. Errors: a token >= the vocabulary (user; names file, position,
  /// id).
  Status read(std::uint64_t index, std::span<std::int32_t> tokens,
              std::span<std::int32_t> targets) const;

  /// Number of files, in the order in which they were opened.
  [[nodiscard]] std::size_t file_count() const { return files_.size(); }
  [[nodiscard]] const std::filesystem::path& path(std::size_t file) const {
    return files_[file].path;
  }
  [[nodiscard]] std::uint64_t tokens_of(std::size_t file) const { return files_[file].tokens; }
  /// Size of the whole file.
  [[nodiscard]] std::uint64_t size_bytes_of(std::size_t file) const {
    return files_[file].size_bytes;
  }
  /// Encoding of a file's ids if not plain `said_bytes` from its beginning on; otherwise empty.
  [[nodiscard]] std::string encoding_of(std::size_t file) const;

  /// Reads from token `first` of a file on, at any position. REQUIRES: first + T < tokens_of(file).
  Status read_at(std::size_t file, std::uint64_t first, std::span<std::int32_t> tokens,
                 std::span<std::int32_t> targets) const;

 private:
  struct File {
    std::filesystem::path path;
    Mapping bytes;
    std::uint64_t size_bytes;
    std::uint64_t first_byte;
    std::uint64_t token_bytes;
    std::uint64_t tokens;
    std::uint64_t first_sequence;
  };
  Status add(const std::filesystem::path& path);
  /// Ids must be less than this.
  [[nodiscard]] std::uint32_t id_limit() const;
  /// True if all bits of a token of 32 bits or more are set: other programs' mark for no id.
  [[nodiscard]] static bool is_minus_one(const File& file, std::uint64_t position);
  [[nodiscard]] Error outside(const File& file, std::uint64_t position, std::uint32_t id) const;
  [[nodiscard]] Status check_said_vocabulary() const;
  [[nodiscard]] std::uint32_t token(const File& file, std::uint64_t position) const;

  Layout layout_;
  std::vector<File> files_;
  std::uint64_t tokens_ = 0;
  std::uint64_t sequences_ = 0;
};

struct DatasetOptions {
  std::int64_t sequence_length = 256;  ///< T, tokens; at least 1.
  std::int64_t vocab_size = 0;         ///< The model's; 0: that of meta.json, otherwise no limit.
  bool need_validation = true;         ///< false: a missing or too short val.bin is no error; a
                                       ///< malformed one is.
  const char* key = "data.dir";        ///< The run file's key that names the directory, for errors.
};

/// Directory of token files: `train.bin` or any `train*.bin` (in name order), `val.bin` or any
/// `val*.bin`, and optionally `meta.json`. If none is named so, files with `_train` and `_val` in
/// their names. `.npy` is accepted for `.bin`. Formats: data/README.md.
class TokenDataset {
 public:
  /// Maps the files; reads a few tokens of each. Errors (user): directory, file or permission
  /// missing, a size that is not a multiple of the token's, fewer than T + 1 tokens in every file
  /// of a split, meta.json malformed or inconsistent with the files or the model.
  static Result<TokenDataset> open(const std::filesystem::path& directory,
                                   const DatasetOptions& options);

  [[nodiscard]] const TokenSplit& train() const { return train_; }
  /// Has no sequences if val.bin is missing and was not needed.
  [[nodiscard]] const TokenSplit& validation() const { return validation_; }
  /// Existing validation files, even if none of their sequences is needed or fits.
  [[nodiscard]] const std::vector<std::filesystem::path>& validation_files() const {
    return validation_files_;
  }
  [[nodiscard]] const DatasetFacts& facts() const { return facts_; }
  /// Bytes of text per validation token, for bits per byte; nullopt if meta.json does not give it.
  [[nodiscard]] std::optional<double> bytes_per_token() const;

 private:
  TokenDataset() = default;

  TokenSplit train_;
  TokenSplit validation_;
  std::vector<std::filesystem::path> validation_files_;
  DatasetFacts facts_;
};

}  // namespace train::data
