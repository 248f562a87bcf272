#pragma once

#include <string>
#include <string_view>

#include "data/tokenizer/text/character_map.hpp"
#include "storage/text/origins.hpp"

namespace train::data {

/// Writes `text` to `out` as the reference applies a SentencePiece character table: a grapheme
/// cluster (a letter with its accents) shorter than 6 bytes becomes the table's text for its
/// shortest prefix that the table has; otherwise each code point is replaced on its own. Clusters
/// are those of Unicode 17.0, except that emoji joined by U+200D, Hangul letters and Indic
/// conjuncts count as several: an accent after a later one of them is attached to that one, unlike
/// in the reference. REQUIRES: valid UTF-8.
void map_clusters(const CharacterMap& map, std::string_view text, std::string& out,
                  storage::OriginTrace& trace);

}  // namespace train::data
