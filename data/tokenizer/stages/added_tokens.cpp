#include "data/tokenizer/stages/added_tokens.hpp"

#include <algorithm>
#include <numeric>

#include "data/tokenizer/text/unicode_tables.hpp"
#include "storage/text/utf8.hpp"

namespace train::data {
namespace {

bool is_at(std::string_view text, std::size_t at, ClassSet set) {
  return in_classes(unicode_table()[storage::code_point_at(text.data() + at).value], set);
}

std::size_t before(std::string_view text, std::size_t end) {
  return static_cast<std::size_t>(storage::previous_code_point(text.data(), text.data() + end) -
                                  text.data());
}

bool stands_alone(std::string_view text, const TextFinder::Found& found) {
  const bool left = found.begin == 0 || !is_at(text, before(text, found.begin), kWordClasses);
  const bool right = found.end == text.size() || !is_at(text, found.end, kWordClasses);
  return left && right;
}

}  // namespace

Result<AddedTokens> AddedTokens::make(std::vector<AddedToken> tokens,
                                      const Normalizer& normalizer) {
  AddedTokens made;
  made.tokens_ = std::move(tokens);
  auto& all = made.tokens_;
  // Special ones first: the reference prefers those among equal normal forms.
  for (const bool special : {true, false}) {
    for (std::uint32_t i = 0; i < all.size(); ++i) {
      if (all[i].special != special) {
        continue;
      }
      if (!all[i].normalized || !all[i].searched) {
        all[i].text = all[i].content;
        if (all[i].searched) {
          made.raw_.add(all[i].content, i);
        }
        continue;
      }
      std::string buffer;
      const auto text = TRAIN_TRY(normalizer.apply(all[i].content, buffer));
      all[i].text = text.text;
      if (!text.text.empty()) {
        made.normalized_.add(text.text, i);
      }
    }
  }
  made.by_content_.resize(all.size());
  std::iota(made.by_content_.begin(), made.by_content_.end(), 0U);
  made.by_id_ = made.by_content_;
  std::sort(made.by_content_.begin(), made.by_content_.end(),
            [&](std::uint32_t a, std::uint32_t b) { return all[a].content < all[b].content; });
  std::stable_sort(made.by_id_.begin(), made.by_id_.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return all[a].id < all[b].id; });
  return made;
}

void AddedTokens::find(std::string_view text, bool normalized, std::vector<Part>& parts) const {
  parts.clear();
  const TextFinder& texts = finder(normalized);
  std::size_t done = 0;
  std::size_t spaces_end = 0;  ///< End of the spaces taken by the last token that takes spaces.
  for (auto found = texts.find(text, 0); found; found = texts.find(text, found->end)) {
    const AddedToken& token = tokens_[found->value];
    if (token.single_word && !stands_alone(text, *found)) {
      continue;
    }
    std::size_t begin = found->begin;
    std::size_t end = found->end;
    while (token.lstrip && begin > done && is_at(text, before(text, begin), kSpaceClasses)) {
      begin = before(text, begin);
    }
    // The previous token may have taken these spaces and more, even this whole one.
    begin = token.lstrip ? std::max(begin, done) : begin;
    if (token.rstrip) {
      // A token within spaces already taken does not search them again.
      end = std::max(end, spaces_end);
      while (end < text.size() && is_at(text, end, kSpaceClasses)) {
        end += storage::code_point_at(text.data() + end).length;
      }
      spaces_end = end;
    }
    if (done < begin) {
      parts.push_back({done, begin, std::nullopt});
    }
    if (begin < end) {
      parts.push_back({begin, end, token.id});
      done = end;
    }
  }
  if (done < text.size()) {
    parts.push_back({done, text.size(), std::nullopt});
  }
}

const AddedToken* AddedTokens::token(std::string_view content) const {
  const auto place = std::lower_bound(
      by_content_.begin(), by_content_.end(), content,
      [this](std::uint32_t i, std::string_view wanted) { return tokens_[i].content < wanted; });
  return place != by_content_.end() && tokens_[*place].content == content ? &tokens_[*place]
                                                                          : nullptr;
}

const AddedToken* AddedTokens::token(std::uint32_t id) const {
  const auto place = std::upper_bound(
      by_id_.begin(), by_id_.end(), id,
      [this](std::uint32_t wanted, std::uint32_t i) { return wanted < tokens_[i].id; });
  return place != by_id_.begin() && tokens_[*(place - 1)].id == id ? &tokens_[*(place - 1)]
                                                                   : nullptr;
}

}  // namespace train::data
