#include "data/tokenizer/models/bpe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "data/tokenizer/text/byte_level.hpp"
#include "storage/files/untrusted_text.hpp"
#include "storage/text/utf8.hpp"

namespace train::data {
namespace {

/// Up to this many symbols, scanning all pairs for each merge is cheaper than a heap.
constexpr std::size_t kFewSymbols = 48;

}  // namespace

Bpe::Bpe(Vocabulary vocabulary, BpeOptions options)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {
  find_symbols();
  if (options_.byte_level && options_.ignore_merges) {
    find_whole_words();
  }
}

void Bpe::find_symbols() {
  if (options_.unk_token) {
    unk_id_ = vocabulary_.find(*options_.unk_token).value_or(kNoId);
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char letter = static_cast<char>(static_cast<unsigned char>(byte));
    byte_ids_[byte] = vocabulary_.find(to_byte_level({&letter, 1})).value_or(kNoId);
    fallback_ids_[byte] = vocabulary_.find(fmt::format("<0x{:02X}>", byte)).value_or(kNoId);
  }
  if (!options_.byte_level) {
    character_ids_.assign(0x10000, kNoId);
    std::string character;
    for (char32_t point = 0; point < 0x10000; ++point) {
      character.clear();
      storage::append_utf8(character, point);
      character_ids_[point] = vocabulary_.find(character).value_or(kNoId);
    }
  }
}

void Bpe::find_whole_words() {
  for (std::uint32_t id = 0; id < vocabulary_.id_limit(); ++id) {
    if (vocabulary_.has(id)) {
      if (const auto bytes = from_byte_level(vocabulary_.text(id))) {
        whole_words_.add(*bytes, id);
      }
    }
  }
}

void Bpe::find_marker_cuts(std::span<const MergeTexts> merges) {
  const bool inside = std::any_of(merges.begin(), merges.end(), [](const MergeTexts& merge) {
    // Within one side the marker would come from an earlier merge, or be one character.
    return merge.right.starts_with(storage::kSpaceMarker) &&
           !merge.left.ends_with(storage::kSpaceMarker);
  });
  cuts_before_marker_ = !inside && !options_.byte_level && !options_.ignore_merges &&
                        vocabulary_.find(storage::kSpaceMarker).has_value();
}

Result<Bpe> Bpe::from_merges(Vocabulary vocabulary, std::span<const MergeTexts> merges,
                             BpeOptions options) {
  Bpe bpe(std::move(vocabulary), std::move(options));
  const bool all_bytes =
      bpe.options_.byte_level && std::count(bpe.byte_ids_.begin(), bpe.byte_ids_.end(), kNoId) == 0;
  if (bpe.options_.unk_token && bpe.unk_id_ == kNoId && !all_bytes) {
    return user_error(fmt::format("the unknown token {} is not in the vocabulary",
                                  storage::shown(*bpe.options_.unk_token)));
  }
  bpe.pairs_.reserve(merges.size());
  std::uint32_t rank = 0;
  for (const MergeTexts& merge : merges) {
    const auto left = bpe.vocabulary_.find(merge.left);
    const auto right = bpe.vocabulary_.find(merge.right);
    const auto merged = bpe.vocabulary_.find(merge.left, merge.right);
    if (!left || !right || !merged) {
      return user_error(fmt::format("merge {} of {} and {} needs {}, which the vocabulary lacks",
                                    rank, storage::shown(merge.left), storage::shown(merge.right),
                                    !left    ? "the first"
                                    : !right ? "the second"
                                             : "both together as a token"));
    }
    bpe.pairs_.add(*left, *right, {.rank = rank, .id = *merged});
    ++rank;
  }
  bpe.find_marker_cuts(merges);
  return bpe;
}

void Bpe::merge_by_rank(std::span<const std::uint32_t> ranks) {
  struct Split {
    std::uint32_t left;
    std::uint32_t right;
    std::uint32_t id;
  };
  std::vector<Split> splits;
  const auto takes_part = [&](std::uint32_t id) {
    const std::string_view text = vocabulary_.text(id);
    return ranks[id] != PairTable::kNoRank ||
           storage::code_point_at(text.data()).length == text.size();
  };
  for (std::uint32_t id = 0; id < vocabulary_.id_limit(); ++id) {
    const std::string_view text = vocabulary_.text(id);
    for (std::size_t cut = 1; cut < text.size() && ranks[id] != PairTable::kNoRank; ++cut) {
      if (storage::continues(text[cut])) {
        continue;
      }
      const auto left = vocabulary_.find(text.substr(0, cut));
      const auto right = left ? vocabulary_.find(text.substr(cut)) : std::nullopt;
      if (right && takes_part(*left) && takes_part(*right)) {
        splits.push_back({*left, *right, id});
      }
    }
  }
  pairs_.reserve(splits.size());
  for (const Split& split : splits) {
    pairs_.add(split.left, split.right, {.rank = ranks[split.id], .id = split.id});
  }
}

Bpe Bpe::from_ranks(Vocabulary vocabulary) {
  BpeOptions options;
  options.byte_level = true;
  options.ignore_merges = true;
  Bpe bpe(std::move(vocabulary), std::move(options));
  std::vector<std::uint32_t> ranks(bpe.vocabulary_.id_limit());
  std::iota(ranks.begin(), ranks.end(), 0U);
  bpe.merge_by_rank(ranks);
  return bpe;
}

Result<Bpe> Bpe::from_ranks(Vocabulary vocabulary, std::span<const std::uint32_t> ranks,
                            BpeOptions options) {
  Bpe bpe(std::move(vocabulary), std::move(options));
  bool inside = false;
  for (std::uint32_t id = 0; id < bpe.vocabulary_.id_limit(); ++id) {
    if (ranks[id] == PairTable::kNoRank) {
      continue;
    }
    const std::string_view text = bpe.vocabulary_.text(id);
    bool after_other = false;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = storage::code_point_at(text.data() + at).length;
      const std::string_view character = text.substr(at, length);
      if (bpe.character_id(character) == kNoId) {
        return user_error(fmt::format("token {} has the character {}, which is not a token itself",
                                      storage::shown(text), storage::shown(character)));
      }
      inside = inside || (after_other && character == storage::kSpaceMarker);
      after_other = after_other || character != storage::kSpaceMarker;
      at += length;
    }
  }
  bpe.merge_by_rank(ranks);
  bpe.cuts_before_marker_ = !inside && bpe.vocabulary_.find(storage::kSpaceMarker).has_value();
  return bpe;
}

