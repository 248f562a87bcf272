#include "data/tokenizer/models/unigram.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <type_traits>

#include "base/check.hpp"
#include "storage/text/utf8.hpp"

namespace train::data {
namespace {

constexpr std::uint32_t kNoId = 0xffffffffU;

/// Float sums restart beyond this, so that a long text's pieces are distinguished as well as a
/// short one's.
constexpr float kSumLimit = 100000.0F;

PrefixTrie trie_of(const Vocabulary& vocabulary, std::span<const Unigram::Piece> pieces) {
  std::vector<std::pair<std::string_view, std::uint32_t>> texts;
  for (std::uint32_t id = 0; id < pieces.size(); ++id) {
    if (pieces[id].found && !vocabulary.text(id).empty()) {
      texts.emplace_back(vocabulary.text(id), id);
    }
  }
  std::sort(texts.begin(), texts.end());
  return PrefixTrie(texts);
}

/// Subtracts the sum at ends[from] from all that follow.
void begin_anew(std::size_t from, std::vector<Unigram::Scratch::End>& ends) {
  const auto offset = static_cast<float>(ends[from].score);
  for (std::size_t i = from; i < ends.size(); ++i) {
    if (i == from || ends[i].length != 0) {
      ends[i].score = static_cast<float>(ends[i].score) - offset;
    }
  }
}

}  // namespace

/// Takes pieces one after the other and outputs ids or places. Adjacent unknown characters are one
/// token, or bytes.
class Unigram::Output {
 public:
  Output(const Unigram& model, std::string_view word, std::vector<std::uint32_t>* ids,
         std::vector<storage::TokenSpan>* places)
      : model_(model), word_(word), ids_(ids), places_(places) {}

  void add(std::uint32_t id, std::size_t begin, std::size_t end) {
    if (id != model_.options_.unknown) {
      finish();
      put(id, begin, end);
      return;
    }
    // With float sums byte tokens stand for their character, with double sums for all adjacent
    // unknown ones.
    if (model_.options_.byte_fallback && model_.options_.sums == UnigramOptions::Sums::floats) {
      finish();
    }
    unknown_begin_ =
        unknown_end_ == begin && unknown_end_ > unknown_begin_ ? unknown_begin_ : begin;
    unknown_end_ = end;
  }

  void finish() {
    if (unknown_begin_ == unknown_end_) {
      return;
    }
    const std::string_view text = word_.substr(unknown_begin_, unknown_end_ - unknown_begin_);
    const auto whole = model_.options_.sums == UnigramOptions::Sums::doubles
                           ? model_.vocabulary_.find(text)
                           : std::nullopt;
    const auto byte_id = [this](char byte) {
      return model_.byte_ids_[static_cast<unsigned char>(byte)];
    };
    const bool as_bytes =
        !whole && model_.options_.byte_fallback &&
        std::all_of(text.begin(), text.end(), [&](char byte) { return byte_id(byte) != kNoId; });
    if (as_bytes) {
      for (const char byte : text) {
        put(byte_id(byte), unknown_begin_, unknown_end_);
      }
    } else {
      put(whole.value_or(model_.options_.unknown), unknown_begin_, unknown_end_);
    }
    unknown_begin_ = unknown_end_;
  }

 private:
  void put(std::uint32_t id, std::size_t begin, std::size_t end) {
    if (ids_ != nullptr) {
      ids_->push_back(id);
    }
    if (places_ != nullptr) {
      places_->push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)});
    }
  }

  const Unigram& model_;
  std::string_view word_;
  std::vector<std::uint32_t>* ids_;
  std::vector<storage::TokenSpan>* places_;
  std::size_t unknown_begin_ = 0;  ///< Unknown characters held back.
  std::size_t unknown_end_ = 0;
};

