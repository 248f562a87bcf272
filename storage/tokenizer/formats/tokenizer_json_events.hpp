#pragma once

#include <cstddef>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "storage/tokenizer/models/bpe.hpp"
#include "storage/tokenizer/models/vocabulary.hpp"

namespace train::storage {

/// Merges as pairs of texts, one behind the other in one string.
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

/// A tokenizer.json: vocabulary and merges, or pieces with scores, which are nearly all of it, and
/// the rest as a document.
struct TokenizerDocument {
  Vocabulary vocabulary;
  MergeList merges;
  std::vector<double> scores;  ///< By id, where the vocabulary is a list as of Unigram models.
  std::unique_ptr<nlohmann::json> rest;
};

/// Adds a line "left right". Returns false if it is not one; a version comment is no merge.
[[nodiscard]] bool add_merge_line(MergeList& merges, std::string_view line);

/// The largest id that files may use, for the memory that a table by id takes.
inline constexpr std::uint64_t token_id_limit = std::uint64_t{1} << 24U;

/// Reads in one pass. Errors (user): not JSON, a vocabulary or merges of another shape.
[[nodiscard]] Result<TokenizerDocument> read_tokenizer_document(std::string_view text);

}  // namespace train::storage
