#include "data/examples/answer_places.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "data/chat/white_space.hpp"

namespace train::data {
namespace {

constexpr std::size_t kAnswersAtOnce = 16;
constexpr std::size_t kRendersEach = 4;

std::size_t common_length(std::string_view left, std::string_view right) {
  const std::size_t most = std::min(left.size(), right.size());
  return static_cast<std::size_t>(
      std::mismatch(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(most), right.begin())
          .first -
      left.begin());
}

/// Makes a text of letters that does not occur in `whole`.
std::string placeholder_for(std::string_view whole, std::string text) {
  while (whole.find(text) != std::string_view::npos) {
    text += "Qx";
  }
  return text;
}

/// Text before and after a placeholder.
struct Around {
  std::string_view before;
  std::string_view after;

  bool operator==(const Around&) const = default;
};

/// Counts the occurrences of a placeholder in a text, up to two.
std::size_t count_of(std::string_view text, std::string_view placeholder) {
  const std::size_t first = text.find(placeholder);
  if (first == std::string_view::npos) {
    return 0;
  }
  return text.find(placeholder, first + placeholder.size()) == std::string_view::npos ? 1 : 2;
}

Around around(std::string_view text, std::string_view placeholder) {
  const std::size_t first = text.find(placeholder);
  return {text.substr(0, first), text.substr(first + placeholder.size())};
}

using Rendered = std::span<const Result<RenderedChat>>;

/// Locates the answers of one conversation.
class AnswerPlaces {
 public:
  AnswerPlaces(ChatTemplate& chat_template, const Conversation& conversation,
               std::string_view whole)
      : template_(chat_template),
        conversation_(conversation),
        whole_(whole),
        one_(placeholder_for(whole, "QxAnswerOneQx")),
        two_(placeholder_for(whole, "QxAnotherAnswerTwoQx")) {}

  /// Prefixes to render for an answer, in the order in which place() reads them.
  [[nodiscard]] std::array<ChatPrefix, kRendersEach> prefixes(std::size_t answer) const {
    const std::size_t all = conversation_.messages.size();
    return {ChatPrefix{.messages_count = answer, .options = {.add_generation_prompt = true}},
            ChatPrefix{.messages_count = all, .contents = {{answer, one_}}},
            ChatPrefix{.messages_count = all, .contents = {{answer, two_}}},
            ChatPrefix{.messages_count = answer + 1, .contents = {{answer, one_}}}};
  }

  std::variant<AnswerSpan, Dropped> place(std::size_t answer, Rendered rendered) {
    const Result<RenderedChat>& first = rendered[1];
    const Result<RenderedChat>& second = rendered[2];
    if ((!first || !second) && says_no_text(answer)) {
      return between_beginnings(answer, rendered[0]);
    }
    if (!first || !second) {
      return unknown(answer, fmt::format("the template rejects another answer in its place: {}",
                                         (first ? second : first).error().message));
    }
    const std::size_t count = std::max(count_of(first->text, one_), count_of(second->text, two_));
    if (count == 0 && says_no_text(answer)) {
      return between_beginnings(answer, rendered[0]);
    }
    if (count != 1 || count_of(first->text, one_) != count_of(second->text, two_)) {
      return unknown(answer, count < 2 ? "the template omits or changes the answer's text"
                                       : "the template repeats the answer's text");
    }
    if (results_before(answer)) {
      return says_no_text(answer)
                 ? between_beginnings(answer, rendered[0])
                 : unknown(
                       answer,
                       "the template places the results of tool calls before the answer's text");
    }
    const Around beside = around(first->text, one_);
    if (beside != around(second->text, two_)) {
      return unknown(answer, "the text around the answer depends on the answer");
    }
    const std::size_t tail = tail_length(beside.after, rendered[3]);
    const std::string_view rest = beside.after.substr(tail);
    const auto begin = begin_of(answer, beside.before, rendered[0]);
    if (!begin) {
      return unknown(answer, "the text before the answer is not the template's generation prompt");
    }
    const std::string_view header =
        beside.before.substr(0, shared_with_whole(answer, beside.before.substr(0, *begin)));
    if (!whole_.starts_with(header) || !whole_.ends_with(rest) ||
        header.size() + rest.size() >= whole_.size()) {
      return unknown(answer, "the text of other messages depends on the answer");
    }
    const std::size_t end = whole_.size() - rest.size();
    return span_of(answer, header.size(), end, std::min(tail, end - header.size()));
  }

 private:
  [[nodiscard]] static Dropped unknown(std::size_t answer, const std::string& why) {
    return {DropReason::no_mask, fmt::format("message {}: {}", answer + 1, why)};
  }

