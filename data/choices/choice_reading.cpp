#include "data/choices/choice_reading.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "storage/inputs/input_reader.hpp"

namespace train::data {
namespace {

std::size_t characters_of(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U;
  }));
}

/// Lines that are no questions, by what is wrong with them.
class Faults {
 public:
  void add(const std::string& text, std::uint64_t line) {
    const auto known = std::find_if(reasons_.begin(), reasons_.end(),
                                    [&](const Reason& reason) { return reason.text == text; });
    if (known != reasons_.end()) {
      ++known->lines;
    } else if (reasons_.size() < kMost) {
      reasons_.push_back({.text = text, .first = line});
    } else {
      ++others_;
    }
    ++all_;
  }
  /// True if a file of another kind need not be read to its end.
  [[nodiscard]] bool enough() const { return all_ >= 1000; }

  /// Errors (user): there are such lines. Names every reason with its lines and the first of them.
  [[nodiscard]] Status check(const std::string& file) const {
    std::string text;
    for (const Reason& reason : reasons_) {
      text += fmt::format("{}{}:{}: {}", text.empty() ? "" : "; ", file, reason.first, reason.text);
      text += reason.lines > 1 ? fmt::format(" ({} lines)", reason.lines) : "";
    }
    text += others_ > 0 ? fmt::format("; {} lines more", others_) : "";
    return text.empty() ? Status() : user_error(text);
  }

 private:
  static constexpr std::size_t kMost = 16;  // A reason may name a value of its line.
  struct Reason {
    std::string text;
    std::uint64_t first = 0;
    std::uint64_t lines = 1;
  };
  std::vector<Reason> reasons_;
  std::uint64_t others_ = 0, all_ = 0;
};

}  // namespace

ChoiceReading::ChoiceReading(std::optional<Tokenizer> tokenizer, const ChoiceOptions& options)
    : tokenizer_(std::move(tokenizer)), options_(options) {
  if (tokenizer_) {
    encoder_.emplace(*tokenizer_);
  }
}

/// Keeps the tokens that the tokenizer puts around a text, except an end, and a beginning that the
/// text already has.
Result<ChoiceReading::Ids> ChoiceReading::encode(std::string_view text) {
  Ids ids;
  if (!encoder_) {
    for (const char byte : text) {
      ids.push_back(static_cast<unsigned char>(byte));
    }
    return ids;
  }
  TRAIN_RETURN_IF_ERROR(encoder_->encode(text, /*add_special_tokens=*/true, ids));
  const auto end = tokenizer_->end_of_text();
  while (ids.size() > 1 && end && ids.back() == *end &&
         !text.ends_with(tokenizer_->token_text(*end))) {
    ids.pop_back();
  }
  if (ids.size() > 1 && ids[0] == ids[1] && tokenizer_->is_special(ids[0])) {
    ids.erase(ids.begin());
  }
  return ids;
}

Status ChoiceReading::add_document(const Ids& whole, std::size_t context) {
  const auto longest = static_cast<std::size_t>(options_.row_length) + 1;
  const std::size_t continuation = whole.size() - std::min(context, whole.size());
  if (continuation == 0) {
    return user_error("adds no token to its context");
  }
  if (continuation > longest - 1) {
    return user_error(
        fmt::format("has {} tokens, more than the {} of a row", continuation, options_.row_length));
  }
  const std::size_t cut = whole.size() - std::min(whole.size(), longest);
  for (const std::uint32_t id : whole) {
    if (id >= static_cast<std::uint64_t>(options_.vocab_size)) {
      return user_error(fmt::format("has token {}, but the model's vocabulary has {} tokens", id,
                                    options_.vocab_size));
    }
  }
  if (context <= cut) {
    return user_error("has no token of its context before it");
  }
  read_.documents.push_back({.first_token = read_.tokens.size(),
                             .context = static_cast<std::uint32_t>(context - cut),
                             .continuation = static_cast<std::uint32_t>(continuation)});
  read_.tokens.insert(read_.tokens.end(), whole.begin() + static_cast<std::ptrdiff_t>(cut),
                      whole.end());
  return {};
}

Status ChoiceReading::add(const ChoiceQuestion& question, std::size_t source, std::uint64_t line) {
  const std::string& text = question.context;
  const std::size_t end = text.find_last_not_of(kWhiteSpace) + 1;
  const auto context = TRAIN_TRY(encode(std::string_view(text).substr(0, end)));
  ScoredQuestion scored{.source = source,
                        .line = line,
                        .first_document = read_.documents.size(),
                        .answer = question.answer,
                        .choices = {}};
  for (std::size_t i = 0; i < question.choices.size(); ++i) {
    const auto whole = TRAIN_TRY(encode(text + question.continuations[i]));
    if (const Status added = add_document(whole, context.size()); !added) {
      return user_error(fmt::format("choice {} {}", i + 1, added.error().message));
    }
    scored.choices.push_back({.characters = characters_of(question.choices[i]),
                              .bytes = question.choices[i].size(),
                              .tokens = read_.documents.back().continuation});
  }
  read_.questions.push_back(std::move(scored));
  return {};
}

Status ChoiceReading::read(const std::string& file, std::size_t source) {
  auto input = TRAIN_TRY(storage::InputReader::open(file));
  const std::size_t before = read_.questions.size();
  Faults faults;
  const auto take = [&](const storage::InputRecord& record) -> Status {
    if (record.fault) {
      return user_error(std::string(storage::line_fault_text(*record.fault)));
    }
    const auto question = TRAIN_TRY(parse_choice_question(record.text));
    return add(question, source, record.line);
  };
  TRAIN_RETURN_IF_ERROR(input.read_records([&](const storage::InputRecord& record) -> Status {
    const Status taken = take(record);
    if (!taken) {
      faults.add(taken.error().message, record.line);
    }
    return faults.enough() ? faults.check(file) : Status();
  }));
  TRAIN_RETURN_IF_ERROR(faults.check(file));
  if (read_.questions.size() == before) {
    return user_error(fmt::format("{}: holds no question; expected one per line, of {}", file,
                                  choice_layouts_help()));
  }
  return {};
}

}  // namespace train::data
