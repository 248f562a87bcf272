#include "data/tokenizer/text_stream.hpp"

namespace train::data {
namespace {

/// Number of tokens kept, so that the first ones are not at the text's beginning, where decoders
/// drop spaces; older ones are dropped at twice this number.
constexpr std::size_t kKept = 32;
constexpr std::string_view kReplaced = "\xEF\xBF\xBD";

/// Length of the incomplete character, or of its replacement, at a text's end.
std::size_t unfinished_bytes(std::string_view text) {
  std::size_t end = text.size();
  while (text.substr(0, end).ends_with(kReplaced)) {
    end -= kReplaced.size();
  }
  return text.size() - end;
}

}  // namespace

TextStream::TextStream(const Tokenizer& tokenizer, std::span<const std::uint32_t> before)
    : tokenizer_(&tokenizer), tokens_(before.begin(), before.end()) {
  shown_ = tokenizer_->decode(tokens_, /*skip_special=*/true).size();
  forget_old_tokens();
}

std::string TextStream::add(std::uint32_t token) {
  tokens_.push_back(token);
  const auto settled = std::span(tokens_).first(settled_tokens());
  const std::string text = tokenizer_->decode(settled, /*skip_special=*/true);
  const std::size_t end = text.size() - unfinished_bytes(text);
  if (end <= shown_) {
    return {};
  }
  std::string added = text.substr(shown_, end - shown_);
  shown_ = end;
  if (end == text.size() && settled.size() == tokens_.size()) {
    forget_old_tokens();
  }
  return added;
}

std::string TextStream::finish() {
  const std::string text = tokenizer_->decode(tokens_, /*skip_special=*/true);
  return shown_ < text.size() ? text.substr(shown_) : std::string();
}

// Consecutive byte tokens are decoded together, and one that completes no character changes the
// result of all of them.
std::size_t TextStream::settled_tokens() const {
  std::size_t settled = tokens_.size();
  for (std::size_t i = tokens_.size(); i-- > 0;) {
    if (tokenizer_->is_byte(tokens_[i])) {
      settled = i;
    } else if (!tokenizer_->is_special(tokens_[i])) {
      break;
    }
  }
  return settled;
}

void TextStream::forget_old_tokens() {
  if (tokens_.size() < 2 * kKept || settled_tokens() != tokens_.size()) {
    return;
  }
  // The kept tokens begin with text, so that later ones are not at a text's beginning.
  for (std::size_t kept = kKept; kept < tokens_.size(); kept *= 2) {
    const auto last = std::span(tokens_).last(kept);
    const std::string text = tokenizer_->decode(last, /*skip_special=*/true);
    if (!text.empty() && unfinished_bytes(text) == 0) {
      shown_ = text.size();
      tokens_.assign(last.begin(), last.end());
      return;
    }
  }
}

}  // namespace train::data