  [[nodiscard]] static AnswerSpan span_of(std::size_t answer, std::size_t begin, std::size_t end,
                                          std::size_t tail) {
    return {.begin_bytes = begin,
            .end_bytes = end,
            .message = answer,
            .tail_bytes = tail,
            .said_end_bytes = end - tail};
  }

  [[nodiscard]] bool says_no_text(std::size_t answer) const {
    const auto& content = conversation_.messages[answer].content();
    return !content || is_blank(*content);
  }

  /// True if the template prints the replies to an answer's tool calls before the text of the
  /// calling message.
  bool results_before(std::size_t answer) {
    const std::size_t next = answer + 1;
    if (next >= conversation_.messages.size() || conversation_.messages[next].role() != "tool") {
      return false;
    }
    const auto both = render({.messages_count = conversation_.messages.size(),
                              .contents = {{answer, one_}, {next, two_}}});
    return !both || both->text.find(two_) < both->text.find(one_);
  }

  /// Place of an answer with tool calls only, for which the template prints no text: the common
  /// part of the prefix up to it and the whole, after the generation prompt.
  std::variant<AnswerSpan, Dropped> between_beginnings(std::size_t answer,
                                                       const Result<RenderedChat>& asked) {
    const auto with = render(ChatPrefix{.messages_count = answer + 1});
    if (!asked || !with || !whole_.starts_with(asked->text) ||
        !with->text.starts_with(asked->text)) {
      return unknown(answer, "the messages before the answer are rendered differently without it");
    }
    const std::size_t begin = asked->text.size();
    const std::size_t length =
        common_length(whole_.substr(begin), std::string_view(with->text).substr(begin));
    if (length == 0) {
      return unknown(answer, "the answer is rendered differently where it is not the last message");
    }
    const std::string header = question_alone().value_or("");
    const bool headed = !header.empty() && whole_.substr(begin, length).starts_with(header) &&
                        asks_for_nothing(answer, asked->text);
    const std::size_t skipped = headed ? header.size() : 0;
    return span_of(answer, begin + skipped, begin + length, length - skipped);
  }

  /// Length of the text from the answer to the end of its turn: the text that also follows it when
  /// it is the last message.
  [[nodiscard]] std::size_t tail_length(std::string_view after,
                                        const Result<RenderedChat>& last) const {
    if (!last || count_of(last->text, one_) != 1) {
      return 0;  // The token that ends the turn is found after the answer.
    }
    return common_length(after, around(last->text, one_).after);
  }

  /// Length of the generation prompt that the whole also contains: it may begin a thought that the
  /// answer writes differently.
  std::size_t shared_with_whole(std::size_t answer, std::string_view header) {
    if (whole_.starts_with(header)) {
      return header.size();
    }
    const auto earlier = render(ChatPrefix{.messages_count = answer});
    const bool same =
        earlier && whole_.starts_with(earlier->text) && header.starts_with(earlier->text);
    return same ? common_length(whole_, header) : header.size();
  }

  /// End of the generation prompt in `before`; nullopt: it does not occur.
  std::optional<std::size_t> begin_of(std::size_t answer, std::string_view before,
                                      const Result<RenderedChat>& asked) {
    if (asked && before == asked->text) {
      return before.size();
    }
    if (asked && before.starts_with(asked->text)) {
      return asked->text.size() +
             header_unasked(answer, before.substr(asked->text.size()), asked->text);
    }
    const auto unasked = render(ChatPrefix{.messages_count = answer});
    const bool both = asked && unasked && asked->text.starts_with(unasked->text);
    if (both && before.starts_with(unasked->text)) {
      // After the same beginning, or after more text, which some templates put before a first
      // message.
      const std::size_t shared = unasked->text.size();
      const std::size_t same = common_length(asked->text, before);
      const Beginning found =
          longest_beginning(before.substr(shared), std::string_view(asked->text).substr(shared));
      return found.length > same - shared ? shared + found.end : same;
    }
    // The template prints earlier messages differently when they are the last ones.
    const auto question = both ? asked->text.substr(unasked->text.size()) : question_alone();
    const auto between = between_messages(answer);
    if (!question || !between || !before.ends_with(*between)) {
      return std::nullopt;
    }
    return before.size() - between->size() + longest_beginning(*between, *question).end;
  }

  /// Length of the part of `more`, which precedes an answer after the generation prompt, that still
  /// begins its turn: some templates have no generation prompt, or none after tool replies.
  std::size_t header_unasked(std::size_t answer, std::string_view more, std::string_view asked) {
    const std::string question = question_alone().value_or("");
    const std::size_t found = question.empty() ? more.npos : more.find(question);
    return found != more.npos && asks_for_nothing(answer, asked) ? found + question.size() : 0;
  }

  bool asks_for_nothing(std::size_t answer, std::string_view asked) {
    const auto unasked = render(ChatPrefix{.messages_count = answer});
    return unasked && unasked->text == asked;
  }

