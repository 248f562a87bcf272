#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace train::data {

/// White space stripped from texts, and moved from a context to its continuations.
inline constexpr std::string_view kWhiteSpace = " \t\n\r\f\v";

/// Multiple-choice question as put to a model: a context and several continuations whose
/// likelihoods are compared.
struct ChoiceQuestion {
  std::string context;
  std::vector<std::string> continuations;  ///< At least two; each begins with a space.
  /// Texts whose lengths acc_norm and acc_bytes divide by: the letter, or the answer's text.
  std::vector<std::string> choices;
  std::size_t answer = 0;  ///< Index of the correct choice.
};

/// Members that identify each layout, for messages.
[[nodiscard]] std::string_view choice_layouts_help();

/// Reads one line. Its members tell the layout, and with it the prompt, which is lm-eval's:
///
/// question, choices [text], answer (index or letter), and if there are any subject, description:
///   MMLU's and WMDP's. The description, or "The following are multiple choice questions (with
///   answers) about SUBJECT.", and an empty line; question, "A. ..." lines, "Answer:". Choices are
///   letters.
/// question, choices {text, label}, answerKey: ARC's. "Question: ...", "Answer:"; choices are
/// texts. ctx_a, ctx_b, activity_label, endings, label: HellaSwag's. Choices are texts.
///
/// Errors (user): what is wrong, without the place.
[[nodiscard]] Result<ChoiceQuestion> parse_choice_question(std::string_view line);

}  // namespace train::data
