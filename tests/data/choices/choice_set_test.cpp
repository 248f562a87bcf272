#include "data/choices/choice_set.hpp"

#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/inputs/small_tokenizer.hpp"

namespace train::data {
namespace {

const std::string kQuestion = R"({"question": "q", "choices": ["x", "y"], "answer": 0})";

struct Columns {
  std::vector<std::int32_t> tokens, targets, positions;

  Columns(const ChoiceSet& set, std::int64_t lane, std::size_t size)
      : tokens(size, -7), targets(size, -7), positions(size, -7) {
    set.read(lane, {tokens, targets, positions});
  }
};

/// What the lanes of a set hold: of each document the tokens read and its targets, as text.
std::vector<std::string> documents_of(const ChoiceSet& set, std::size_t lane_size) {
  std::vector<std::string> texts;
  for (std::int64_t lane = 0; lane < set.lanes(); ++lane) {
    const Columns columns(set, lane, lane_size);
    for (std::size_t i = 0; i < lane_size; ++i) {
      const bool padding = columns.tokens[i] == 0;
      if (columns.positions[i] == 0 && !padding) {
        texts.emplace_back();
      }
      if (padding) {
        CHECK(columns.targets[i] == -1);
        continue;
      }
      texts.back() += static_cast<char>(columns.tokens[i]);
      if (columns.targets[i] >= 0) {
        texts.back() += std::string("<") + static_cast<char>(columns.targets[i]) + ">";
      }
    }
  }
  return texts;
}

Result<ChoiceSet> open(const test::TempDirectory& home, const std::string& text,
                       const ChoiceOptions& options,
                       const std::optional<Tokenizer>& tokenizer = {}) {
  test::write_bytes(home / "q.jsonl", text);
  return ChoiceSet::open({(home / "q.jsonl").string()}, tokenizer, options);
}

void check_refused(const std::string& text, const ChoiceOptions& options, const std::string& part) {
  const test::TempDirectory home;
  const auto set = open(home, text, options);
  REQUIRE_FALSE(set.ok());
  INFO(set.error().message);
  CHECK(set.error().kind == ErrorKind::user);
  CHECK(set.error().message.find((home / "q.jsonl").string() + part) == 0);
}

}  // namespace

TEST_CASE("choice set: a document is the context and the continuation but its last token",
          "[data][choices]") {
  const test::TempDirectory home;
  const std::string hellaswag =
      R"({"activity_label": "a", "ctx_a": "b", "ctx_b": "", "endings": ["cd", "e"], "label": 0})";
  const auto set = open(home, kQuestion + "\n\n" + hellaswag,
                        {.row_length = 40, .rows_per_lane = 2, .vocab_size = 257});
  REQUIRE(set.ok());
  CHECK(set->documents() == 4);
  CHECK(set->lanes() == 1);
  CHECK(documents_of(*set, 80) == std::vector<std::string>{"q\nA. x\nB. y\nAnswer:< > <A>",
                                                           "q\nA. x\nB. y\nAnswer:< > <B>",
                                                           "a: b< > <c>c<d>", "a: b< > <e>"});
  CHECK(set->questions().back().line == 3);
  CHECK(set->questions().back().choices[0] ==
        ScoredQuestion::Choice{.characters = 2, .bytes = 2, .tokens = 3});
}

TEST_CASE("choice set: rows hold whole documents, in order, as many as fit", "[data][choices]") {
  const test::TempDirectory home;
  std::string text;
  for (int i = 0; i < 5; ++i) {
    text += kQuestion + "\n";
  }
  std::vector<std::string> alone;
  for (const std::int64_t length : {20, 21, 39, 40, 70, 1000}) {
    for (const std::int64_t rows : {1, 3}) {
      const auto set =
          open(home, text, {.row_length = length, .rows_per_lane = rows, .vocab_size = 257});
      REQUIRE(set.ok());
      const auto found = documents_of(*set, static_cast<std::size_t>(length * rows));
      REQUIRE(found.size() == 10);
      alone = alone.empty() ? found : alone;
      CHECK(found.back() == alone.back());
      const std::int64_t per_row = length / 20;
      const std::int64_t row_count = (10 + per_row - 1) / per_row;
      CHECK(set->lanes() == (row_count + rows - 1) / rows);
      std::size_t next = 0;
      for (std::int64_t lane = 0; lane < set->lanes(); ++lane) {
        CHECK(set->documents_of(lane, lane + 1).first == next);
        next += set->documents_of(lane, lane + 1).count;
      }
      CHECK(next == 10);
      CHECK(set->documents_of(0, set->lanes()).count == 10);
    }
  }
}

TEST_CASE("choice set: a context that is too long loses its beginning", "[data][choices]") {
  const test::TempDirectory home;
  const auto set = open(home, kQuestion, {.row_length = 9, .rows_per_lane = 1, .vocab_size = 257});
  REQUIRE(set.ok());
  CHECK(documents_of(*set, 9) == std::vector<std::string>{"\nAnswer:< > <A>", "\nAnswer:< > <B>"});
  const auto one = open(home, kQuestion, {.row_length = 2, .rows_per_lane = 1, .vocab_size = 257});
  REQUIRE(one.ok());
  CHECK(documents_of(*one, 2) == std::vector<std::string>{":< > <A>", ":< > <B>"});
  check_refused(kQuestion, {.row_length = 1, .rows_per_lane = 1, .vocab_size = 257},
                ":1: choice 1 has 2 tokens, more than the 1 of a row");
}

TEST_CASE("choice set: a continuation's tokens are those that the whole has beyond the context's",
          "[data][choices]") {
  const test::TempDirectory home;
  test::write_bytes(home / "tokenizer.json", test::small_tokenizer_json());
  const auto tokenizer = Tokenizer::load(home / "tokenizer.json");
  REQUIRE(tokenizer.ok());
  // Spaces at the context's end go with the continuation: "x: y" and " " + " thea", whose " the" is
  // one token.
  const std::string line = R"({"activity_label": "x", "ctx_a": "y [z]", "ctx_b": "", "endings": )"
                           R"(["thea", "q"], "label": 0})";
  const auto set =
      open(home, line, {.row_length = 30, .rows_per_lane = 1, .vocab_size = 300}, *tokenizer);
  REQUIRE(set.ok());
  const Columns columns(*set, 0, 30);
  const auto whole = tokenizer->encode("x: y  thea", true);
  const auto context = tokenizer->encode("x: y", true);
  REQUIRE((whole.ok() && context.ok()));
  CHECK(whole->size() < 10);  // something was merged
  for (std::size_t i = 0; i + 1 < whole->size(); ++i) {
    CHECK(columns.tokens[i] == static_cast<std::int32_t>((*whole)[i]));
    CHECK(columns.targets[i] ==
          (i + 1 < context->size() ? -1 : static_cast<std::int32_t>((*whole)[i + 1])));
  }
  CHECK(set->questions()[0].choices[0].tokens == whole->size() - context->size());
}

TEST_CASE("choice set: mistakes name file and line", "[data][choices]") {
  const ChoiceOptions options{.row_length = 40, .rows_per_lane = 1, .vocab_size = 257};
  check_refused(kQuestion + "\n" + kQuestion.substr(0, 20), options, ":2: not a JSON object");
  check_refused(kQuestion + "\n\n" + R"({"question": "q", "choices": ["x", "y"], "answer": 5})",
                options, ":3: \"answer\" is 5");
  const std::string beyond = R"({"question": "q", "choices": ["x", "y"], "answer": 5})";
  check_refused(beyond + "\n[]\n" + beyond, options,
                ":1: \"answer\" is 5, but the 2 choices are 0 to 1 (2 lines); ");
  check_refused("\n \n", options, ": holds no question");
  check_refused(kQuestion, {.row_length = 40, .rows_per_lane = 1, .vocab_size = 100},
                ":1: choice 1 has token ");
  const auto missing = ChoiceSet::open({"/nowhere/q.jsonl"}, {}, options);
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().kind == ErrorKind::user);
}