  /// Prefix of one text that occurs in another.
  struct Beginning {
    std::size_t length = 0;
    std::size_t end = 0;  ///< Its end in the other text; if empty, the end of that text.
  };

  /// Longest prefix of `question` that occurs in `between`, at its last place.
  static Beginning longest_beginning(std::string_view between, std::string_view question) {
    Beginning longest{.end = between.size()};
    for (std::size_t at = 0; at < between.size(); ++at) {
      const std::size_t length = common_length(between.substr(at), question);
      if (length > 0 && length >= longest.length) {
        longest = {.length = length, .end = at + length};
      }
    }
    return longest;
  }

  Result<RenderedChat> render(const ChatPrefix& prefix) {
    return std::move(template_.render_prefixes(conversation_, std::span(&prefix, 1)).front());
  }

  /// Generation prompt after any question, or the beginning of an answer if there is no prompt;
  /// nullopt: unknown.
  const std::optional<std::string>& question_alone() {
    if (!question_known_) {
      question_known_ = true;
      const Conversation probe = {.messages = {{"user", one_}, {"assistant", two_}}};
      const std::array<ChatPrefix, 3> prefixes = {
          ChatPrefix{.messages_count = 1, .options = {.add_generation_prompt = true}},
          ChatPrefix{.messages_count = 1}, ChatPrefix{.messages_count = 2}};
      const auto rendered = template_.render_prefixes(probe, prefixes);
      if (rendered[0] && rendered[1] && rendered[0]->text.starts_with(rendered[1]->text)) {
        question_ = rendered[0]->text.substr(rendered[1]->text.size());
        if (question_->empty() && rendered[2]) {
          question_ = header_of(rendered[2]->text, rendered[1]->text);
        }
      }
    }
    return question_;
  }

  /// Text in `whole` between `asked` and an answer; trailing spaces belong to the answer.
  [[nodiscard]] std::string header_of(std::string_view whole, std::string_view asked) const {
    if (!whole.starts_with(asked) || count_of(whole, two_) != 1) {
      return {};
    }
    const std::string_view header = around(whole, two_).before.substr(asked.size());
    return std::string(header.substr(0, header.find_last_not_of(' ') + 1));
  }

  /// Template text between the contents of the previous message and of the answer.
  std::optional<std::string> between_messages(std::size_t answer) {
    ChatPrefix prefix{.messages_count = conversation_.messages.size(),
                      .contents = {{answer, one_}}};
    if (answer > 0) {
      prefix.contents.emplace(answer - 1, two_);
    }
    const auto rendered = render(prefix);
    if (!rendered || count_of(rendered->text, one_) != 1) {
      return std::nullopt;
    }
    const std::string_view before = around(rendered->text, one_).before;
    if (answer == 0) {
      return std::string(before);
    }
    return count_of(before, two_) == 1 ? std::optional(std::string(around(before, two_).after))
                                       : std::nullopt;
  }

  ChatTemplate& template_;
  const Conversation& conversation_;
  std::string_view whole_;
  std::string one_;
  std::string two_;
  bool question_known_ = false;
  std::optional<std::string> question_ = {};
};

/// Locates a conversation's answers with a single rendering in which all of them are replaced.
/// Works if the template prints each answer unchanged or trimmed after the generation prompt:
/// substituting the answers for the placeholders must give the whole text.
class AnswersAtOnce {
 public:
  AnswersAtOnce(ChatTemplate& chat_template, const Conversation& conversation,
                std::string_view whole, std::span<const std::size_t> answers)
      : template_(chat_template),
        conversation_(conversation),
        whole_(whole),
        placeholder_(placeholder_for(whole, "QxAnswerOneQx")) {
    for (const std::size_t answer : answers) {
      if (is_plain(answer)) {
        prefix_.contents.emplace(answer, fmt::format("{}{}Qx", placeholder_, answer));
      }
    }
  }

  /// Places of the answers that this method can locate.
  std::map<std::size_t, AnswerSpan> run() {
    if (prefix_.contents.empty() || !template_.turn_texts()) {
      return {};
    }
    prefix_.messages_count = conversation_.messages.size();
    const auto rendered = template_.render_prefixes(conversation_, std::span(&prefix_, 1));
    if (!rendered.front() || !follow(rendered.front()->text)) {
      return {};
    }
    std::map<std::size_t, AnswerSpan> spans;
    for (const auto& [answer, said] : said_) {
      if (const auto span = span_of(answer, said)) {
        spans.emplace(answer, *span);
      }
    }
    return spans;
  }