std::uint32_t Bpe::character_id(std::string_view character) const {
  if (character.size() < 4) {
    return character_ids_[storage::code_point_at(character.data()).value];
  }
  return vocabulary_.find(character).value_or(kNoId);
}

/// An unknown character is held back until a known one follows, also across byte tokens, as in the
/// reference. `add` takes an id and its place in the word.
template <class Add>
void Bpe::split_characters(std::string_view word, const Add& add) const {
  storage::TokenSpan pending;
  bool is_pending = false;
  const auto flush = [&] {
    if (is_pending) {
      add(unk_id_, pending);
      is_pending = false;
    }
  };
  const auto place_of = [](std::size_t begin, std::size_t end) {
    return storage::TokenSpan{static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)};
  };
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t begin = at;
    const std::size_t length =
        options_.byte_level ? 1 : storage::code_point_at(word.data() + at).length;
    const std::string_view character = word.substr(at, length);
    at += length;
    const std::uint32_t id = options_.byte_level
                                 ? byte_ids_[static_cast<unsigned char>(character[0])]
                                 : character_id(character);
    if (id != kNoId) {
      flush();
      add(id, place_of(begin, at));
      continue;
    }
    const auto fallback = [this](char byte) {
      return fallback_ids_[static_cast<unsigned char>(byte)];
    };
    // In a byte vocabulary: the character standing for the byte.
    const std::string written =
        options_.byte_level ? to_byte_level(character) : std::string(character);
    if (options_.byte_fallback && std::all_of(written.begin(), written.end(),
                                              [&](char byte) { return fallback(byte) != kNoId; })) {
      for (const char byte : written) {
        add(fallback(byte), place_of(begin, at));
      }
      continue;
    }
    if (unk_id_ != kNoId) {
      if (!options_.fuse_unk) {
        flush();
      }
      pending = place_of(is_pending ? pending.first : begin, at);
      is_pending = true;
    }
  }
  flush();
}

void Bpe::encode(std::string_view word, std::vector<std::uint32_t>& ids, Scratch& scratch) const {
  if (options_.ignore_merges) {
    if (const auto id = (options_.byte_level ? whole_words_ : vocabulary_).find(word)) {
      ids.push_back(*id);
      return;
    }
  }
  scratch.ids.clear();
  split_characters(word,
                   [&scratch](std::uint32_t id, storage::TokenSpan) { scratch.ids.push_back(id); });
  if (scratch.ids.size() <= kFewSymbols) {
    merge_few(ids, scratch);
  } else {
    merge_many(ids, scratch);
  }
}

