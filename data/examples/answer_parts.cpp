#include "data/examples/answer_parts.hpp"

#include <algorithm>
#include <array>
#include <optional>

namespace train::data {
namespace {

/// Mark between the parts of an answer, and the part that it belongs to.
struct PartMark {
  std::string_view text;
  bool ends_thinking = true;
};
constexpr auto kPartMarks = std::to_array<PartMark>(
    {{"</think>"}, {"[/THINK]"}, {"<|channel|>final<|message|>", /*ends_thinking=*/false}});

// Thoughts that begin so and have no end are all of the answer.
constexpr auto kThinkingBegins =
    std::to_array<std::string_view>({"<think>", "[THINK]", "<|channel|>analysis<|message|>"});

/// Where the final part of an answer begins; nullopt: it has no thoughts.
std::optional<std::size_t> final_begin(std::string_view text, const AnswerSpan& answer) {
  const std::string_view own =
      text.substr(answer.begin_bytes, answer.end_bytes - answer.begin_bytes);
  for (const PartMark& mark : kPartMarks) {
    // The last one: thoughts may quote it, and the final part comes once.
    if (const std::size_t at = own.rfind(mark.text); at != std::string_view::npos) {
      return answer.begin_bytes + at + (mark.ends_thinking ? mark.text.size() : 0);
    }
  }
  const bool thinks = std::ranges::any_of(kThinkingBegins, [&](std::string_view mark) {
    return own.find(mark) != std::string_view::npos;
  });
  return thinks ? std::optional(answer.end_bytes) : std::nullopt;
}

}  // namespace

AnswerPart answer_part_named(std::string_view name) {
  return name == "thinking" ? AnswerPart::thinking
         : name == "final"  ? AnswerPart::final
                            : AnswerPart::whole;
}

std::vector<AnswerSpan> keep_part(std::string_view text, std::span<const AnswerSpan> answers,
                                  AnswerPart part) {
  std::vector<AnswerSpan> kept;
  for (AnswerSpan answer : answers) {
    const auto begin = part == AnswerPart::whole ? std::nullopt : final_begin(text, answer);
    const bool lacks = part == AnswerPart::thinking ? !begin : begin == answer.end_bytes;
    if (lacks) {
      continue;
    }
    if (begin && part == AnswerPart::final) {
      answer.begin_bytes = *begin;
    } else if (begin && *begin < answer.end_bytes) {
      // The turn goes on behind it: nothing there ends it.
      answer.end_bytes = answer.said_end_bytes = *begin;
      answer.tail_bytes = 0;
    }
    kept.push_back(answer);
  }
  return kept;
}

}  // namespace train::data
