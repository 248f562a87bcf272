#include "data/tokenizer/text_encoder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <optional>

#include "base/process/joined_thread.hpp"
#include "data/tokenizer/tokenizer_parts.hpp"
#include "storage/text/utf8.hpp"

namespace train::data {
TextEncoder::TextEncoder(const Tokenizer& tokenizer, Memory memory)
    : parts_(tokenizer.parts()),
      cache_(memory == Memory::words ? std::make_unique<WordCache>() : nullptr) {}

Status TextEncoder::encode(std::string_view text, bool add_special_tokens,
                           std::vector<std::uint32_t>& ids) {
  return encode(text, EncodeOptions{.add_special_tokens = add_special_tokens}, ids);
}

Status TextEncoder::encode(std::string_view text, const EncodeOptions& options,
                           std::vector<std::uint32_t>& ids) {
  if (storage::valid_prefix(text) != text.size()) {
    repaired_ = storage::repaired_utf8(text, replaced_);
    text = repaired_;
  }
  ids_ = &ids;
  spans_ = nullptr;
  return encode_framed(text, options);
}

Status TextEncoder::encode_with_spans(std::string_view text, const EncodeOptions& options,
                                      EncodedText& encoded) {
  if (text.size() > std::numeric_limits<std::uint32_t>::max()) {
    return user_error(
        fmt::format("a text of {} bytes is too long to tell where tokens are; the limit is 4 GiB",
                    text.size()));
  }
  repaired_ = storage::repaired_utf8(text, replaced_, origins_);
  ids_ = &encoded.ids;
  spans_ = &encoded.spans;
  return encode_framed(repaired_, options);
}

Status TextEncoder::encode_framed(std::string_view text, const EncodeOptions& options) {
  const SpecialFrame& frame = parts_->frame;
  const auto add = [this](const std::vector<std::uint32_t>& ids) {
    ids_->insert(ids_->end(), ids.begin(), ids.end());
    if (spans_ != nullptr) {
      spans_->resize(spans_->size() + ids.size());
    }
  };
  if (options.add_special_tokens) {
    add(frame.before);
  }
  const bool controls = options.rendered && parts_->rendered;
  TRAIN_RETURN_IF_ERROR(controls ? encode_rendered(text, *parts_->rendered) : encode_raw(text));
  if (options.add_special_tokens) {
    add(frame.after);
  }
  return {};
}

void TextEncoder::add_token(std::uint32_t id, std::string_view text,
                            const storage::TokenSpan* origins) {
  ids_->push_back(id);
  if (spans_ != nullptr) {
    spans_->push_back(storage::span_of(text, origins));
  }
}

template <class Encode>
Status TextEncoder::encode_parts(const std::vector<AddedTokens::Part>& parts, std::string_view text,
                                 const storage::TokenSpan* origins, const Encode& encode) {
  for (const AddedTokens::Part& part : parts) {
    const std::string_view bytes = text.substr(part.begin, part.end - part.begin);
    const storage::TokenSpan* const from = origins == nullptr ? nullptr : origins + part.begin;
    if (part.id) {
      add_token(*part.id, bytes, from);
      continue;
    }
    TRAIN_RETURN_IF_ERROR(encode(bytes, from, part.begin == 0));
  }
  return {};
}

Status TextEncoder::encode_raw(std::string_view text) {
  if (!parts_->added.any(false)) {
    const storage::TokenSpan* const origins = spans_ == nullptr ? nullptr : origins_.data();
    return text.empty() ? Status{} : encode_part(text, origins, true, parts_->normalizer);
  }
  parts_->added.find(text, false, raw_parts_);
  // SentencePiece puts no space after an added token.
  if (parts_->rendered && raw_parts_.size() > 1) {
    return encode_between(text, *parts_->rendered);
  }
  return encode_parts(raw_parts_, text, spans_ == nullptr ? nullptr : origins_.data(),
                      [this](std::string_view bytes, const storage::TokenSpan* from, bool first) {
                        return encode_part(bytes, from, first, parts_->normalizer);
                      });
}

Status TextEncoder::encode_rendered(std::string_view text, const RenderedRules& rules) {
  rules.controls.find(text, false, raw_parts_);
  return encode_between(text, rules);
}

Status TextEncoder::encode_between(std::string_view text, const RenderedRules& rules) {
  return encode_parts(
      raw_parts_, text, spans_ == nullptr ? nullptr : origins_.data(),
      [&](std::string_view bytes, const storage::TokenSpan* from, bool first) {
        const bool prefix = (first || rules.prefix_each) && !bytes.starts_with(' ') &&
                            !bytes.starts_with(storage::kSpaceMarker);
        return encode_part(bytes, from, first, prefix ? rules.with_prefix : rules.without_prefix);
      });
}

Status TextEncoder::encode_part(std::string_view text, const storage::TokenSpan* origins,
                                bool at_start, const Normalizer& normalizer) {
  if (origins != nullptr) {
    normal_origins_.assign(origins, origins + text.size());
  }
  const auto normal =
      TRAIN_TRY(normalizer.apply(text, normal_, origins == nullptr ? nullptr : &normal_origins_));
  origins = origins == nullptr ? nullptr : normal_origins_.data();
  at_start = at_start && normal.at_start;
  if (!parts_->added.any(true)) {
    return parts_->pre_tokenizer.split(normal.text, origins, at_start, *this);
  }
  parts_->added.find(normal.text, true, normal_parts_);
  return encode_parts(normal_parts_, normal.text, origins,
                      [&](std::string_view bytes, const storage::TokenSpan* from, bool first) {
                        return parts_->pre_tokenizer.split(bytes, from, at_start && first, *this);
                      });
}

void TextEncoder::word(std::string_view text, const storage::TokenSpan* origins) {
  if (text.size() <= WordCache::kWordLimitBytes || !parts_->model.cuts_before_marker()) {
    located_word(text, origins);
    return;
  }
  // No merge crosses the begin of a marker: the parts are words of their own.
  std::size_t from = 0;
  std::size_t at = text.find(storage::kSpaceMarker, 1);
  std::size_t behind = text.starts_with(storage::kSpaceMarker) ? storage::kSpaceMarker.size() : 0;
  const auto add = [&](std::size_t end) {
    located_word(text.substr(from, end - from), origins == nullptr ? nullptr : origins + from);
    from = end;
  };
  for (; at != std::string_view::npos; at = text.find(storage::kSpaceMarker, behind)) {
    if (at != behind) {
      add(at);
    }
    behind = at + storage::kSpaceMarker.size();
  }
  add(text.size());
}

void TextEncoder::located_word(std::string_view text, const storage::TokenSpan* origins) {
  const std::size_t before = ids_->size();
  cached_word(text);
  if (spans_ == nullptr) {
    return;
  }
  places_.clear();
  parts_->model.locate(text, std::span(*ids_).subspan(before), places_);
  for (const storage::TokenSpan& place : places_) {
    spans_->push_back(storage::span_of(text.substr(place.first, place.last - place.first),
                                       origins + place.first));
  }
}

void TextEncoder::cached_word(std::string_view text) {
  if (cache_ == nullptr || text.size() > WordCache::kWordLimitBytes) {
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
  if (!added.empty() && added.size() <= WordCache::kIdsLimit) {
    cache_->put(text, added);
  }
}

namespace {

/// Adjacent documents that a thread takes at once: some thousand words, so that threads seldom
/// contend.
constexpr std::size_t kShareBytes = std::size_t{1} << 16U;

/// Begin of each share, and the end.
std::vector<std::size_t> shares_of(std::span<const std::string_view> documents) {
  std::vector<std::size_t> begins = {0};
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < documents.size(); ++i) {
    bytes += documents[i].size() + 1;
    if (bytes >= kShareBytes || i + 1 == documents.size()) {
      begins.push_back(i + 1);
      bytes = 0;
    }
  }
  return begins;
}

}  // namespace

DocumentEncoder::DocumentEncoder(const Tokenizer& tokenizer, unsigned threads) {
  for (unsigned i = 0; i < std::max(threads, 1U); ++i) {
    encoders_.push_back(std::make_unique<TextEncoder>(tokenizer));
  }
}

Result<EncodedDocuments> DocumentEncoder::encode(std::span<const std::string_view> documents,
                                                 bool add_special_tokens) {
  EncodedDocuments encoded;
  encoded.ids.resize(documents.size());
  std::vector<std::optional<Error>> errors(documents.size());
  const std::vector<std::size_t> shares = shares_of(documents);
  std::atomic<std::size_t> next = 0;
  std::atomic<std::uint64_t> replaced = 0;
  const auto work = [&](TextEncoder& encoder) {
    // Local until a document is complete, so that threads do not share cache lines.
    std::vector<std::uint32_t> ids;
    const std::uint64_t replaced_before = encoder.replaced_count();
    for (std::size_t share = next++; share + 1 < shares.size(); share = next++) {
      for (std::size_t i = shares[share]; i < shares[share + 1]; ++i) {
        ids.clear();
        if (const auto done = encoder.encode(documents[i], add_special_tokens, ids); !done) {
          errors[i] = done.error();
        }
        encoded.ids[i].assign(ids.begin(), ids.end());
      }
    }
    replaced += encoder.replaced_count() - replaced_before;
  };
  {
    std::vector<JoinedThread> others;
    const std::size_t wanted = std::min(encoders_.size(), shares.size() - 1);
    for (std::size_t i = 1; i < wanted; ++i) {
      others.emplace_back([&work, &encoder = *encoders_[i]] { work(encoder); });
    }
    work(*encoders_.front());
  }
  for (const auto& error : errors) {
    if (error) {
      return *error;
    }
  }
  encoded.replaced_count = replaced;
  return encoded;
}

}  // namespace train::data
