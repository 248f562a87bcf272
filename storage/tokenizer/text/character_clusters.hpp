#pragma once

#include <string>
#include <string_view>

#include "storage/tokenizer/text/character_map.hpp"
#include "storage/tokenizer/text/origins.hpp"

namespace train::storage {

/// Writes `text` to `out` as the reference applies a SentencePiece model's table of characters:
/// what is one character to a reader (a letter with its accents) and shorter than 6 bytes becomes
/// the table's text for the shortest beginning that it has one for; of all else each code point
/// does. Clusters are those of Unicode 17.0, but emoji that U+200D joins, letters of Hangul and
/// Indian conjuncts count as several: an accent behind a later one of them is taken for that one's,
/// which the reference does not.
/// REQUIRES: valid UTF-8.
void map_clusters(const CharacterMap& map, std::string_view text, std::string& out,
                  OriginTrace& trace);

}  // namespace train::storage
