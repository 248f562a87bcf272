#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "data/rows/packing.hpp"
#include "data/rows/row_facts.hpp"
#include "data/rows/row_format.hpp"
#include "storage/files/atomic_file.hpp"
#include "storage/files/digest.hpp"

namespace train::data {

/// Document to be written.
struct RowText {
  std::vector<std::uint32_t> tokens = {};  ///< At least one token.
  std::vector<bool> trained = {};          ///< For each token, as a target; false for the first.
  std::vector<float> weights = {};         ///< For each token; empty: all 1.
};

/// KTO's mismatched document: the tokens of `prompt` before its first trained one, then those of
/// `answer` from its first trained one on, up to `length_most` tokens; marked as trained as in
/// `answer`. Pure. REQUIRES: each has a trained token, in `prompt` before `length_most`.
[[nodiscard]] RowText mismatched_text(const RowText& prompt, const RowText& answer,
                                      std::size_t length_most);

/// File of one split, with a digest of its bytes. Threading: one owner.
class RowPartWriter {
 public:
  static Result<RowPartWriter> create(const std::filesystem::path& path);

  Status write(std::string_view bytes);
  template <class Record>
  Status write_record(const Record& record) {
    return write({reinterpret_cast<const char*>(&record), sizeof record});
  }
  /// Durable, under its name.
  Status commit() { return file_.commit(); }
  [[nodiscard]] std::string digest() const { return digest_.finish(); }

 private:
  explicit RowPartWriter(storage::AtomicFile file) : file_(std::move(file)) {}

  storage::AtomicFile file_;
  storage::StreamingDigest digest_;
};

struct RowLayout {
  std::int64_t token_bytes = 4;
  std::uint32_t row_length = 0;
  Packing packing = Packing::bfd;
  std::uint64_t seed = 0;
};

/// Writes the files of one split to a directory: documents as they are added, and in finish() the
/// packed rows. The bytes are a pure function of the documents and the layout. Memory: 4 bytes per
/// document or pair, and a window of rows. Threading: one owner. All calls block.
class RowSplitWriter {
 public:
  static Result<RowSplitWriter> create(const std::filesystem::path& directory,
                                       const std::string& split, const RowLayout& layout);

  /// Adds a plain document.
  Status add(const RowText& text, std::uint32_t source);
  /// Adds a KTO example. Its mismatched document (mismatched_text()) has the answer of the next
  /// example added, the last one's that of the first; both lie in the same row. REQUIRES: at most
  /// half a row of tokens, one of them trained.
  Status add_labelled(const RowText& text, std::uint32_t source, bool desirable);
  /// Adds a preference pair; both documents lie in the same row.
  Status add_pair(const RowText& chosen, const RowText& rejected, std::uint32_t source);

  /// Packs, and makes all files durable under their names. REQUIRES: nothing is added afterwards.
  Status finish();
  /// REQUIRES: finish() was called.
  [[nodiscard]] const RowCounts& counts() const { return counts_; }
  [[nodiscard]] bool has_weights() const { return weights_.has_value(); }
  /// Writes weights even if all were 1, as the other split has some.
  Status keep_weights();

 private:
  RowSplitWriter(std::filesystem::path directory, std::string split, const RowLayout& layout)
      : directory_(std::move(directory)), split_(std::move(split)), layout_(layout) {}
  Result<RowPartWriter> part(std::string_view name) const;
  Status add_document(const RowText& text, const DocumentRecord& record);
  /// Writes the waiting example, with the answer of `next`.
  Status add_waiting(const RowText& next);
  Status add_mask(const std::vector<bool>& trained);
  Status commit_documents();
  Status pack();

  std::filesystem::path directory_;
  std::string split_;
  RowLayout layout_;
  std::optional<RowPartWriter> tokens_;
  std::optional<RowPartWriter> mask_;
  std::optional<RowPartWriter> weights_;
  std::optional<RowPartWriter> documents_;
  std::vector<std::uint32_t> lengths_;  ///< Tokens of each group: a document, or both sides of a
                                        ///< pair.
  bool in_pairs_ = false;
  struct Labelled {
    RowText text;
    std::uint32_t source = 0;
    bool desirable = true;
  };
  std::optional<RowText> first_labelled_;
  std::optional<Labelled> waiting_;
  std::string piece_;
  unsigned mask_byte_ = 0;
  RowCounts counts_;
  std::string digests_;
};

}  // namespace train::data