void Bpe::locate(std::string_view word, std::span<const std::uint32_t> ids,
                 std::vector<storage::TokenSpan>& places) const {
  if (ids.empty()) {
    return;  // The characters have no token.
  }
  if (ids.size() == 1) {
    places.push_back({0, static_cast<std::uint32_t>(word.size())});
    return;
  }
  // The text of a merged token is the concatenation of its symbols.
  std::size_t token = 0;
  std::size_t missing = 0;  // Rest of the current token's text.
  split_characters(word, [&](std::uint32_t symbol, storage::TokenSpan place) {
    const std::size_t size = vocabulary_.text(symbol).size();
    // An empty symbol, in unusual files, has merged into the token before it.
    if (missing == 0 && token < ids.size()) {
      missing = vocabulary_.text(ids[token++]).size();
      places.push_back(place);
    }
    places.back().last = std::max(places.back().last, place.last);
    missing -= std::min(size, missing);
  });
  places.resize(places.size() + ids.size() - token, places.back());
}

void Bpe::merge_few(std::vector<std::uint32_t>& out, Scratch& scratch) const {
  std::vector<std::uint32_t>& ids = scratch.ids;
  std::array<PairTable::Merge, kFewSymbols + 1> merges;
  std::size_t count = ids.size();
  for (std::size_t i = 0; i + 1 < count; ++i) {
    merges[i] = pairs_.find(ids[i], ids[i + 1]);
  }
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      best = merges[i].rank < merges[best].rank ? i : best;
    }
    if (merges[best].rank == PairTable::kNoRank) {
      break;
    }
    ids[best] = merges[best].id;
    --count;
    for (std::size_t i = best + 1; i < count; ++i) {
      ids[i] = ids[i + 1];
      merges[i] = merges[i + 1];
    }
    if (best + 1 < count) {
      merges[best] = pairs_.find(ids[best], ids[best + 1]);
    }
    if (best > 0) {
      merges[best - 1] = pairs_.find(ids[best - 1], ids[best]);
    }
  }
  out.insert(out.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
}

/// Linked list of symbols, and a heap of (rank, place) that keeps stale entries: their rank differs
/// from the one at the place.
void Bpe::merge_many(std::vector<std::uint32_t>& out, Scratch& scratch) const {
  auto& chain = scratch.symbols;
  auto& heap = scratch.heap;
  const auto count = static_cast<std::uint32_t>(scratch.ids.size());
  chain.resize(count);
  heap.clear();
  const auto look_up = [&](std::uint32_t place) {
    Scratch::Symbol& symbol = chain[place];
    symbol.rank = PairTable::kNoRank;
    if (symbol.next < count) {
      const PairTable::Merge merge = pairs_.find(symbol.id, chain[symbol.next].id);
      symbol.rank = merge.rank;
      symbol.merged = merge.id;
    }
    return symbol.rank != PairTable::kNoRank;
  };
  const auto entry = [&](std::uint32_t place) {
    return (static_cast<std::uint64_t>(chain[place].rank) << 32U) | place;
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    chain[i].id = scratch.ids[i];
    chain[i].previous = i - 1;  // Wraps around for the first, beyond any place.
    chain[i].next = i + 1;
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    if (look_up(i)) {
      heap.push_back(entry(i));
    }
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto push = [&](std::uint32_t place) {
    if (look_up(place)) {
      heap.push_back(entry(place));
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const auto place = static_cast<std::uint32_t>(heap.back());
    const auto rank = static_cast<std::uint32_t>(heap.back() >> 32U);
    heap.pop_back();
    Scratch::Symbol& left = chain[place];
    if (left.rank != rank) {
      continue;
    }
    Scratch::Symbol& right = chain[left.next];
    left.id = left.merged;
    left.next = right.next;
    right.rank = PairTable::kNoRank;  // It is no longer a symbol.
    if (left.next < count) {
      chain[left.next].previous = place;
    }
    push(place);
    if (left.previous < count) {
      push(left.previous);
    }
  }
  for (std::uint32_t i = 0; i < count; i = chain[i].next) {
    out.push_back(chain[i].id);
  }
}

}  // namespace train::data
