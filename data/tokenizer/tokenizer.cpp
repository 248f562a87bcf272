#include "data/tokenizer/tokenizer.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "data/tokenizer/formats/tokenizer_files.hpp"
#include "data/tokenizer/text_encoder.hpp"
#include "data/tokenizer/tokenizer_parts.hpp"
#include "storage/text/utf8.hpp"

namespace train::data {

std::vector<AddedToken> numbered(std::vector<AddedToken> tokens, const Vocabulary& vocabulary) {
  std::vector<AddedToken> kept;
  std::map<std::string, std::size_t, std::less<>> places;
  auto next = static_cast<std::uint32_t>(vocabulary.size());
  for (AddedToken& token : tokens) {
    if (token.content.empty()) {
      continue;
    }
    const auto [place, is_new] = places.try_emplace(token.content, kept.size());
    if (!is_new) {
      // The later one's flags apply, but special stays special.
      AddedToken& earlier = kept[place->second];
      token.id = earlier.id;
      token.special = token.special || earlier.special;
      earlier = std::move(token);
      continue;
    }
    const auto known = vocabulary.find(token.content);
    token.id = known ? *known : next++;
    kept.push_back(std::move(token));
  }
  return kept;
}

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& path) {
  auto parts = TRAIN_TRY(read_tokenizer_files(path));
  return Tokenizer(std::make_shared<const TokenizerParts>(std::move(parts)));
}

Result<std::vector<std::uint32_t>> Tokenizer::encode(std::string_view text,
                                                     bool add_special_tokens) const {
  return encode(text, EncodeOptions{.add_special_tokens = add_special_tokens});
}

Result<std::vector<std::uint32_t>> Tokenizer::encode(std::string_view text,
                                                     const EncodeOptions& options) const {
  TextEncoder encoder(*this, TextEncoder::Memory::none);
  std::vector<std::uint32_t> ids;
  TRAIN_RETURN_IF_ERROR(encoder.encode(text, options, ids));
  return ids;
}

Result<EncodedText> Tokenizer::encode_with_spans(std::string_view text,
                                                 const EncodeOptions& options) const {
  TextEncoder encoder(*this, TextEncoder::Memory::none);
  EncodedText encoded;
  TRAIN_RETURN_IF_ERROR(encoder.encode_with_spans(text, options, encoded));
  return encoded;
}

std::string Tokenizer::decode(std::span<const std::uint32_t> ids, bool skip_special) const {
  const bool bytes_alone = parts_->decoder.only_byte_level();
  std::vector<std::string> tokens;
  std::string bytes;
  for (const std::uint32_t id : ids) {
    const std::string_view text = token_text(id);
    if (text.empty() || (skip_special && is_special(id))) {
      continue;
    }
    if (bytes_alone) {
      bytes += decoded_bytes(text);
    } else {
      tokens.emplace_back(text);
    }
  }
  std::uint64_t replaced = 0;
  return bytes_alone ? storage::repaired_utf8(bytes, replaced)
                     : parts_->decoder.decode(std::move(tokens));
}

std::uint32_t Tokenizer::vocab_size() const {
  std::uint32_t limit = parts_->model.vocabulary().id_limit();
  for (const AddedToken& token : parts_->added.tokens()) {
    limit = std::max(limit, token.id + 1);
  }
  return limit;
}

std::string_view Tokenizer::token_text(std::uint32_t id) const {
  if (const AddedToken* added = parts_->added.token(id)) {
    return added->text;
  }
  return parts_->model.vocabulary().text(id);
}

bool Tokenizer::is_special(std::uint32_t id) const {
  // Looked up by text, so a token whose normal form is another text does not count; the reference's
  // rule.
  const AddedToken* added = parts_->added.token(token_text(id));
  return added != nullptr && added->special;
}

bool Tokenizer::is_byte(std::uint32_t id) const {
  return parts_->decoder.joins_bytes() && is_fallback_byte(token_text(id));
}

std::optional<std::uint32_t> Tokenizer::end_of_text() const { return parts_->end_of_text; }

const std::vector<std::string>& Tokenizer::notes() const { return parts_->notes; }

}  // namespace train::data
