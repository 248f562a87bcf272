#pragma once

#include <string>

#include "data/tokenizer/formats/sentencepiece/sentencepiece_model.hpp"

namespace train::data {

/// File from which parse_sentencepiece_model(), and SentencePiece, read an equal model.
[[nodiscard]] std::string sentencepiece_file(const SentencePieceModel& model);

}  // namespace train::data
