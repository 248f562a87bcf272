#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "data/tokenizer/models/bpe.hpp"
#include "data/tokenizer/models/vocabulary.hpp"

namespace train::data {

/// Merges as pairs of texts, concatenated in one string.
class MergeList {
 public:
  void add(std::string_view left, std::string_view right);
  /// Valid until the next add().
  [[nodiscard]] std::vector<Bpe::MergeTexts> texts() const;

 private:
  struct Place {
    std::size_t begin = 0;
    std::size_t middle = 0;
    std::size_t end = 0;
  };
  std::string bytes_;
  std::vector<Place> places_;
};

/// Parsed tokenizer.json: vocabulary and merges, or scored pieces (nearly all of the file), and the
/// rest as a document.
struct TokenizerDocument {
  Vocabulary vocabulary;
  MergeList merges;
  std::vector<double> scores;  ///< By id, if the vocabulary is a list (Unigram models).
  std::unique_ptr<nlohmann::json> rest;
};

/// Adds a line "left right". Returns false if malformed; a version comment is skipped.
[[nodiscard]] bool add_merge_line(MergeList& merges, std::string_view line);

/// Largest id allowed in files, which bounds the memory of tables by id.
inline constexpr std::uint64_t kTokenIdLimit = std::uint64_t{1} << 24U;

/// Parses in one pass. Errors (user): invalid JSON, a malformed vocabulary or merges.
[[nodiscard]] Result<TokenizerDocument> read_tokenizer_document(std::string_view text);

}  // namespace train::data
