#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "data/tokenizer/models/bpe.hpp"
#include "data/tokenizer/models/unigram.hpp"

namespace train::data {

/// Encoder of words: BPE or unigram.
///
/// Threading: immutable; each thread has its own scratch.
class WordModel {
 public:
  struct Scratch {
    Bpe::Scratch bpe;
    Unigram::Scratch unigram;
  };

  WordModel(Bpe model) : model_(std::move(model)) {}      // NOLINT: implicit
  WordModel(Unigram model) : model_(std::move(model)) {}  // NOLINT: implicit

  /// Appends the ids of a non-empty word.
  void encode(std::string_view word, std::vector<std::uint32_t>& ids, Scratch& scratch) const {
    if (const Bpe* bpe = std::get_if<Bpe>(&model_)) {
      bpe->encode(word, ids, scratch.bpe);
    } else {
      std::get<Unigram>(model_).encode(word, ids, scratch.unigram);
    }
  }

  /// Appends the place in `word` of each id. REQUIRES: the ids come from encode().
  void locate(std::string_view word, std::span<const std::uint32_t> ids,
              std::vector<storage::TokenSpan>& places) const {
    if (const Bpe* bpe = std::get_if<Bpe>(&model_)) {
      bpe->locate(word, ids, places);
    } else {
      std::get<Unigram>(model_).locate(word, places);
    }
  }

  [[nodiscard]] const Vocabulary& vocabulary() const {
    return std::visit([](const auto& model) -> const Vocabulary& { return model.vocabulary(); },
                      model_);
  }

  [[nodiscard]] bool is_bpe() const { return std::holds_alternative<Bpe>(model_); }

  /// Words may be cut before each "▁": see Bpe.
  [[nodiscard]] bool cuts_before_marker() const {
    const Bpe* bpe = std::get_if<Bpe>(&model_);
    return bpe != nullptr && bpe->cuts_before_marker();
  }

 private:
  std::variant<Bpe, Unigram> model_;
};

}  // namespace train::data
