// Texts, spans and errors of transformers (see tests/reference/texts/make_chat_fixtures.py).

#include "base/text/one_line.hpp"
#include "tests/data/chat/chat_fixture.hpp"

using namespace train;
using namespace train::data;
using namespace train::test;

namespace {

ChatSettings fixture_settings() {
  ChatSettings settings;
  settings.date = chat_fixtures().at("date").get<std::string>();
  settings.special_tokens = chat_fixtures().at("tokens").get<SpecialTokens>();
  return settings;
}

OrderedJson spans_of(const RenderedChat& chat) {
  OrderedJson spans = OrderedJson::array();
  for (const TextSpan& span : chat.generated) {
    spans.push_back({span.begin_characters, span.end_characters});
  }
  return spans;
}

/// Compares one outcome, and counts it.
void check_outcome(const Result<RenderedChat>& found, const OrderedJson& wanted, int& errors) {
  if (wanted.contains("error")) {
    REQUIRE_FALSE(found.ok());
    ++errors;
    const std::string reason = one_line(wanted.at("error").get<std::string>());
    CHECK(found.error().message.find(reason) != std::string::npos);
    CHECK(found.error().kind == ErrorKind::user);
    return;
  }
  INFO((found.ok() ? "" : found.error().message));
  REQUIRE(found.ok());
  CHECK(found->text == wanted.at("text").get<std::string>());
  CHECK(spans_of(*found) == wanted.value("spans", OrderedJson::array()));
}

}  // namespace

TEST_CASE("chat templates: texts, spans and errors are those of transformers",
          "[data][chat][CT-1]") {
  const auto conversations = fixture_conversations();
  REQUIRE(conversations.size() == 20);
  int errors = 0;
  for (const OrderedJson& entry : chat_fixtures().at("templates")) {
    auto chat_template = template_of(entry.at("source").get<std::string>(), fixture_settings());
    INFO(entry.at("name"));
    // Those of odd numbers end with the beginning of an answer.
    const auto plain = chat_template.render_all(conversations);
    const auto prompts = chat_template.render_all(conversations, {.add_generation_prompt = true});
    for (std::size_t i = 0; i < conversations.size(); ++i) {
      INFO("conversation " << i);
      check_outcome(i % 2 == 0 ? plain[i] : prompts[i], entry.at("outcomes").at(i), errors);
    }
  }
  CHECK(errors == 65);
}

TEST_CASE("chat templates: built-in ones print what published ones of their family do",
          "[data][chat][CT-1]") {
  std::map<std::string, int> texts;
  int errors = 0;
  for (const OrderedJson& row : chat_fixtures().at("built_in")) {
    const auto name = row.at("name").get<std::string>();
    auto chat_template = ChatTemplate::built_in(name);
    REQUIRE(chat_template.ok());
    const auto number = row.at("conversation").get<std::size_t>();
    Conversation conversation = conversation_of(chat_fixtures().at("conversations").at(number));
    if (row.at("system").get<bool>() && conversation.messages.front().role() != "system") {
      conversation.messages.insert(conversation.messages.begin(), ChatMessage("system", "Help."));
    }
    INFO(name << ", conversation " << number);
    const auto found = chat_template->render_with_spans(
        conversation, {.add_generation_prompt = row.at("add_generation_prompt").get<bool>()});
    if (row.contains("error")) {
      check_outcome(found, row, errors);
    } else {
      REQUIRE(found.ok());
      CHECK(found->text == row.at("text").get<std::string>());
    }
    ++texts[name];
  }
  CHECK(texts ==
        std::map<std::string, int>{{"chatml", 20}, {"gemma", 20}, {"llama3", 20}, {"tulu", 20}});
}

TEST_CASE("chat templates: a text does not depend on what was rendered before",
          "[data][chat][CT-2]") {
  const auto conversations = fixture_conversations();
  const std::string source =
      "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{{ m.role }} "
      "{{ range(100) | random }} {% endfor %}{{ ns.n }}{{ strftime_now('%s') }}";
  auto one = template_of(source);
  auto other = template_of(source);
  const auto all = one.render_all(conversations);
  for (std::size_t i = conversations.size(); i-- > 0;) {
    REQUIRE(all[i].ok());
    CHECK(outcome_of(other, conversations[i]) == all[i]->text);
  }
}
