#pragma once

#include <string>

#include "storage/tokenizer/formats/sentencepiece_model.hpp"

namespace train::storage {

/// The file that parse_sentencepiece_model() reads the same model from, and SentencePiece, too.
[[nodiscard]] std::string sentencepiece_file(const SentencePieceModel& model);

}  // namespace train::storage
