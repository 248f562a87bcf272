#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "data/prepare/prepare.hpp"
#include "data/tokens/dataset_facts.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/files/digest.hpp"
#include "storage/inputs/record_cutter.hpp"

// Parts shared by preparing bytes and preparing a tokenizer's tokens.
namespace train::data {

class Tokenizer;

/// The token that ends every document. `source`: the directory or file of the tokenizer, for the
/// error (user): it has none.
[[nodiscard]] Result<std::uint32_t> end_of_text_of(const Tokenizer& tokenizer,
                                                   const std::string& source);

/// Hash in [0, 1) that depends only on the document's number and the seed.
[[nodiscard]] double document_hash(std::uint64_t seed, std::uint64_t document);

/// Counts from the first pass.
struct TokenCensus {
  std::uint64_t documents = 0;
  std::uint64_t tokens = 0;
  std::uint64_t hashed_tokens = 0;  ///< Tokens of documents that the hash assigns to validation.

  bool operator==(const TokenCensus&) const = default;
};

/// Assignment of tokens to validation.
struct SplitPlan {
  bool whole_documents = true;
  std::uint64_t tail_begin = 0;  ///< Otherwise: index of the first validation token.
};

[[nodiscard]] SplitPlan make_split_plan(const TokenCensus& census, double val_fraction);

/// Writes tokens, little-endian, in large pieces. Threading: one owner.
class TokenWriter {
 public:
  /// `token_bytes`: 2 or 4.
  TokenWriter(storage::AtomicFile file, std::int64_t token_bytes);

  /// Adds the bytes of a text as tokens.
  Status add(std::span<const std::byte> text);
  Status add_token(std::uint32_t token);
  /// Counts text bytes of tokens passed to add_token().
  void count_text(std::uint64_t bytes) { text_bytes_ += bytes; }

  /// Makes all bytes durable under the hidden name.
  Status finish();
  Status commit() { return file_.commit(); }

  [[nodiscard]] std::uint64_t tokens() const { return tokens_; }
  [[nodiscard]] std::uint64_t text_bytes() const { return text_bytes_; }
  [[nodiscard]] std::int64_t token_bytes() const { return token_bytes_; }
  /// Digest over all bytes of the file. REQUIRES: finish() was called.
  [[nodiscard]] std::string digest() const { return digest_.finish(); }

 private:
  Status flush();

  storage::AtomicFile file_;
  storage::StreamingDigest digest_;
  std::string buffer_;
  std::int64_t token_bytes_;
  std::uint64_t tokens_ = 0;
  std::uint64_t text_bytes_ = 0;
};

/// Files of both splits, under hidden names.
struct TokenWriters {
  TokenWriter train;
  TokenWriter val;

  /// Errors: as AtomicFile.
  static Result<TokenWriters> create(const std::filesystem::path& out, std::int64_t token_bytes);
};

/// Report of what was written, without the counts that only the input gives.
[[nodiscard]] PrepareReport token_report(const TokenCensus& census, const SplitPlan& plan,
                                         const TokenWriters& writers);
/// Counts the input records that yield no document.
class DropCount {
 public:
  explicit DropCount(const PrepareRequest& request) : request_(request) {}

  /// Errors (user): if the first thousand records all yield none.
  Status add(storage::LineFault fault, const std::filesystem::path& input,
             const storage::InputRecord& record, std::uint64_t documents);
  /// Called after all records. Errors (user): more dropped than the request allows; no document at
  /// all. Both name every cause.
  [[nodiscard]] Status check(std::uint64_t documents) const;

  [[nodiscard]] const std::array<storage::DropTally, storage::kLineFaultCount>& by_fault() const {
    return by_fault_;
  }

 private:
  const PrepareRequest& request_;
  std::array<storage::DropTally, storage::kLineFaultCount> by_fault_ = {};
  std::string no_text_advice_ = {};  ///< Advice from the first record without a text.
  std::uint64_t dropped_ = 0;
};

/// Progress over all passes of the input.
class ReadProgress {
 public:
  ReadProgress(const PrepareProgress& callback, std::uint64_t total)
      : callback_(callback), total_(total) {}
  void advance(std::uint64_t bytes);

 private:
  const PrepareProgress& callback_;
  std::uint64_t total_;
  std::uint64_t done_ = 0;
};

/// Token or row files of an earlier run in `directory`, meta.json first.
[[nodiscard]] Result<std::vector<std::filesystem::path>> earlier_files(
    const std::filesystem::path& directory);

/// True if these files of a directory are data. Row files without meta.json, and files of an
/// unfinished replacement, are left over from a killed run.
[[nodiscard]] bool holds_data(const std::filesystem::path& directory,
                              const std::vector<std::filesystem::path>& files);

/// Folder in the output directory where rows are written before publication.
inline constexpr const char* kRowsStagingFolder = ".rows.tmp";

/// Removes hidden files of a killed run. REQUIRES: the lock is held.
Status remove_hidden(const std::filesystem::path& directory);

/// Replaces the content of `out`: removes earlier files, facts first; calls `place` to put the new
/// ones there; copies the tokenizer's files beside them unless `tokenizer` is "bytes"; calls
/// `write_facts` last (ST-6). `out` is marked as unfinished meanwhile, and stays so if interrupted.
Status publish_data(const std::filesystem::path& out, const std::string& tokenizer,
                    const std::function<Status()>& place,
                    const std::function<Status()>& write_facts);

/// Publishes the tokens of both files. Fills in the members of `facts` that the files determine.
Status publish_tokens(const PrepareRequest& request, DatasetFacts facts, TokenWriters& writers);

}  // namespace train::data
