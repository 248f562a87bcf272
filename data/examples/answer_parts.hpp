#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "data/examples/answer_places.hpp"

namespace train::data {

/// Part of an answer that is trained.
enum class AnswerPart : std::uint8_t {
  whole,
  thinking,  ///< Up to the mark that ends the thoughts, with it.
  final,     ///< Text after that mark; all of an answer without thoughts.
};

/// Part of that name, "thinking" or "final"; whole for any other.
[[nodiscard]] AnswerPart answer_part_named(std::string_view name);

/// Cuts the answers of a rendered conversation to one part. Marks: `</think>`, `[/THINK]`, and
/// GPT-OSS's channel "final", which begins where the thoughts have ended. An answer that lacks the
/// part is left out. Pure.
[[nodiscard]] std::vector<AnswerSpan> keep_part(std::string_view text,
                                                std::span<const AnswerSpan> answers,
                                                AnswerPart part);

}  // namespace train::data
