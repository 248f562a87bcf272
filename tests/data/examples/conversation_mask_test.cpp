#include "data/examples/conversation_mask.hpp"

#include <catch2/catch.hpp>

#include "data/examples/example_encoder.hpp"
#include "tests/data/examples/examples_fixture.hpp"

using namespace train;
using namespace train::data;
using namespace train::test;

namespace {

Conversation two_turns() {
  return {.messages = {{"user", "in"}, {"assistant", "out"}, {"user", "our"}, {"assistant", "er"}}};
}

const std::vector<float> two_turns_weights = {0, 1, 0, 1};

MaskedConversation masked(const std::string& source,
                          const Conversation& conversation = two_turns()) {
  auto found = ChatTemplate::of_source(source, "test.jinja");
  REQUIRE(found.ok());
  auto outcome = mask_conversation(*found, conversation, two_turns_weights);
  REQUIRE(std::holds_alternative<MaskedConversation>(outcome));
  return std::get<MaskedConversation>(std::move(outcome));
}

/// What is trained of it, token texts joined with what is not in brackets.
std::string trained_text(const MaskedConversation& conversation) {
  const DataPlace place;
  const Tokenizer tokenizer = place.tokenizer();
  const auto encoded = tokenizer.encode_with_spans(conversation.text, {.rendered = true});
  REQUIRE(encoded.ok());
  const RowText row =
      train_answers(tokenizer, *encoded, conversation.answers, two_turns_weights, "<|im_end|>");
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

TEST_CASE("mask: a built-in template says what the model says", "[data][examples]") {
  auto chatml = ChatTemplate::built_in("chatml");
  REQUIRE(chatml.ok());
  auto outcome = mask_conversation(*chatml, two_turns(), two_turns_weights);
  const auto& conversation = std::get<MaskedConversation>(outcome);
  REQUIRE(conversation.method == MaskMethod::markers);
  REQUIRE(trained_text(conversation) == turns_trained);
}

TEST_CASE(
    "mask: without markers an answer lies between two beginnings, without the new line behind",
    "[data][examples]") {
  const auto conversation = masked(chatml_with("{{ m.content + '<|im_end|>\\n' }}"));
  REQUIRE(conversation.method == MaskMethod::placeholders);
  REQUIRE(trained_text(conversation) == turns_trained);
}

TEST_CASE("mask: the token that ends a turn is trained though the markers leave it out",
          "[data][examples]") {
  const auto conversation = masked(
      chatml_with("{% generation %}{{ m.content }}{% endgeneration %}{{ '<|im_end|>\\n' }}"));
  REQUIRE(conversation.method == MaskMethod::markers);
  REQUIRE(trained_text(conversation) == turns_trained);
}

TEST_CASE("mask: an end of the whole text that the template marks belongs to the last answer",
          "[data][examples]") {
  const auto conversation = masked(
      chatml_with("{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}{{ '\\n' }}") +
      "{% generation %}{{ '<|im_end|>' }}{% endgeneration %}");
  REQUIRE(conversation.method == MaskMethod::markers);
  REQUIRE(conversation.answers.back().message == 3);
  REQUIRE(trained_text(conversation) == std::string(turns_trained) + "[[<|im_end|>]]");
}

TEST_CASE("mask: a thought that what asks begins with, and answers lack, hides no answer",
          "[data][examples]") {
  const auto conversation = masked(chatml_with("{{ m.content + '<|im_end|>\\n' }}", "<think>"));
  REQUIRE(conversation.method == MaskMethod::placeholders);
  REQUIRE(trained_text(conversation) == turns_trained);
}

TEST_CASE("mask: an answer that the template does not print is dropped", "[data][examples]") {
  auto found = ChatTemplate::of_source(chatml_with("{{ m.content | upper }}", "<think>"), "t");
  REQUIRE(found.ok());
  auto outcome = mask_conversation(*found, two_turns(), two_turns_weights);
  REQUIRE(std::get<Dropped>(outcome).reason == DropReason::no_mask);
  auto raises = ChatTemplate::of_source("{{ raise_exception('no') }}", "t");
  REQUIRE(raises.ok());
  outcome = mask_conversation(*raises, two_turns(), two_turns_weights);
  REQUIRE(std::get<Dropped>(outcome).reason == DropReason::template_error);
}

namespace {

/// Of a call of f, with null as content, and an answer that is trained; what `answer` prints of it.
std::variant<MaskedConversation, Dropped> masked_call(const std::string& answer,
                                                      const std::string& arguments = "{}",
                                                      float weight = 1) {
  auto found = ChatTemplate::of_source(chatml_with(answer + "{{ '<|im_end|>\n' }}"), "t");
  REQUIRE(found.ok());
  const auto conversation = parse_conversation(
      R"([{"role": "user", "content": "ask"}, {"role": "assistant", "content": null, "tool_calls":
          [{"function": {"name": "fetch", "arguments": )" +
      arguments +
      R"(}}]}, {"role": "tool", "content": "1"}, {"role": "assistant", "content": "1"}])");
  REQUIRE(conversation.ok());
  const std::vector<float> weights = {0, weight, 0, 1};
  return mask_conversation(*found, *conversation, weights);
}

constexpr const char* prints_calls =
    "{{ m.content | trim }}{%- for c in m.tool_calls or [] %}{{ c.function.name + ' ' }}"
    "{{ c.function.arguments | tojson }}{%- endfor %}";

}  // namespace

TEST_CASE("mask: a message without content is never the text None", "[data][examples]") {
  auto outcome = masked_call(prints_calls);
  const auto& conversation = std::get<MaskedConversation>(outcome);
  REQUIRE(contains(conversation.text, "assistant\nfetch {}<|im_end|>"));
  REQUIRE_FALSE(contains(conversation.text, "None"));
  // What refuses null gets an empty text, too.
  outcome = masked_call("{{ m.content + '' }}{{ 'fetch' if m.tool_calls }}");
  REQUIRE(contains(std::get<MaskedConversation>(outcome).text, "assistant\nfetch<|im_end|>"));
}

TEST_CASE("mask: arguments that are a JSON text are not escaped a second time",
          "[data][examples]") {
  const auto outcome = masked_call(prints_calls, R"("{\"city\":\"Oslo\"}")");
  REQUIRE(contains(std::get<MaskedConversation>(outcome).text, R"(fetch {"city": "Oslo"}<)"));
  // A template that prints a text as it is gets the text.
  const auto text = masked_call(
      "{{ m.content or '' }}{{ ('fetch ' ~ m.tool_calls[0].function.arguments"
      ") if m.tool_calls }}",
      R"("{\"city\":\"Oslo\"}")");
  REQUIRE(contains(std::get<MaskedConversation>(text).text, R"(fetch {"city":"Oslo"}<)"));
}

TEST_CASE("mask: a call that the template does not write is a reason of its own",
          "[data][examples]") {
  for (const float weight : {0.0F, 1.0F}) {
    const auto outcome = masked_call("{{ m.content or '' }}", "{}", weight);
    const auto& dropped = std::get<Dropped>(outcome);
    REQUIRE(dropped.reason == DropReason::call_lost);
    REQUIRE(dropped.detail == "message 2: fetch");
  }
}

TEST_CASE("mask: a call whose name only the content has is not written", "[data][examples]") {
  for (const std::string calls : {"", "{{ m.tool_calls[0].function.name if m.tool_calls }}"}) {
    auto found =
        ChatTemplate::of_source(chatml_with("{{ m.content }}" + calls + "{{ '<|im_end|>' }}"), "t");
    REQUIRE(found.ok());
    const auto conversation = parse_conversation(
        R"([{"role": "user", "content": "ask"}, {"role": "assistant", "content": "I call fetch.",
            "tool_calls": [{"function": {"name": "fetch", "arguments": {}}}]}])");
    REQUIRE(conversation.ok());
    const auto outcome = mask_conversation(*found, *conversation, std::vector<float>{0, 1});
    const auto* const dropped = std::get_if<Dropped>(&outcome);
    REQUIRE((dropped != nullptr) == calls.empty());
    REQUIRE((dropped == nullptr || dropped->reason == DropReason::call_lost));
  }
}

TEST_CASE("mask: white space of Unicode that a template trims is not left out",
          "[data][examples]") {
  for (const std::string mark : {"{% generation %}", "{% if true %}"}) {
    const std::string end = mark == "{% if true %}" ? "{% endif %}" : "{% endgeneration %}";
    auto found = ChatTemplate::of_source(
        chatml_with(mark + "{{ m.content | trim + '<|im_end|>' }}" + end), "t");
    REQUIRE(found.ok());
    const Conversation conversation = {
        .messages = {{"user", "ask"}, {"assistant", "\u3000yes \u00a0\n"}}};
    const auto outcome = mask_conversation(*found, conversation, std::vector<float>{0, 1});
    const auto* const masked = std::get_if<MaskedConversation>(&outcome);
    REQUIRE(masked != nullptr);
    REQUIRE(masked->left_out.empty());
    REQUIRE(masked->answers.size() == 1);
    REQUIRE(masked->text.substr(masked->answers[0].begin_bytes) == "yes<|im_end|>");
  }
}

TEST_CASE("mask: what the template leaves out of what is said has its name", "[data][examples]") {
  auto found = ChatTemplate::of_source(chatml_with("{{ m.content + '<|im_end|>\n' }}"), "t");
  REQUIRE(found.ok());
  const auto conversation = parse_conversation(
      R"({"messages": [{"role": "user", "content": "ask"}, {"role": "assistant", "content": "yes",
          "thinking": "perhaps"}], "tools": [{"function": {"name": "fetch"}}]})");
  REQUIRE(conversation.ok());
  const std::vector<float> weights = {0, 1};
  const auto outcome = mask_conversation(*found, *conversation, weights);
  REQUIRE(std::get<MaskedConversation>(outcome).left_out ==
          std::vector<std::string>{"thinking", "tools"});
}

TEST_CASE("mask: several marks of one answer are its own where all answers are trained",
          "[data][examples]") {
  const auto conversation = masked(
      chatml_with("{% generation %}{{ '!' }}{% endgeneration %}{{ '\n' }}"
                  "{% generation %}{{ m.content + '<|im_end|>' }}{% endgeneration %}{{ '\n' }}"));
  REQUIRE(conversation.method == MaskMethod::markers);
  REQUIRE(trained_text(conversation) ==
          "<|im_start|>user\nin<|im_end|>\n<|im_start|>assistant\n[[!]]\n[[out<|im_end|>]]\n"
          "<|im_start|>user\nour<|im_end|>\n<|im_start|>assistant\n[[!]]\n[[er<|im_end|>]]\n");
}

TEST_CASE("mask: a token that starts the next turn is not trained", "[data][examples]") {
  const auto conversation =
      masked(chatml_with("{% generation %}{{ m.content }}{% endgeneration %}"));
  REQUIRE(trained_text(conversation) ==
          "<|im_start|>user\nin<|im_end|>\n<|im_start|>assistant\n[[out]]"
          "<|im_start|>user\nour<|im_end|>\n<|im_start|>assistant\n[[er]]");
}

TEST_CASE("mask: a special token that an answer says ends no turn", "[data][examples]") {
  const auto says = [](const std::string& first) {
    return Conversation{
        .messages = {{"user", "in"}, {"assistant", first}, {"user", "a"}, {"assistant", "er"}}};
  };
  const std::string other_end =
      "{{ m.content + ('<|endoftext|>' if loop.last else '<|im_end|>') }}";
  const std::string marked = "{% generation %}" + other_end + "{% endgeneration %}";
  const std::string begin = "<|im_start|>user\nin<|im_end|>\n<|im_start|>assistant\n";
  const std::string rest = "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n";
  for (const std::string& answer : {other_end, marked}) {
    for (const std::string said : {"out<|endoftext|>", "<|endoftext|>", "a<|endoftext|>b",
                                   "out<|endoftext|>\n", "<|im_end|>"}) {
      INFO(answer << " of " << said);
      CHECK(trained_text(masked(chatml_with(answer), says(said))) ==
            begin + "[[" + said + "<|im_end|>]]" + rest + "[[er<|endoftext|>]]");
    }
  }
  const std::string content_marked =
      "{% generation %}{{ m.content }}{% endgeneration %}{{ '<|im_end|>\n' }}";
  for (const std::string said : {"out<|im_end|>", "out<|im_end|>\n", "out<|endoftext|>"}) {
    INFO(content_marked << " of " << said);
    CHECK(trained_text(masked(chatml_with(content_marked), says(said))) ==
          begin + "[[" + said + "<|im_end|>]]\n" + rest + "[[er<|im_end|>]]\n");
  }
}

TEST_CASE("mask: white space alone that follows an answer is not trained without marks",
          "[data][examples]") {
  const std::string lines =
      "{%- for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{%- endfor %}"
      "{%- if add_generation_prompt %}{{ 'assistant: ' }}{%- endif %}";
  CHECK(trained_text(masked(lines)) ==
        "user: in\nassistant: [[out]]\nuser: our\nassistant: [[er]]\n");
  // What the template marks is trained.
  const std::string marked =
      "{%- for m in messages %}{{ m.role + ': ' }}{%- if m.role == 'assistant' %}{% generation %}"
      "{{ m.content + '\n' }}{% endgeneration %}{%- else %}{{ m.content + '\n' }}{%- endif %}"
      "{%- endfor %}";
  CHECK(trained_text(masked(marked)) ==
        "user: in\nassistant: [[out\n]]user: our\nassistant: [[er\n]]");
}

TEST_CASE("mask: what ends the whole text belongs to an answer that ends it alone",
          "[data][examples]") {
  Conversation asks_last = two_turns();
  asks_last.messages.emplace_back("user", "the");
  for (const std::string mark : {"{% if true %}", "{% generation %}"}) {
    const std::string end = mark == "{% if true %}" ? "{% endif %}" : "{% endgeneration %}";
    const std::string source =
        "{%- for m in messages %}{{ '<|im_start|>' + m.role + ':' }}{%- if m.role == 'assistant' "
        "%}" +
        mark + "{{ m.content }}" + end +
        "{%- else %}{{ m.content }}{%- endif %}{%- endfor %}"
        "{{ '<|im_start|>assistant:' if add_generation_prompt else '<|endoftext|>' }}";
    const std::string whole =
        "<|im_start|>user:in<|im_start|>assistant:[[out]]<|im_start|>user:our"
        "<|im_start|>assistant:[[er";
    CHECK(trained_text(masked(source)) == whole + "<|endoftext|>]]");
    auto found = ChatTemplate::of_source(source, "test.jinja");
    REQUIRE(found.ok());
    const auto outcome = mask_conversation(*found, asks_last, std::vector<float>{0, 1, 0, 1, 0});
    CHECK(trained_text(std::get<MaskedConversation>(outcome)) ==
          whole + "]]<|im_start|>user:the<|endoftext|>");
  }
}
