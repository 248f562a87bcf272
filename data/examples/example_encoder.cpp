#include "data/examples/example_encoder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "data/chat/white_space.hpp"
#include "data/examples/example_messages.hpp"

namespace train::data {
namespace {

/// Parts of the names of tokens that end a turn or a text.
constexpr std::array<std::string_view, 8> kEndsOfTurns = {"end",  "eot",      "eom",    "eos",
                                                          "</s>", "|return|", "|call|", "EOS"};

bool is_end_of_turn(const Tokenizer& tokenizer, std::uint32_t id, std::string_view end_of_turn) {
  const std::string_view text = tokenizer.token_text(id);
  return id == tokenizer.end_of_text() || text == end_of_turn ||
         std::any_of(kEndsOfTurns.begin(), kEndsOfTurns.end(), [&](std::string_view part) {
           return text.find(part) != std::string_view::npos;
         });
}

bool is_special(const Tokenizer& tokenizer, std::uint32_t id, std::string_view end_of_turn) {
  return tokenizer.is_special(id) || tokenizer.token_text(id) == end_of_turn;
}

bool is_space(const Tokenizer& tokenizer, std::uint32_t id) {
  const std::array<std::uint32_t, 1> ids = {id};
  return is_blank(tokenizer.decode(ids, false));
}

/// Tokens of an answer: see train_answers().
struct TokenRange {
  std::size_t begin = 0;
  std::size_t closing = 0;  ///< First token after the message's content, if known.
  std::size_t end = 0;
};

/// True if tokens `begin` to `end` of a text are white space.
bool are_spaces(const Tokenizer& tokenizer, const EncodedText& encoded, std::size_t begin,
                std::size_t end) {
  return std::all_of(encoded.ids.begin() + static_cast<std::ptrdiff_t>(begin),
                     encoded.ids.begin() + static_cast<std::ptrdiff_t>(end),
                     [&](std::uint32_t id) { return is_space(tokenizer, id); });
}

TokenRange answer_tokens(const Tokenizer& tokenizer, const EncodedText& encoded,
                         const AnswerSpan& answer, std::string_view end_of_turn) {
  TokenRange range;
  const auto& spans = encoded.spans;
  const auto& ids = encoded.ids;
  while (range.begin < spans.size() && spans[range.begin].last <= answer.begin_bytes) {
    ++range.begin;
  }
  const std::size_t said_end = answer.end_bytes - answer.tail_bytes;
  range.end = range.begin;
  while (range.end < spans.size() &&
         (spans[range.end].first < said_end || (spans[range.end].first < answer.end_bytes &&
                                                spans[range.end].last <= answer.end_bytes))) {
    ++range.end;
  }
  range.closing = range.begin;
  while (range.closing < range.end && spans[range.closing].first < answer.said_end_bytes) {
    ++range.closing;
  }
  std::size_t last = range.end;
  while (last > range.closing && is_space(tokenizer, ids[last - 1])) {
    --last;
  }
  if (last > range.closing && is_special(tokenizer, ids[last - 1], end_of_turn)) {
    range.end = last;
  } else if (range.end < ids.size() && range.end > range.begin &&
             is_special(tokenizer, ids[range.end], end_of_turn) &&
             is_end_of_turn(tokenizer, ids[range.end], end_of_turn)) {
    ++range.end;
  } else if (answer.tail_bytes > 0 && range.closing > range.begin &&
             are_spaces(tokenizer, encoded, range.closing, range.end)) {
    range.end = range.closing;  // The tokens are unmarked and do not end a turn.
  }
  return range;
}

/// First of the tokens that end the answer's turn, after which only white space and further such
/// tokens come; the range's end if there is none.
std::size_t end_of_turn_token(const Tokenizer& tokenizer, const EncodedText& encoded,
                              const TokenRange& range, std::string_view end_of_turn) {
  std::size_t end = range.end;
  for (std::size_t i = range.end; i > range.closing; --i) {
    const std::uint32_t id = encoded.ids[i - 1];
    const bool special = is_special(tokenizer, id, end_of_turn);
    if (!special && !is_space(tokenizer, id)) {
      break;
    }
    end = special && is_end_of_turn(tokenizer, id, end_of_turn) ? i - 1 : end;
  }
  return end;
}

void remember(std::vector<Remark>& remarks, Remark remark) {
  if (std::find(remarks.begin(), remarks.end(), remark) == remarks.end()) {
    remarks.push_back(std::move(remark));
  }
}

}  // namespace

RowText train_answers(const Tokenizer& tokenizer, const EncodedText& encoded,
                      std::span<const AnswerSpan> answers, std::span<const float> weights,
                      std::string_view end_of_turn) {
  RowText text;
  text.tokens = encoded.ids;
  text.trained.assign(encoded.ids.size(), false);
  const bool plain = std::all_of(weights.begin(), weights.end(),
                                 [](float weight) { return weight == 0.0F || weight == 1.0F; });
  text.weights.assign(plain ? 0 : encoded.ids.size(), 1.0F);
  for (const AnswerSpan& answer : answers) {
    const float weight = weights[answer.message];
    if (weight == 0.0F) {
      continue;
    }
    const TokenRange range = answer_tokens(tokenizer, encoded, answer, end_of_turn);
    const std::size_t end = end_of_turn_token(tokenizer, encoded, range, end_of_turn);
    for (std::size_t i = std::max<std::size_t>(range.begin, 1); i < range.end; ++i) {
      if (i > end && is_space(tokenizer, encoded.ids[i])) {
        continue;
      }
      text.trained[i] = true;
      if (!plain) {
        text.weights[i] = weight;
      }
    }
  }
  return text;
}

ExampleEncoder::ExampleEncoder(Tokenizer tokenizer, EncoderSettings settings)
    : tokenizer_(std::move(tokenizer)), settings_(std::move(settings)), encoder_(tokenizer_) {}

Status ExampleEncoder::open_template() {
  if (!template_) {
    auto found = TRAIN_TRY(ChatTemplate::find(settings_.chat_template, settings_.chat));
    template_.emplace(std::move(found));
  }
  return {};
}

Result<std::variant<EncodedExample, Dropped>> ExampleEncoder::encode(Example example) {
  using Outcome = std::variant<EncodedExample, Dropped>;
  if (example.text.conversation || (example.worse && example.worse->conversation)) {
    TRAIN_RETURN_IF_ERROR(open_template());
  }
  EncodedExample encoded;
  auto text = encode_text(example.text, encoded);
  if (auto* const dropped = std::get_if<Dropped>(&text)) {
    return Outcome(blame_role(std::move(*dropped), example.remarks));
  }
  encoded.text = std::get<RowText>(std::move(text));
  if (example.worse) {
    auto worse = encode_text(*example.worse, encoded);
    if (auto* const dropped = std::get_if<Dropped>(&worse)) {
      return Outcome(blame_role(std::move(*dropped), example.remarks));
    }
    encoded.worse = std::get<RowText>(std::move(worse));
  }
  example.text = {};
  example.worse.reset();
  for (Remark& remark : example.remarks) {
    remember(encoded.remarks, std::move(remark));
  }
  example.remarks.clear();
  encoded.example = std::move(example);
  if (auto dropped = judge(encoded)) {
    return Outcome(std::move(*dropped));
  }
  truncate(encoded);
  if (auto dropped = judge(encoded)) {
    dropped->reason = DropReason::truncated_away;
    return Outcome(std::move(*dropped));
  }
  return Outcome(std::move(encoded));
}

ExampleEncoder::TextOrDropped ExampleEncoder::encode_text(const ExampleText& text,
                                                          EncodedExample& encoded) {
  if (text.conversation) {
    return encode_conversation(text, encoded);
  }
  if (settings_.part != AnswerPart::whole) {
    return Dropped{DropReason::nothing_trained,
                   "thoughts are told apart in conversations alone, and this is a text"};
  }
  return text.prompt.empty() ? encode_plain(text) : encode_completion(text, encoded);
}

ExampleEncoder::TextOrDropped ExampleEncoder::encode_conversation(const ExampleText& text,
                                                                  EncodedExample& encoded) {
  auto masked = mask_conversation(*template_, *text.conversation, text.message_weights);
  if (auto* const dropped = std::get_if<Dropped>(&masked)) {
    return std::move(*dropped);
  }
  const auto& conversation = std::get<MaskedConversation>(masked);
  for (const std::string& name : conversation.left_out) {
    remember(encoded.remarks, {RemarkKind::left_out, name});
  }
  for (const std::string& name : conversation.not_read) {
    remember(encoded.remarks, {RemarkKind::not_read, fmt::format("messages[].{}", name)});
  }
  const auto answers = keep_part(conversation.text, conversation.answers, settings_.part);
  if (answers.empty() && !conversation.answers.empty()) {
    return Dropped{DropReason::nothing_trained,
                   "no answer has thoughts: the template prints no </think>, [/THINK] or channel"};
  }
  EncodedText tokens;
  const Status status = encoder_.encode_with_spans(
      conversation.text, {.add_special_tokens = false, .rendered = true}, tokens);
  if (!status) {
    return Dropped{DropReason::text_error, status.error().message};
  }
  encoded.method = std::max(encoded.method.value_or(MaskMethod::markers), conversation.method);
  const auto end_of_turn = template_->special_tokens().find("eos_token");
  return train_answers(
      tokenizer_, tokens, answers, text.message_weights,
      end_of_turn == template_->special_tokens().end() ? std::string_view() : end_of_turn->second);
}

/// The prompt's tokens are those that it shares with the whole text.
ExampleEncoder::TextOrDropped ExampleEncoder::encode_completion(const ExampleText& text,
                                                                EncodedExample& encoded) {
  std::vector<std::uint32_t> prompt;
  auto whole = encode_plain({.answer = text.prompt + text.answer});
  const Status status = encoder_.encode(text.prompt, /*add_special_tokens=*/true, prompt);
  if (!status) {
    return Dropped{DropReason::text_error, status.error().message};
  }
  if (auto* const row = std::get_if<RowText>(&whole)) {
    while (!prompt.empty() && prompt.back() == tokenizer_.end_of_text()) {
      prompt.pop_back();  // Token with which the tokenizer ends every text.
    }
    const auto shared = static_cast<std::size_t>(
        std::mismatch(prompt.begin(), prompt.end(), row->tokens.begin(), row->tokens.end()).first -
        prompt.begin());
    encoded.merged = encoded.merged || shared < prompt.size();
    std::fill_n(row->trained.begin(), shared, false);
  }
  return whole;
}

/// Trains the whole text, with the token that ends it.
ExampleEncoder::TextOrDropped ExampleEncoder::encode_plain(const ExampleText& text) {
  if (settings_.keywords) {
    return encode_keywords(text.answer);
  }
  RowText row;
  const Status status = encoder_.encode(text.answer, /*add_special_tokens=*/true, row.tokens);
  if (!status) {
    return Dropped{DropReason::text_error, status.error().message};
  }
  const std::uint32_t end = tokenizer_.end_of_text().value();
  if (row.tokens.empty() || row.tokens.back() != end) {
    row.tokens.push_back(end);
  }
  row.trained.assign(row.tokens.size(), true);
  row.trained.front() = false;
  return row;
}

/// Trains the tokens that match the keywords, not the token that ends the text.
ExampleEncoder::TextOrDropped ExampleEncoder::encode_keywords(const std::string& text) {
  EncodedText encoded;
  const Status status = encoder_.encode_with_spans(text, {.add_special_tokens = true}, encoded);
  if (!status) {
    return Dropped{DropReason::text_error, status.error().message};
  }
  auto mask = settings_.keywords->of(text, encoded.spans);
  if (!mask) {
    return Dropped{DropReason::text_error, mask.error().message};
  }
  RowText row{.tokens = std::move(encoded.ids), .trained = std::move(*mask)};
  const std::uint32_t end = tokenizer_.end_of_text().value();
  if (row.tokens.empty() || row.tokens.back() != end) {
    row.tokens.push_back(end);
    row.trained.push_back(false);
  }
  row.trained.front() = false;
  return row;
}

/// Keeps the beginning. In a pair that is too long, a side shorter than half a row is not cut. A
/// KTO example leaves half a row to its mismatched document.
void ExampleEncoder::truncate(EncodedExample& encoded) const {
  if (!settings_.truncates) {
    return;
  }
  const std::size_t room = settings_.row_length;
  const std::size_t left = encoded.text.tokens.size();
  const std::size_t right = encoded.worse.tokens.size();
  const bool labelled = encoded.example.kind == ExampleKind::kto;
  if (labelled ? left <= room / 2 : left + right <= room) {
    return;
  }
  const auto keep = [&](RowText& text, std::size_t length) {
    if (text.tokens.size() > length) {
      text.tokens.resize(length);
      text.trained.resize(length);
      text.weights.resize(text.weights.empty() ? 0 : length);
    }
  };
  encoded.truncated = true;
  keep(encoded.text, labelled ? room / 2 : std::max(room / 2, right >= room ? 0 : room - right));
  keep(encoded.worse, room - encoded.text.tokens.size());
}

std::optional<Dropped> ExampleEncoder::judge(const EncodedExample& encoded) const {
  const bool pair = encoded.example.kind == ExampleKind::preference;
  const auto trained = [](const RowText& text) {
    return std::find(text.trained.begin(), text.trained.end(), true) != text.trained.end();
  };
  if (!trained(encoded.text) || (pair && !trained(encoded.worse))) {
    return Dropped{DropReason::nothing_trained, {}};
  }
  if (pair && encoded.text.tokens == encoded.worse.tokens) {
    return Dropped{DropReason::equal_pair, {}};
  }
  return std::nullopt;
}

}  // namespace train::data
