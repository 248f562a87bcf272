#include "data/tokenizer/stages/sentencepiece_rules.hpp"

#include <algorithm>

#include "storage/text/utf8.hpp"

namespace train::data {
/// Appends to the normalised text, and records origins.
class SentencePieceRules::Writer {
 public:
  Writer(std::string_view space, std::string& out, std::vector<std::size_t>* origins)
      : space_(space), out_(out), origins_(origins) {
    out_.clear();
    if (origins_ != nullptr) {
      origins_->clear();
    }
  }

  void add(std::string_view content, std::size_t origin) {
    while (!content.empty()) {
      const std::size_t before_space = std::min(content.find(' '), content.size());
      out_.append(content.substr(0, before_space));
      content.remove_prefix(before_space);
      if (!content.empty()) {
        out_.append(space_);
        content.remove_prefix(1);
      }
    }
    if (origins_ != nullptr) {
      origins_->resize(out_.size(), origin);
    }
  }

  /// Strips trailing spaces. Returns the origin of the text's new end: that of the first one
  /// stripped.
  std::size_t strip(std::size_t origin) {
    while (out_.ends_with(space_)) {
      out_.resize(out_.size() - space_.size());
      if (origins_ != nullptr) {
        origin = (*origins_)[out_.size()];
        origins_->resize(out_.size());
      }
    }
    return origin;
  }

  void finish(std::size_t origin) {
    if (origins_ != nullptr) {
      origins_->push_back(origin);
    }
  }

 private:
  std::string_view space_;
  std::string& out_;
  std::vector<std::size_t>* origins_;
};

Result<SentencePieceRules> SentencePieceRules::make(const Settings& settings) {
  auto characters = TRAIN_TRY(CharacterMap::parse(settings.character_map));
  SentencePieceRules rules;
  rules.characters_ = std::move(characters);
  for (std::uint32_t i = 0; i < settings.user_defined.size(); ++i) {
    rules.user_defined_.add(settings.user_defined[i], i);
  }
  rules.space_ = settings.escape_whitespaces ? storage::kSpaceMarker : " ";
  rules.add_dummy_prefix_ = settings.add_dummy_prefix;
  rules.remove_extra_whitespaces_ = settings.remove_extra_whitespaces;
  rules.whitespace_as_suffix_ = settings.whitespace_as_suffix;
  return rules;
}

SentencePieceRules::Beginning SentencePieceRules::beginning(std::string_view text) const {
  if (const auto own = user_defined_.find_at(text, 0)) {
    return {text.substr(0, own->end), own->end};
  }
  if (const auto mapped = characters_.find(text)) {
    return {mapped->content, mapped->length};
  }
  const std::size_t length = storage::code_point_at(text.data()).length;
  return {text.substr(0, length), length};
}

void SentencePieceRules::apply(std::string_view text, std::string& out,
                               std::vector<std::size_t>* origins) const {
  Writer writer(space_, out, origins);
  std::size_t at = 0;
  while (remove_extra_whitespaces_ && at < text.size()) {
    const Beginning first = beginning(text.substr(at));
    if (first.content != " ") {
      break;
    }
    at += first.length;
  }
  if (at == text.size()) {
    writer.finish(at);
    return;
  }
  if (add_dummy_prefix_ && !whitespace_as_suffix_) {
    writer.add(" ", at);
  }
  if (only_spaces() && origins == nullptr) {
    writer.add(text.substr(at), at);
    at = text.size();
  }
  for (bool after_space = remove_extra_whitespaces_; at < text.size();) {
    const Beginning next = beginning(text.substr(at));
    std::string_view content = next.content;
    while (after_space && content.starts_with(' ')) {
      content.remove_prefix(1);
    }
    if (!content.empty()) {
      writer.add(content, at);
      after_space = remove_extra_whitespaces_ && content.ends_with(' ');
    }
    at += next.length;
  }
  if (remove_extra_whitespaces_) {
    at = writer.strip(at);
  }
  if (add_dummy_prefix_ && whitespace_as_suffix_) {
    writer.add(" ", at);
  }
  writer.finish(at);
}

}  // namespace train::data
