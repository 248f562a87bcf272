#include "storage/examples/conversation_mask.hpp"

#include <catch2/catch.hpp>

#include "storage/examples/example_encoder.hpp"
#include "tests/storage/examples/examples_fixture.hpp"

using namespace train;
using namespace train::storage;
using namespace train::test;

namespace {

Conversation two_turns() {
  return {.messages = {{"user", "in"}, {"assistant", "out"}, {"user", "our"}, {"assistant", "er"}}};
}

MaskedConversation masked(const std::string& source) {
  auto found = ChatTemplate::of_source(source, "test.jinja");
  REQUIRE(found.ok());
  auto outcome = mask_conversation(*found, two_turns());
  REQUIRE(std::holds_alternative<MaskedConversation>(outcome));
  return std::get<MaskedConversation>(std::move(outcome));
}

/// What is trained of it, token texts joined with what is not in brackets.
std::string trained_text(const MaskedConversation& conversation) {
  const DataPlace place;
  const Tokenizer tokenizer = place.tokenizer();
  const auto encoded = tokenizer.encode_with_spans(conversation.text, {.rendered = true});
  REQUIRE(encoded.ok());
  const std::vector<float> weights = {0, 1, 0, 1};
  const RowText row =
      train_answers(tokenizer, *encoded, conversation.answers, weights, "<|im_end|>");
  RowExcerpt excerpt{.tokens = row.tokens, .trained = row.trained};
  return marked_text(tokenizer, excerpt, {"[[", "]]"});
}

constexpr const char* turns_trained =
    "<|im_start|>user\nin<|im_end|>\n<|im_start|>assistant\n[[out<|im_end|>]]\n"
    "<|im_start|>user\nour<|im_end|>\n<|im_start|>assistant\n[[er<|im_end|>]]\n";

/// ChatML; `answer` stands for an assistant's content and end.
std::string chatml_with(const std::string& answer, const std::string& prompt = "") {
  return "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}"
         "{%- if m.role == 'assistant' %}" +
         answer +
         "{%- else %}{{ m.content + '<|im_end|>\\n' }}{%- endif %}{%- endfor %}"
         "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n" +
         prompt + "' }}{%- endif %}";
}

}  // namespace

TEST_CASE("mask: a built-in template says what the model says", "[storage][examples]") {
  auto chatml = ChatTemplate::built_in("chatml");
  REQUIRE(chatml.ok());
  auto outcome = mask_conversation(*chatml, two_turns());
  const auto& conversation = std::get<MaskedConversation>(outcome);
  REQUIRE(conversation.method == MaskMethod::markers);
  REQUIRE(trained_text(conversation) == turns_trained);
}

TEST_CASE(
    "mask: without markers an answer lies between two beginnings, without the new line behind",
    "[storage][examples]") {
  const auto conversation = masked(chatml_with("{{ m.content + '<|im_end|>\\n' }}"));
  REQUIRE(conversation.method == MaskMethod::prefixes);
  REQUIRE(trained_text(conversation) == turns_trained);
}

TEST_CASE("mask: the token that ends a turn is trained though the markers leave it out",
          "[storage][examples]") {
  const auto conversation = masked(
      chatml_with("{% generation %}{{ m.content }}{% endgeneration %}{{ '<|im_end|>\\n' }}"));
  REQUIRE(conversation.method == MaskMethod::markers);
  REQUIRE(trained_text(conversation) == turns_trained);
}

TEST_CASE("mask: an end of the whole text that the template marks belongs to the last answer",
          "[storage][examples]") {
  const auto conversation = masked(
      chatml_with("{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}") +
      "{% generation %}{{ '<|im_end|>' }}{% endgeneration %}");
  REQUIRE(conversation.method == MaskMethod::markers);
  REQUIRE(conversation.answers.back().message == 3);
  REQUIRE(trained_text(conversation) == std::string(turns_trained) + "[[<|im_end|>]]");
}

TEST_CASE("mask: answers are located where beginnings differ from the whole",
          "[storage][examples]") {
  const auto conversation = masked(chatml_with("{{ m.content + '<|im_end|>\\n' }}", "<think>"));
  REQUIRE(conversation.method == MaskMethod::located);
  REQUIRE(trained_text(conversation) == turns_trained);
}

TEST_CASE("mask: an answer that the template does not print is dropped", "[storage][examples]") {
  auto found = ChatTemplate::of_source(chatml_with("{{ m.content | upper }}", "<think>"), "t");
  REQUIRE(found.ok());
  auto outcome = mask_conversation(*found, two_turns());
  REQUIRE(std::get<Dropped>(outcome).reason == DropReason::no_mask);
  auto raises = ChatTemplate::of_source("{{ raise_exception('no') }}", "t");
  REQUIRE(raises.ok());
  outcome = mask_conversation(*raises, two_turns());
  REQUIRE(std::get<Dropped>(outcome).reason == DropReason::template_error);
}

TEST_CASE("mask: a token that starts the next turn is not trained", "[storage][examples]") {
  const auto conversation =
      masked(chatml_with("{% generation %}{{ m.content }}{% endgeneration %}"));
  REQUIRE(trained_text(conversation) ==
          "<|im_start|>user\nin<|im_end|>\n<|im_start|>assistant\n[[out]]"
          "<|im_start|>user\nour<|im_end|>\n<|im_start|>assistant\n[[er]]");
}