TEST_CASE("choice results: lm-eval's numbers of a few questions", "[data][choices]") {
  // Two files; by characters another choice wins than by the sums and by bytes.
  const std::vector<std::string> sources = {"a", "b"};
  const std::vector<ScoredQuestion> questions = {
      {.source = 0, .line = 1, .first_document = 0, .answer = 1, .choices = {{2, 8, 1}, {8, 8, 2}}},
      {.source = 1,
       .line = 1,
       .first_document = 2,
       .answer = 0,
       .choices = {{1, 1, 1}, {1, 1, 1}, {1, 1, 1}}},
      {.source = 1,
       .line = 2,
       .first_document = 5,
       .answer = 1,
       .choices = {{4, 4, 4}, {4, 4, 2}}}};
  const std::vector<double> values = {-3.0, -4.0, -1.0, -1.0, -2.0, -5.0, -6.0};
  const auto scores = score_choices(sources, questions, values);
  REQUIRE(scores.size() == 3);
  CHECK(scores[0].acc == 0.0);
  CHECK(scores[0].acc_norm == 1.0);
  CHECK(scores[0].acc_bytes == 0.0);
  CHECK(scores[0].margin == -1.0);
  CHECK(scores[0].correct_prob == Approx(std::exp(-4.0) / (std::exp(-3.0) + std::exp(-4.0))));
  CHECK(scores[0].perplexity == Approx(std::exp(4.0 / 2.0)));
  CHECK(scores[1].questions == 2);
  CHECK(scores[1].acc == 0.5);  // of equals the first counts
  CHECK(scores[1].margin == -0.5);
  CHECK(scores[1].perplexity == Approx(std::exp((1.0 + 6.0) / 3.0)));
  CHECK(scores[2].source.empty());
  CHECK(scores[2].questions == 3);
  CHECK(scores[2].acc == Approx(1.0 / 3.0));  // files weigh by their size
}

}  // namespace train::data
