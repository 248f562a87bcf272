#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/files/digest.hpp"
#include "storage/tokens/dataset_facts.hpp"
#include "storage/tokens/prepare.hpp"

// What preparing bytes and preparing a tokenizer's tokens have alike.
namespace train::storage {

/// A number in [0, 1) that depends on the document's number and the seed alone.
[[nodiscard]] double document_hash(std::uint64_t seed, std::uint64_t document);

/// What the first reading finds out.
struct TokenCensus {
  std::uint64_t documents = 0;
  std::uint64_t tokens = 0;
  std::uint64_t hashed_tokens = 0;  ///< Of the documents that the hash gives to validation.

  bool operator==(const TokenCensus&) const = default;
};

/// Which tokens are for validation.
struct SplitPlan {
  bool whole_documents = true;
  std::uint64_t tail_begin = 0;  ///< If not: the first validation token of all.
};

[[nodiscard]] SplitPlan make_split_plan(const TokenCensus& census, double val_fraction);

/// Writes tokens, little-endian, in large pieces. Threading: one owner.
class TokenWriter {
 public:
  /// `token_bytes`: 2 or 4.
  TokenWriter(AtomicFile file, std::int64_t token_bytes);

  /// Tokens that are bytes of a text.
  Status add(std::span<const std::byte> text);
  Status add_token(std::uint32_t token);
  /// Bytes of text behind tokens that add_token() took.
  void count_text(std::uint64_t bytes) { text_bytes_ += bytes; }

  /// All bytes durable under the hidden name.
  Status finish();
  Status commit() { return file_.commit(); }

  [[nodiscard]] std::uint64_t tokens() const { return tokens_; }
  [[nodiscard]] std::uint64_t text_bytes() const { return text_bytes_; }
  [[nodiscard]] std::int64_t token_bytes() const { return token_bytes_; }
  /// Of all bytes of the file. REQUIRES: finish() before.
  [[nodiscard]] std::string digest() const { return digest_.finish(); }

 private:
  Status flush();

  AtomicFile file_;
  StreamingDigest digest_;
  std::string buffer_;
  std::int64_t token_bytes_;
  std::uint64_t tokens_ = 0;
  std::uint64_t text_bytes_ = 0;
};

/// The files of both splits, under hidden names.
struct TokenWriters {
  TokenWriter train;
  TokenWriter val;

  /// Errors: as AtomicFile.
  static Result<TokenWriters> create(const std::filesystem::path& out, std::int64_t token_bytes);
};

/// What was written, without what only the input tells.
[[nodiscard]] PrepareReport token_report(const TokenCensus& census, const SplitPlan& plan,
                                         const TokenWriters& writers);
/// Counts the records of a reading that give no document.
class DropCount {
 public:
  explicit DropCount(const PrepareRequest& request) : request_(request) {}

  /// Errors (user): the first thousand records, all of them.
  Status add(LineFault fault, const std::filesystem::path& input, const InputRecord& record,
             std::uint64_t documents);
  /// After all: errors (user): more than the request allows; no document at all.
  [[nodiscard]] Status check(std::uint64_t documents) const;

  [[nodiscard]] const std::array<DropTally, line_fault_count>& by_fault() const {
    return by_fault_;
  }

 private:
  const PrepareRequest& request_;
  std::array<DropTally, line_fault_count> by_fault_ = {};
  std::string no_text_advice_ = {};  ///< Of the first record without one.
  std::uint64_t dropped_ = 0;
};

/// Counts progress over all readings of the input.
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

/// Files of tokens or rows of an earlier run in `directory`, meta.json first.
[[nodiscard]] Result<std::vector<std::filesystem::path>> earlier_files(
    const std::filesystem::path& directory);

/// Whether these files of a directory are data: files of rows alone, without meta.json, and those
/// of a publication that did not end are what a killed run left.
[[nodiscard]] bool holds_data(const std::filesystem::path& directory,
                              const std::vector<std::filesystem::path>& files);

/// In the output directory: where rows are written before they are published.
inline constexpr const char* rows_staging_folder = ".rows.tmp";

/// Removes hidden files of a run that was killed. REQUIRES: the lock is held.
Status remove_hidden(const std::filesystem::path& directory);

/// Replaces what `out` holds: earlier files go, facts first, then `place` puts the new ones there,
/// the tokenizer's are copied beside them unless `tokenizer` is "bytes", and `write_facts` comes
/// last (ST-6). Meanwhile `out` is marked as unfinished, and stays so if this is stopped.
Status publish_data(const std::filesystem::path& out, const std::string& tokenizer,
                    const std::function<Status()>& place,
                    const std::function<Status()>& write_facts);

/// Publishes the tokens of both files. Of `facts` what the files decide is filled in.
Status publish_tokens(const PrepareRequest& request, DatasetFacts facts, TokenWriters& writers);

}  // namespace train::storage
