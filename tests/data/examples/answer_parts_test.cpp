#include "data/examples/answer_parts.hpp"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace train::data {
namespace {

/// Texts of the kept parts of one answer between "A:" and the end of its turn.
std::vector<std::string> parts_of(const std::string& answer, AnswerPart part) {
  const std::string text = "U: hi A:" + answer + "<end>";
  const std::vector<AnswerSpan> spans = {{.begin_bytes = 8,
                                          .end_bytes = text.size(),
                                          .message = 1,
                                          .tail_bytes = 5,
                                          .said_end_bytes = text.size() - 5}};
  std::vector<std::string> parts;
  for (const AnswerSpan& span : keep_part(text, spans, part)) {
    CHECK(span.message == 1);
    parts.push_back(text.substr(span.begin_bytes, span.end_bytes - span.begin_bytes));
  }
  return parts;
}

using Texts = std::vector<std::string>;

}  // namespace

TEST_CASE("answer parts: thoughts with their mark, and what follows it", "[data][examples]") {
  const std::string answer = "<think>\nhm\n</think>\n\nYes.";
  CHECK(parts_of(answer, AnswerPart::thinking) == Texts{"<think>\nhm\n</think>"});
  CHECK(parts_of(answer, AnswerPart::final) == Texts{"\n\nYes.<end>"});
  CHECK(parts_of(answer, AnswerPart::whole) == Texts{answer + "<end>"});
  CHECK(parts_of("[THINK]a[/THINK]b", AnswerPart::thinking) == Texts{"[THINK]a[/THINK]"});
  CHECK(parts_of("<|channel|>analysis<|message|>a<|end|><|channel|>final<|message|>b",
                 AnswerPart::final) == Texts{"<|channel|>final<|message|>b<end>"});
}

TEST_CASE("answer parts: thoughts without an end are all of the answer", "[data][examples]") {
  for (const std::string open : {"<think>", "[THINK]", "<|channel|>analysis<|message|>"}) {
    CHECK(parts_of(open + "hm", AnswerPart::thinking) == Texts{open + "hm<end>"});
    CHECK(parts_of(open + "hm", AnswerPart::final).empty());
  }
}

TEST_CASE("answer parts: an answer without thoughts is final", "[data][examples]") {
  CHECK(parts_of("Yes.", AnswerPart::thinking).empty());
  CHECK(parts_of("Yes.", AnswerPart::final) == Texts{"Yes.<end>"});
}

TEST_CASE("answer parts: names", "[data][examples]") {
  CHECK(answer_part_named("thinking") == AnswerPart::thinking);
  CHECK(answer_part_named("final") == AnswerPart::final);
  CHECK(answer_part_named("last") == AnswerPart::whole);
}

}  // namespace train::data