 private:
  struct Said {
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  /// True for content without parts that templates extract, such as thoughts and tool calls.
  [[nodiscard]] bool is_plain(std::size_t answer) const {
    const ChatMessage& message = conversation_.messages[answer];
    const bool before_result = answer + 1 < conversation_.messages.size() &&
                               conversation_.messages[answer + 1].role() == "tool";
    return message.content() && !is_blank(*message.content()) && !before_result &&
           message.content()->find("</think>") == std::string::npos &&
           message.json().find("\"tool_calls\"") == std::string::npos;
  }

  /// Finds the answers in the whole. False if the texts differ.
  bool follow(std::string_view rest) {
    std::size_t at = 0;
    std::string_view between = next_piece(rest);
    for (auto each = prefix_.contents.begin(); each != prefix_.contents.end(); ++each) {
      if (!whole_.substr(at).starts_with(between) || !rest.starts_with(each->second)) {
        return false;
      }
      rest.remove_prefix(each->second.size());
      at += between.size();
      between = next_piece(rest);
      const std::string& content = *conversation_.messages[each->first].content();
      const auto length = length_at(at, content, between, /*is_last=*/rest.empty());
      if (!length) {
        return false;
      }
      said_.emplace(each->first, Said{at, at + *length});
      at += *length;
    }
    return rest.empty() && whole_.substr(at) == between;
  }

  /// Takes the text before the next placeholder.
  [[nodiscard]] std::string_view next_piece(std::string_view& rest) const {
    const std::string_view piece = rest.substr(0, rest.find(placeholder_));
    rest.remove_prefix(piece.size());
    return piece;
  }

  /// Length of a content, unchanged or trimmed, that occurs in the whole at a place, before `next`.
  [[nodiscard]] std::optional<std::size_t> length_at(std::size_t at, std::string_view content,
                                                     std::string_view next, bool is_last) const {
    for (const std::string_view said : {content, trimmed(content)}) {
      const std::string_view there = whole_.substr(at);
      const bool followed =
          there.starts_with(said) && (is_last ? there.substr(said.size()) == next
                                              : there.substr(said.size()).starts_with(next));
      if (followed) {
        return said.size();
      }
    }
    return std::nullopt;
  }

  /// nullopt if the text before it (or after it, if it is the last message) differs from that
  /// around all other answers.
  [[nodiscard]] std::optional<AnswerSpan> span_of(std::size_t answer, const Said& said) {
    const TurnTexts& turn = *template_.turn_texts();
    const std::string_view after = whole_.substr(said.end);
    const bool is_last = answer + 1 == conversation_.messages.size();
    if (!whole_.substr(0, said.begin).ends_with(turn.question) || (is_last && after != turn.end)) {
      return std::nullopt;
    }
    const std::size_t tail = common_length(after, turn.end);
    return AnswerSpan{.begin_bytes = said.begin,
                      .end_bytes = said.end + tail,
                      .message = answer,
                      .tail_bytes = tail,
                      .said_end_bytes = said.end};
  }

  ChatTemplate& template_;
  const Conversation& conversation_;
  std::string_view whole_;
  std::string placeholder_;
  ChatPrefix prefix_;
  std::map<std::size_t, Said> said_;
};

}  // namespace

std::variant<std::vector<AnswerSpan>, Dropped> place_answers(ChatTemplate& chat_template,
                                                             const Conversation& conversation,
                                                             std::string_view whole,
                                                             std::span<const std::size_t> answers) {
  const auto at_once = AnswersAtOnce(chat_template, conversation, whole, answers).run();
  std::vector<AnswerSpan> spans;
  std::vector<std::size_t> others;
  for (const std::size_t answer : answers) {
    const auto found = at_once.find(answer);
    if (found == at_once.end()) {
      others.push_back(answer);
    } else {
      spans.push_back(found->second);
    }
  }
  AnswerPlaces places(chat_template, conversation, whole);
  for (std::size_t first = 0; first < others.size(); first += kAnswersAtOnce) {
    const auto some =
        std::span(others).subspan(first, std::min(kAnswersAtOnce, others.size() - first));
    std::vector<ChatPrefix> prefixes;
    for (const std::size_t answer : some) {
      const auto each = places.prefixes(answer);
      prefixes.insert(prefixes.end(), each.begin(), each.end());
    }
    const auto rendered = chat_template.render_prefixes(conversation, prefixes);
    for (std::size_t i = 0; i < some.size(); ++i) {
      auto placed =
          places.place(some[i], Rendered(rendered).subspan(i * kRendersEach, kRendersEach));
      if (auto* const dropped = std::get_if<Dropped>(&placed)) {
        return std::move(*dropped);
      }
      spans.push_back(std::get<AnswerSpan>(placed));
    }
  }
  std::sort(spans.begin(), spans.end(), [](const AnswerSpan& left, const AnswerSpan& right) {
    return left.message < right.message;
  });
  return spans;
}

}  // namespace train::data
