#include "storage/tokenizer/text_encoder.hpp"

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "storage/tokenizer/tokenizer_parts.hpp"
#include "storage/tokenizer/utf8.hpp"

namespace train::storage {
TextEncoder::TextEncoder(const Tokenizer& tokenizer, Memory memory)
    : parts_(tokenizer.parts()),
      cache_(memory == Memory::words ? std::make_unique<WordCache>() : nullptr) {}

Status TextEncoder::encode(std::string_view text, bool add_special_tokens,
                           std::vector<std::uint32_t>& ids) {
  if (valid_prefix(text) != text.size()) {
    repaired_ = repaired_utf8(text, replaced_);
    text = repaired_;
  }
  ids_ = &ids;
  const SpecialFrame& frame = parts_->frame;
  if (add_special_tokens) {
    ids.insert(ids.end(), frame.before.begin(), frame.before.end());
  }
  TRAIN_RETURN_IF_ERROR(encode_raw(text));
  if (add_special_tokens) {
    ids.insert(ids.end(), frame.after.begin(), frame.after.end());
  }
  return {};
}

Status TextEncoder::encode_raw(std::string_view text) {
  if (!parts_->added.any(false)) {
    return text.empty() ? Status{} : encode_part(text, true);
  }
  parts_->added.find(text, false, raw_parts_);
  for (const AddedTokens::Part& part : raw_parts_) {
    if (part.id) {
      ids_->push_back(*part.id);
      continue;
    }
    TRAIN_RETURN_IF_ERROR(
        encode_part(text.substr(part.begin, part.end - part.begin), part.begin == 0));
  }
  return {};
}

Status TextEncoder::encode_part(std::string_view text, bool at_start) {
  const auto normal = parts_->normalizer.apply(text, normal_);
  TRAIN_RETURN_IF_ERROR(normal);
  at_start = at_start && normal->at_start;
  if (!parts_->added.any(true)) {
    return parts_->pre_tokenizer.split(normal->text, at_start, *this);
  }
  parts_->added.find(normal->text, true, normal_parts_);
  for (const AddedTokens::Part& part : normal_parts_) {
    if (part.id) {
      ids_->push_back(*part.id);
      continue;
    }
    TRAIN_RETURN_IF_ERROR(
        parts_->pre_tokenizer.split(normal->text.substr(part.begin, part.end - part.begin),
                                    at_start && part.begin == 0, *this));
  }
  return {};
}

void TextEncoder::word(std::string_view text) {
  if (text.size() <= WordCache::word_limit_bytes || !parts_->model.cuts_before_marker()) {
    cached_word(text);
    return;
  }
  // No merge crosses the places where a marker begins: the parts are words of their own.
  std::size_t from = 0;
  std::size_t at = text.find(space_marker, 1);
  std::size_t behind = text.starts_with(space_marker) ? space_marker.size() : 0;
  for (; at != std::string_view::npos; at = text.find(space_marker, behind)) {
    if (at != behind) {
      cached_word(text.substr(from, at - from));
      from = at;
    }
    behind = at + space_marker.size();
  }
  cached_word(text.substr(from));
}

void TextEncoder::cached_word(std::string_view text) {
  if (cache_ == nullptr || text.size() > WordCache::word_limit_bytes) {
    parts_->model.encode(text, *ids_, scratch_);
    return;
  }
  if (const auto known = cache_->find(text); !known.empty()) {
    ids_->insert(ids_->end(), known.begin(), known.end());
    return;
  }
  const std::size_t before = ids_->size();
  parts_->model.encode(text, *ids_, scratch_);
  const auto added = std::span(*ids_).subspan(before);
  if (!added.empty() && added.size() <= WordCache::ids_limit) {
    cache_->put(text, added);
  }
}

Result<EncodedDocuments> encode_documents(const Tokenizer& tokenizer,
                                          std::span<const std::string_view> documents,
                                          bool add_special_tokens, unsigned threads) {
  EncodedDocuments encoded;
  encoded.ids.resize(documents.size());
  std::vector<std::optional<Error>> errors(documents.size());
  std::atomic<std::size_t> next = 0;
  std::atomic<std::uint64_t> replaced = 0;
  const auto work = [&] {
    TextEncoder encoder(tokenizer);
    for (std::size_t i = next++; i < documents.size(); i = next++) {
      if (const auto done = encoder.encode(documents[i], add_special_tokens, encoded.ids[i]);
          !done) {
        errors[i] = done.error();
      }
    }
    replaced += encoder.replaced_count();
  };
  {
    std::vector<std::jthread> others;
    const std::size_t wanted = std::min<std::size_t>(threads, documents.size());
    for (std::size_t i = 1; i < wanted; ++i) {
      others.emplace_back(work);
    }
    work();
  }
  for (const auto& error : errors) {
    if (error) {
      return *error;
    }
  }
  encoded.replaced_count = replaced;
  return encoded;
}

}  // namespace train::storage
