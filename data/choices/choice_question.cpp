#include "data/choices/choice_question.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "data/tokenizer/formats/json_members.hpp"
#include "storage/files/untrusted_text.hpp"

namespace train::data {
namespace {

using nlohmann::json;

constexpr std::size_t kLetterCount = 26;
constexpr storage::JsonLimits kJsonLimits{
    .bytes = std::size_t{32} << 20, .values = 100'000, .run = std::size_t{32} << 20, .depth = 16};

std::string stripped(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kWhiteSpace);
  if (first == std::string_view::npos) {
    return {};
  }
  return std::string(text.substr(first, text.find_last_not_of(kWhiteSpace) - first + 1));
}

Result<std::string> text_member(const json& line, std::string_view key) {
  const auto text = json_text(line, key);
  if (!text) {
    return user_error(fmt::format("\"{}\" is missing or not text", key));
  }
  if (stripped(*text).empty()) {
    return user_error(fmt::format("\"{}\" is empty", key));
  }
  return *text;
}

Result<std::vector<std::string>> text_list(const json& list, std::string_view what) {
  std::vector<std::string> texts;
  for (const json& each : list) {
    if (!each.is_string()) {
      return user_error(fmt::format("\"{}\" has an element that is not text", what));
    }
    texts.push_back(each.get<std::string>());
    if (stripped(texts.back()).empty()) {
      return user_error(fmt::format("\"{}\" has an empty text", what));
    }
  }
  if (texts.size() < 2) {
    return user_error(fmt::format("\"{}\" has {} {}; a question needs two or more choices", what,
                                  texts.size(), texts.size() == 1 ? "text" : "texts"));
  }
  return texts;
}

Result<std::size_t> in_range(const std::string& shown_answer, std::int64_t answer,
                             std::size_t choices, std::string_view key) {
  if (answer < 0 || answer >= static_cast<std::int64_t>(choices)) {
    return user_error(fmt::format("\"{}\" is {}, but the {} choices are 0 to {}", key, shown_answer,
                                  choices, choices - 1));
  }
  return static_cast<std::size_t>(answer);
}

/// Index given as a number, as digits, or as a letter.
Result<std::size_t> index_member(const json& line, std::string_view key, std::size_t choices) {
  const json& member = json_member(line, key);
  if (member.is_number_integer()) {
    const bool fits = !member.is_number_unsigned() || member.get<std::uint64_t>() < choices;
    return in_range(member.dump(), fits ? member.get<std::int64_t>() : -1, choices, key);
  }
  if (!member.is_string()) {
    return user_error(fmt::format("\"{}\" is missing or neither an index nor a letter", key));
  }
  const auto& text = member.get_ref<const std::string&>();
  if (text.size() == 1 && text.front() >= 'A' && text.front() <= 'Z') {
    const auto letter = static_cast<std::size_t>(text.front() - 'A');
    if (letter >= choices) {
      return user_error(fmt::format("\"{}\" is {}, but the {} choices are A to {}", key, text,
                                    choices, static_cast<char>('A' + choices - 1)));
    }
    return letter;
  }
  std::int64_t index = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    return user_error(
        fmt::format("\"{}\" is {}, neither an index nor a letter", key, storage::shown(text)));
  }
  return in_range(text, index, choices, key);
}

/// Text before the question; may be empty.
std::string description_of(const json& line) {
  const std::string given = stripped(json_text(line, "description").value_or(""));
  if (!given.empty()) {
    return given + "\n\n";
  }
  std::string subject = stripped(json_text(line, "subject").value_or(""));
  if (subject.empty()) {
    return {};
  }
  std::replace(subject.begin(), subject.end(), '_', ' ');
  return fmt::format("The following are multiple choice questions (with answers) about {}.\n\n",
                     subject);
}

Result<ChoiceQuestion> parse_letters(const json& line) {
  const auto question = TRAIN_TRY(text_member(line, "question"));
  const auto texts = TRAIN_TRY(text_list(json_member(line, "choices"), "choices"));
  if (texts.size() > kLetterCount) {
    return user_error(
        fmt::format("\"choices\" has {} texts, more than there are letters", texts.size()));
  }
  const auto answer = TRAIN_TRY(index_member(line, "answer", texts.size()));
  ChoiceQuestion parsed{.context = description_of(line) + stripped(question) + "\n",
                        .continuations = {},
                        .choices = {},
                        .answer = answer};
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string letter(1, static_cast<char>('A' + i));
    parsed.context += fmt::format("{}. {}\n", letter, texts[i]);
    parsed.continuations.push_back(" " + letter);
    parsed.choices.push_back(letter);
  }
  parsed.context += "Answer:";
  return parsed;
}