Unigram::Unigram(Vocabulary vocabulary, std::vector<Piece> pieces, const UnigramOptions& options)
    : vocabulary_(std::move(vocabulary)),
      pieces_(std::move(pieces)),
      options_(options),
      trie_(trie_of(vocabulary_, pieces_)) {
  TRAIN_CHECK(pieces_.size() == vocabulary_.id_limit() && options_.unknown < pieces_.size());
  for (unsigned byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] = vocabulary_.find(fmt::format("<0x{:02X}>", byte)).value_or(kNoId);
  }
}

/// Enters all pieces that begin at `from`, stored at ends[from - done]. Returns the end of the
/// longest.
template <class Real>
std::size_t Unigram::extend(std::string_view word, std::size_t from, std::size_t done,
                            Scratch& scratch) const {
  const Real before = static_cast<Real>(scratch.ends[from - done].score);
  const std::size_t character = storage::code_point_at(word.data() + from).length;
  const auto enter = [&](std::size_t end, double score, std::uint32_t id) {
    if (end - done >= scratch.ends.size()) {
      scratch.ends.resize(end - done + 1);
    }
    Scratch::End& target = scratch.ends[end - done];
    const Real sum = static_cast<Real>(score) + before;
    if (target.length == 0 || sum > static_cast<Real>(target.score)) {
      target = {sum, static_cast<std::uint32_t>(end - from), id};
    }
  };
  bool character_known = false;
  std::size_t longest = from + character;
  PrefixTrie::Place place;
  for (std::size_t at = from; at < word.size() && trie_.step(place, word[at]);) {
    ++at;
    const std::uint32_t id = trie_.number(place);
    if (id == PrefixTrie::kNone) {
      continue;
    }
    enter(at, pieces_[id].score, id);
    character_known = character_known || at - from == character;
    longest = std::max(longest, at);
  }
  if (!character_known) {
    enter(from + character, options_.unknown_score, options_.unknown);
  }
  return longest;
}

template <class Real>
void Unigram::find_path(std::string_view word, Output& output, Scratch& scratch) const {
  scratch.ends.assign(1, {});
  std::size_t done = 0;   // Amount already output; stored at ends[0].
  std::size_t reach = 0;  // No piece so far extends beyond this.
  const auto give_out = [&](std::size_t size) {
    scratch.path.clear();
    for (std::size_t end = size; end > 0; end -= scratch.ends[end].length) {
      scratch.path.push_back(end);
    }
    for (auto end = scratch.path.rbegin(); end != scratch.path.rend(); ++end) {
      const Scratch::End& last = scratch.ends[*end];
      output.add(last.id, done + *end - last.length, done + *end);
    }
    scratch.ends.assign(1, {.score = scratch.ends[size].score});
    done += size;
  };
  for (std::size_t at = 0; at < word.size();
       at += storage::code_point_at(word.data() + at).length) {
    if (at == reach && at > done) {
      give_out(at - done);  // The best pieces up to here are final.
    }
    if (std::is_same_v<Real, float> && std::abs(scratch.ends[at - done].score) > kSumLimit) {
      begin_anew(at - done, scratch.ends);
    }
    reach = std::max(reach, extend<Real>(word, at, done, scratch));
  }
  if (word.size() > done) {
    give_out(word.size() - done);
  }
  output.finish();
}

void Unigram::encode(std::string_view word, Output& output, Scratch& scratch) const {
  if (options_.sums == UnigramOptions::Sums::floats) {
    find_path<float>(word, output, scratch);
  } else {
    find_path<double>(word, output, scratch);
  }
}

void Unigram::encode(std::string_view word, std::vector<std::uint32_t>& ids,
                     Scratch& scratch) const {
  Output output(*this, word, &ids, nullptr);
  encode(word, output, scratch);
}

void Unigram::locate(std::string_view word, std::vector<storage::TokenSpan>& places) const {
  Scratch scratch;
  Output output(*this, word, nullptr, &places);
  encode(word, output, scratch);
}

}  // namespace train::data
