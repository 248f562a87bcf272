#include "data/chat/chat_message.hpp"

#include "tests/data/chat/chat_fixture.hpp"

using namespace train;
using namespace train::data;
using namespace train::test;

namespace {

std::string parse_mistake(const std::string& text) {
  const auto conversation = parse_conversation(text);
  return conversation ? "none" : conversation.error().message;
}

}  // namespace

TEST_CASE("chat messages: a list, or an object with a list", "[data][chat]") {
  const auto list = parse_conversation(
      R"([{"role": "user", "content": "a\u00e9"},
          {"content": null, "tool_calls": [{"z": 1, "b": 2}], "role": "assistant", "name": "x"}])");
  REQUIRE(list.ok());
  REQUIRE(list->messages.size() == 2);
  CHECK(list->messages[0].role() == "user");
  CHECK(list->messages[0].content() == "a\u00e9");
  CHECK_FALSE(list->messages[1].content());
  CHECK(list->messages[1].json() ==
        R"({"content":null,"tool_calls":[{"z":1,"b":2}],"role":"assistant","name":"x"})");
  CHECK(list->tools.empty());
  const auto object = parse_conversation(
      R"({"id": 7, "messages": [], "tools": [{"name": "f"}],
          "chat_template_kwargs": {"k": true}})");
  REQUIRE(object.ok());
  CHECK(object->messages.empty());
  CHECK(object->tools == R"([{"name":"f"}])");
  CHECK(object->variables == R"({"k":true})");
}

TEST_CASE("chat messages: bytes that are not UTF-8 are replaced", "[data][chat]") {
  const ChatMessage message("user", "a\xff b");
  CHECK(message.content() == "a\ufffd b");
  CHECK(message.json() == "{\"role\":\"user\",\"content\":\"a\ufffd b\"}");
}

TEST_CASE("chat messages: what is wrong is named in a line", "[data][chat]") {
  CHECK(parse_mistake(R"([{"role": "user", "content": "x"}, 3])") ==
        R"(message 2: not an object {"role": ..., "content": ...})");
  CHECK(parse_mistake(R"([{"content": "x"}])") == R"(message 1: it has no "role")");
  CHECK(parse_mistake(R"([{"role": 1, "content": "x"}])") == R"(message 1: "role" is not text)");
  CHECK(parse_mistake(R"([{"role": "user"}])") == R"(message 1: it has no "content")");
  CHECK(parse_mistake(R"([{"role": "user", "content": 1}])") ==
        R"(message 1: "content" is neither a text, nor a list of parts, nor null)");
  const std::string form =
      R"(a conversation is a list [{"role": ..., "content": ...}, ...], or an object with such a )"
      R"(list "messages")";
  CHECK(parse_mistake("{}") == form);
  CHECK(parse_mistake("3") == form);
  CHECK(parse_mistake(R"({"messages": [], "tools": {}})") == R"("tools" is not a list)");
  CHECK(parse_mistake(R"({"messages": [], "chat_template_kwargs": 1})") ==
        R"("chat_template_kwargs" is not an object)");
  CHECK(parse_mistake("[\n{\"role\": }]") ==
        "the conversation is not JSON: line 2, column 10: syntax error while parsing value - "
        "unexpected '}'; expected '[', '{', or a literal");
  CHECK(
      parse_mistake("[{\"role\": \"\xff\"}]").starts_with("the conversation is not JSON: line 1"));
  CHECK(parse_mistake("[1e999]").starts_with("the conversation is not JSON: "));
  CHECK(parse_mistake(std::string(100'000, '[')) ==
        "the conversation is JSON nested deeper than 64");
}
