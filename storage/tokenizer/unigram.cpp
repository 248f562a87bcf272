#include "storage/tokenizer/unigram.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "storage/tokenizer/utf8.hpp"

namespace train::storage {
namespace {

using PieceType = SentencePieceModel::PieceType;

constexpr float unknown_penalty = 10.0F;
constexpr double user_defined_penalty = 0.1;

PrefixTrie trie_of(const SentencePieceModel& model) {
  std::vector<std::pair<std::string_view, std::uint32_t>> texts;
  for (std::uint32_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePieceModel::Piece& piece = model.pieces[id];
    if (piece.type == PieceType::normal || piece.type == PieceType::user_defined) {
      texts.emplace_back(piece.text, id);
    }
  }
  std::sort(texts.begin(), texts.end());
  return PrefixTrie(texts);
}

}  // namespace

/// Unknown neighbours are one token, or bytes.
struct Unigram::Output {
  const Unigram& model;
  std::vector<std::uint32_t>& ids;
  bool after_unknown = false;

  void add(std::uint32_t id, std::string_view text) {
    const bool unknown = id == model.unknown_;
    if (unknown && model.byte_fallback_) {
      for (const char byte : text) {
        ids.push_back(model.byte_ids_[static_cast<unsigned char>(byte)]);
      }
    } else if (!unknown || !after_unknown) {
      ids.push_back(id);
    }
    after_unknown = unknown;
  }
};

Unigram::Unigram(Vocabulary vocabulary, const SentencePieceModel& model)
    : vocabulary_(std::move(vocabulary)),
      trie_(trie_of(model)),
      max_score_(std::numeric_limits<float>::min()),
      byte_fallback_(model.byte_fallback) {
  float min_score = std::numeric_limits<float>::max();
  for (std::uint32_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePieceModel::Piece& piece = model.pieces[id];
    scores_.push_back(piece.score);
    user_defined_.push_back(piece.type == PieceType::user_defined);
    if (piece.type == PieceType::normal) {
      min_score = std::min(min_score, piece.score);
      max_score_ = std::max(max_score_, piece.score);
    } else if (piece.type == PieceType::unknown) {
      unknown_ = id;
    }
  }
  unknown_score_ = min_score - unknown_penalty;
  for (unsigned byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] = vocabulary_.find(fmt::format("<0x{:02X}>", byte)).value_or(unknown_);
  }
}

/// Enters all pieces that begin at `from`, which lies at ends[from - done]. Returns the end of the
/// longest.
std::size_t Unigram::extend(std::string_view text, std::size_t from, std::size_t done,
                            Scratch& scratch) const {
  const float before = scratch.ends[from - done].score;
  const std::size_t character = code_point_at(text.data() + from).length;
  const auto enter = [&](std::size_t end, float score, std::uint32_t id) {
    if (end - done >= scratch.ends.size()) {
      scratch.ends.resize(end - done + 1);
    }
    Scratch::End& target = scratch.ends[end - done];
    if (target.length == 0 || score > target.score) {
      target = {score, static_cast<std::uint32_t>(end - from), id};
    }
  };
  bool character_known = false;
  std::size_t longest = from + character;
  PrefixTrie::Place place;
  for (std::size_t at = from; at < text.size() && trie_.step(place, text[at]);) {
    ++at;
    const std::uint32_t id = trie_.number(place);
    if (id == PrefixTrie::none) {
      continue;
    }
    const std::size_t length = at - from;
    const double score =
        user_defined_[id]
            ? static_cast<double>(static_cast<float>(length) * max_score_) - user_defined_penalty
            : static_cast<double>(scores_[id]);
    enter(at, static_cast<float>(score + static_cast<double>(before)), id);
    character_known = character_known || length == character;
    longest = std::max(longest, at);
  }
  if (!character_known) {
    enter(from + character, unknown_score_ + before, unknown_);
  }
  return longest;
}

/// Gives out the best path to ends[size], and begins anew there.
void Unigram::flush(std::string_view text, std::size_t size, Scratch& scratch, Output& output) {
  scratch.path.clear();
  for (std::size_t end = size; end > 0; end -= scratch.ends[end].length) {
    scratch.path.push_back(end);
  }
  for (auto end = scratch.path.rbegin(); end != scratch.path.rend(); ++end) {
    const Scratch::End& last = scratch.ends[*end];
    output.add(last.id, text.substr(*end - last.length, last.length));
  }
  scratch.ends.assign(1, {.score = scratch.ends[size].score});
}

void Unigram::encode(std::string_view text, std::vector<std::uint32_t>& ids,
                     Scratch& scratch) const {
  Output output{*this, ids};
  scratch.ends.assign(1, {});
  std::size_t done = 0;   // What has been given out.
  std::size_t reach = 0;  // No piece so far goes on behind this.
  for (std::size_t at = 0; at < text.size(); at += code_point_at(text.data() + at).length) {
    if (at == reach && at > done) {
      // Whatever follows, the best pieces up to here stay.
      flush(text.substr(done), at - done, scratch, output);
      done = at;
    }
    reach = std::max(reach, extend(text, at, done, scratch));
  }
  if (text.size() > done) {
    flush(text.substr(done), text.size() - done, scratch, output);
  }
}

}  // namespace train::storage
