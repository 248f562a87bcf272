#include "data/choices/choice_question.hpp"

#include <catch2/catch.hpp>
#include <string>

using train::data::parse_choice_question;

namespace {

void check_refused(const std::string& line, const std::string& part) {
  const auto question = parse_choice_question(line);
  INFO(line);
  REQUIRE_FALSE(question.ok());
  INFO(question.error().message);
  CHECK(question.error().kind == train::ErrorKind::user);
  CHECK(question.error().message.find(part) != std::string::npos);
  CHECK(question.error().message.find('\n') == std::string::npos);
}

}  // namespace

TEST_CASE("choice question: letters of MMLU's and WMDP's layout", "[data][choices]") {
  const auto question = parse_choice_question(
      R"({"question": " Which is even?\n", "subject": "high_school_algebra",
          "choices": ["three", "four ", "five"], "answer": 1})");
  REQUIRE(question.ok());
  CHECK(question->context ==
        "The following are multiple choice questions (with answers) about high school algebra.\n\n"
        "Which is even?\nA. three\nB. four \nC. five\nAnswer:");
  CHECK(question->continuations == std::vector<std::string>{" A", " B", " C"});
  CHECK(question->choices == std::vector<std::string>{"A", "B", "C"});
  CHECK(question->answer == 1);

  const auto lettered =
      parse_choice_question(R"({"question": "q", "choices": ["x", "y"], "answer": "B"})");
  REQUIRE(lettered.ok());
  CHECK(lettered->context == "q\nA. x\nB. y\nAnswer:");
  CHECK(lettered->answer == 1);
  const auto described = parse_choice_question(
      R"({"question": "q", "choices": ["x", "y"], "answer": "0", "description": "About."})");
  REQUIRE(described.ok());
  CHECK(described->context == "About.\n\nq\nA. x\nB. y\nAnswer:");
  CHECK(described->answer == 0);
}

TEST_CASE("choice question: texts of ARC's layout", "[data][choices]") {
  const auto question = parse_choice_question(
      R"({"id": "x", "question": "What falls?", "answerKey": "3",
          "choices": {"text": ["light", "sound", "rain"], "label": ["1", "2", "3"]}})");
  REQUIRE(question.ok());
  CHECK(question->context == "Question: What falls?\nAnswer:");
  CHECK(question->continuations == std::vector<std::string>{" light", " sound", " rain"});
  CHECK(question->choices.back() == "rain");
  CHECK(question->answer == 2);
}

TEST_CASE("choice question: texts of HellaSwag's layout lose titles and brackets",
          "[data][choices]") {
  const auto question = parse_choice_question(
      R"({"activity_label": "Baking", "ctx_a": "[header] How to bake [title] Mix it.",
          "ctx_b": "then HE", "endings": ["[step] stirs.", "sleeps [substeps] long."],
          "label": "1"})");
  REQUIRE(question.ok());
  CHECK(question->context == "Baking: How to bake. Mix it. Then he");
  CHECK(question->continuations == std::vector<std::string>{"  stirs.", " sleeps long."});
  CHECK(question->answer == 1);
}

TEST_CASE("choice question: what is wrong is said in one line", "[data][choices]") {
  const std::string letters = R"({"question": "q", "choices": ["x", "y"], "answer": )";
  check_refused(letters + "2}", "\"answer\" is 2, but the 2 choices are 0 to 1");
  check_refused(letters + "-1}", "\"answer\" is -1");
  check_refused(letters + "18446744073709551615}", "\"answer\" is ");
  check_refused(letters + "\"C\"}", "\"answer\" is C, but the 2 choices are A to B");
  check_refused(letters + "\"first\"}", "neither an index nor a letter");
  check_refused(letters + "0.5}", "neither an index nor a letter");
  check_refused(letters, "is the line whole?");
  check_refused(R"({"question": "q", "choices": ["x"], "answer": 0})", "has 1 text");
  check_refused(R"({"question": " \n", "choices": ["x", "y"], "answer": 0})",
                "\"question\" is empty");
  check_refused(R"({"choices": ["x", "y"], "answer": 0})", "\"question\" is missing");
  check_refused(R"({"question": "q", "choices": ["x", ""], "answer": 0})", "an empty text");
  check_refused(R"({"question": "q", "choices": ["x", 3], "answer": 0})", "that is not text");
  check_refused(R"({"question": "q", "choices": {"text": ["x", "y"], "label": ["A", "B"]},
                    "answerKey": "E"})",
                "not one of the labels");
  check_refused(R"({"ctx_a": "a", "ctx_b": "", "activity_label": "b", "endings": ["x", "y"],
                    "label": ""})",
                "\"label\" is \"\"");
  check_refused(R"({"text": "no question"})", "not a question in a known layout");
  check_refused("[1, 2]", "not a JSON object");
  check_refused(std::string(40, '['), "nested deeper");
}