ChoiceQuestion with_texts(std::string context, std::vector<std::string> texts, std::size_t answer) {
  ChoiceQuestion parsed{.context = std::move(context),
                        .continuations = {},
                        .choices = std::move(texts),
                        .answer = answer};
  for (const std::string& text : parsed.choices) {
    parsed.continuations.push_back(" " + text);
  }
  return parsed;
}

Result<ChoiceQuestion> parse_arc(const json& line) {
  const auto question = TRAIN_TRY(text_member(line, "question"));
  const json& choices = json_member(line, "choices");
  auto texts = TRAIN_TRY(text_list(json_member(choices, "text"), "choices.text"));
  const json& labels = json_member(choices, "label");
  const auto key = TRAIN_TRY(text_member(line, "answerKey"));
  if (!labels.is_array() || labels.size() != texts.size()) {
    return user_error(fmt::format(
        "\"choices.label\" does not have a label for each of the {} texts", texts.size()));
  }
  const auto found = std::find(labels.begin(), labels.end(), json(key));
  if (found == labels.end()) {
    return user_error(fmt::format("\"answerKey\" is {}, which is not one of the labels {}",
                                  storage::shown(key),
                                  labels.dump(-1, ' ', false, json::error_handler_t::replace)));
  }
  const auto answer = static_cast<std::size_t>(found - labels.begin());
  return with_texts(fmt::format("Question: {}\nAnswer:", question), std::move(texts), answer);
}

/// First letter upper case, the others lower case; ASCII only.
std::string capitalized(std::string text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    if (i == 0 && letter >= 'a' && letter <= 'z') {
      text[i] = static_cast<char>(letter - 'a' + 'A');
    } else if (i > 0 && letter >= 'A' && letter <= 'Z') {
      text[i] = static_cast<char>(letter - 'A' + 'a');
    }
  }
  return text;
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
    text.replace(at, from.size(), to);
    at += to.size();
  }
}

/// Removes titles and links in brackets, which HellaSwag's WikiHow texts contain.
std::string without_brackets(std::string_view given) {
  std::string text = stripped(given);
  replace_all(text, " [title]", ". ");
  std::string plain;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text[at] == '[' ? text.find(']', at) : std::string::npos;
    const bool one_line =
        end != std::string::npos && text.substr(at, end - at).find('\n') == std::string::npos;
    if (one_line) {
      at = end + 1;
    } else {
      plain += text[at++];
    }
  }
  replace_all(plain, "  ", " ");
  return plain;
}

Result<ChoiceQuestion> parse_hellaswag(const json& line) {
  const auto before = TRAIN_TRY(text_member(line, "ctx_a"));
  const auto activity = TRAIN_TRY(text_member(line, "activity_label"));
  auto endings = TRAIN_TRY(text_list(json_member(line, "endings"), "endings"));
  const auto answer = TRAIN_TRY(index_member(line, "label", endings.size()));
  const std::string after = json_text(line, "ctx_b").value_or("");
  std::vector<std::string> texts;
  for (const std::string& ending : endings) {
    texts.push_back(without_brackets(ending));
    if (texts.back().empty()) {
      return user_error("\"endings\" has a text of nothing but brackets");
    }
  }
  return with_texts(
      without_brackets(fmt::format("{}: {} {}", activity, before, capitalized(after))),
      std::move(texts), answer);
}

}  // namespace

std::string_view choice_layouts_help() {
  return "question, choices, answer (MMLU, WMDP); question, choices {text, label}, answerKey "
         "(ARC); ctx_a, ctx_b, activity_label, endings, label (HellaSwag)";
}

Result<ChoiceQuestion> parse_choice_question(std::string_view line) {
  if (const std::string excess = storage::json_excess(line, kJsonLimits); !excess.empty()) {
    return user_error(fmt::format("not read as JSON: {}", excess));
  }
  const json parsed = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) {
    return user_error("not a JSON object; is the line whole?");
  }
  if (parsed.contains("endings")) {
    return parse_hellaswag(parsed);
  }
  const json& choices = json_member(parsed, "choices");
  if (choices.is_object()) {
    return parse_arc(parsed);
  }
  if (choices.is_array()) {
    return parse_letters(parsed);
  }
  return user_error(fmt::format("not a question in a known layout: {}", choice_layouts_help()));
}

}  // namespace train::data
