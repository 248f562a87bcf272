#include "data/examples/example.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace train;
using namespace train::data;

namespace {

Example parsed(const std::string& line, ExampleOptions options) {
  auto outcome = parse_example(line, options);
  const auto* const dropped = std::get_if<Dropped>(&outcome);
  INFO((dropped == nullptr ? "" : drop_reason_text(dropped->reason)));
  REQUIRE(dropped == nullptr);
  return std::get<Example>(std::move(outcome));
}

DropReason reason(const std::string& line, ExampleKind kind) {
  const auto outcome = parse_example(line, {.kind = kind});
  REQUIRE(std::holds_alternative<Dropped>(outcome));
  return std::get<Dropped>(outcome).reason;
}

/// "role=content" of each message.
std::string turns(const ExampleText& text) {
  REQUIRE(text.conversation);
  std::string all;
  for (const ChatMessage& message : text.conversation->messages) {
    all += message.role() + "=" + message.content().value_or("-") + ";";
  }
  return all;
}

using Weights = std::vector<float>;

}  // namespace

TEST_CASE("example: a line's members say its kind", "[data][examples]") {
  const std::pair<const char*, ExampleKind> lines[] = {
      {R"({"messages": []})", ExampleKind::chat},
      {R"({"conversations": [], "text": "x"})", ExampleKind::chat},
      {R"({"instruction": "a", "input": "", "output": "b"})", ExampleKind::chat},
      {R"({"prompt": "a", "completion": "b"})", ExampleKind::prompt},
      {R"({"prompt": "a", "completion": "b", "label": true})", ExampleKind::kto},
      {R"({"prompt": "a", "chosen": "b", "rejected": "c"})", ExampleKind::preference},
      {R"({"text": "a", "messages": null})", ExampleKind::text}};
  for (const auto& [line, kind] : lines) {
    INFO(line);
    REQUIRE(example_kind_of(nlohmann::ordered_json::parse(line)) == kind);
  }
  REQUIRE_FALSE(example_kind_of(nlohmann::ordered_json::parse(R"({"body": "a"})")));
  REQUIRE_FALSE(example_kind_of(nlohmann::ordered_json::parse("[1]")));
}

TEST_CASE("example: conversations of three forms become messages", "[data][examples]") {
  const ExampleOptions chat{.kind = ExampleKind::chat};
  const Example messages = parsed(
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"},
          {"type": "text", "text": "b"}]}, {"role": "assistant", "content": "c", "name": null}]})",
      chat);
  REQUIRE(turns(messages.text) == "user=ab;assistant=c;");
  REQUIRE(messages.text.message_weights == Weights{0, 1});
  REQUIRE(turns(parsed(R"({"system": "s", "conversations": [{"from": "human", "value": "a"},
          {"from": "gpt", "value": "b"}]})",
                       chat)
                    .text) == "system=s;user=a;assistant=b;");
  REQUIRE(turns(parsed(R"({"instruction": "a", "input": "b", "output": "c"})", chat).text) ==
          "user=a\n\nb;assistant=c;");
}

TEST_CASE("example: messages say their weights, or the last answer alone is trained",
          "[data][examples]") {
  const std::string line = R"({"messages": [{"role": "user", "content": "a", "weight": 3},
      {"role": "assistant", "content": "b", "weight": 0.5}, {"role": "user", "content": "c"},
      {"role": "assistant", "content": "d", "train": false},
      {"role": "assistant", "content": "e"}]})";
  REQUIRE(parsed(line, {.kind = ExampleKind::chat}).text.message_weights ==
          Weights{0, 0.5F, 0, 0, 1});
  REQUIRE(parsed(line, {.kind = ExampleKind::chat, .train_on_last = true}).text.message_weights ==
          Weights{0, 0, 0, 0, 1});
}

TEST_CASE("example: an answer's messages follow its prompt's, which are not trained",
          "[data][examples]") {
  const Example example = parsed(
      R"({"prompt": [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}],
          "completion": [{"role": "assistant", "content": "c"}]})",
      {.kind = ExampleKind::prompt});
  REQUIRE(turns(example.text) == "assistant=a;user=b;assistant=c;");
  REQUIRE(example.text.message_weights == Weights{0, 0, 1});
}

TEST_CASE("example: what both sides of a pair begin with is their prompt", "[data][examples]") {
  const ExampleOptions pairs{.kind = ExampleKind::preference};
  const Example texts = parsed(R"({"chosen": "Q: hi A: yes", "rejected": "Q: hi A: no"})", pairs);
  REQUIRE((texts.text.prompt == "Q: hi A:" && texts.text.answer == " yes"));
  REQUIRE((texts.worse->prompt == "Q: hi A:" && texts.worse->answer == " no"));
  const Example accents = parsed(R"({"chosen": "xé", "rejected": "xè"})", pairs);
  REQUIRE(accents.text.prompt == "x");
  const Example lists = parsed(
      R"({"prompt": "a", "chosen": [{"role": "user", "content": "a"},
          {"role": "assistant", "content": "b"}], "rejected": [{"role": "user", "content": "a"},
          {"role": "assistant", "content": "c"}]})",
      pairs);
  REQUIRE(turns(lists.text) == "user=a;assistant=b;");
  REQUIRE(turns(*lists.worse) == "user=a;assistant=c;");
  REQUIRE(lists.text.message_weights == Weights{0, 1});
}

TEST_CASE("example: a function_call is the assistant's, and an observation a tool's",
          "[data][examples]") {
  const Example example = parsed(
      R"({"conversations": [{"from": "human", "value": "w"},
          {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"a\": 1}}"},
          {"from": "observation", "value": "2"}, {"from": "gpt", "value": "3"}],
          "tools": "[{\"name\": \"f\"}]"})",
      {.kind = ExampleKind::chat});
  REQUIRE(turns(example.text) == "user=w;assistant=-;tool=2;assistant=3;");
  REQUIRE(example.text.conversation->tools == R"([{"name":"f"}])");
  REQUIRE(
      example.text.conversation->messages[1].json().find(
          R"("tool_calls":[{"type":"function","function":{"name":"f","arguments":{"a":1}}}])") !=
      std::string::npos);
  REQUIRE(example.text.message_weights == Weights{0, 1, 0, 1});
  REQUIRE(example.remarks.empty());
  REQUIRE(reason(R"({"conversations": [{"from": "human", "value": "w"},
                     {"from": "function_call", "value": "f[]"}]})",
                 ExampleKind::chat) == DropReason::message);
  REQUIRE(reason(R"({"messages": [{"role": "user", "content": "w"},
                     {"role": "assistant", "content": "a"}], "tools": "f[x"})",
                 ExampleKind::chat) == DropReason::message);
  for (const std::string role : {"1", "true", "[\"user\"]", "{}"}) {
    REQUIRE(reason(R"({"messages": [{"role": )" + role + R"(, "content": "w"},
                       {"role": "assistant", "content": "a"}]})",
                   ExampleKind::chat) == DropReason::message);
  }
}

TEST_CASE(
    "example: what a message says of its loss counts, and what may mean two things is refused",
    "[data][examples]") {
  const ExampleOptions chat{.kind = ExampleKind::chat};
  REQUIRE(parsed(R"({"conversations": [{"from": "human", "value": "a", "loss": null},
          {"from": "gpt", "value": "b", "loss": false}, {"from": "human", "value": "c"},
          {"from": "gpt", "value": "d", "loss": true}]})",
                 chat)
              .text.message_weights == Weights{0, 0, 0, 1});
  REQUIRE(reason(R"({"messages": [{"role": "user", "content": "a"},
                     {"role": "assistant", "content": "b", "mask": true}]})",
                 ExampleKind::chat) == DropReason::message);
}

TEST_CASE("example: Alpaca's history comes first, and its answers are trained",
          "[data][examples]") {
  const Example example = parsed(
      R"({"system": "s", "instruction": "c", "input": "", "output": "d", "history": [["a", "b"]]})",
      {.kind = ExampleKind::chat});
  REQUIRE(turns(example.text) == "system=s;user=a;assistant=b;user=c;assistant=d;");
  REQUIRE(example.text.message_weights == Weights{0, 0, 1, 0, 1});
  REQUIRE(reason(R"({"instruction": "c", "output": "d", "history": ["a"]})", ExampleKind::chat) ==
          DropReason::members);
}

TEST_CASE("example: a message of null is left out if it is the system's, and refused of others",
          "[data][examples][RW-3]") {
  const ExampleOptions chat{.kind = ExampleKind::chat};
  REQUIRE(turns(parsed(R"({"conversations": [{"from": "system", "value": null},
          {"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]})",
                       chat)
                    .text) == "user=a;assistant=b;");
  REQUIRE(reason(R"({"messages": [{"role": "user", "content": null},
                     {"role": "assistant", "content": "b"}]})",
                 ExampleKind::chat) == DropReason::message);
  // As a row of Parquet has it, in which null and missing are the same.
  const Example calls = parsed(R"({"messages": [{"role": "user", "content": "a"},
      {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}]})",
                               chat);
  REQUIRE(calls.text.conversation->messages[1].json().find(R"("content":null)") !=
          std::string::npos);
}

TEST_CASE("example: what nobody reads has its name, and roles that nobody knows",
          "[data][examples][RW-3]") {
  const Example example = parsed(
      R"({"id": 7, "note": "", "messages": [{"role": "User", "content": "a", "weight": 1},
          {"role": "bing", "content": "b"}, {"role": "Assistant", "content": "c"}], "text": "x",
          "extra": {"a": 1}})",
      {.kind = ExampleKind::chat});
  REQUIRE(turns(example.text) == "user=a;bing=b;assistant=c;");
  REQUIRE(example.remarks == std::vector<Remark>{{RemarkKind::not_read, "id"},
                                                 {RemarkKind::not_read, "text"},
                                                 {RemarkKind::not_read, "extra"},
                                                 {RemarkKind::not_read, "weight of user"},
                                                 {RemarkKind::unknown_role, "bing"}});
  const auto none = parse_example(R"({"messages": [{"role": "user", "content": "a"},
      {"role": "bing", "content": "b"}]})",
                                  {.kind = ExampleKind::chat});
  REQUIRE(std::get<Dropped>(none).reason == DropReason::unknown_role);
  REQUIRE(std::get<Dropped>(none).detail ==
          "\"bing\": no message of the assistant is trained; the roles there are user, bing, and "
          "the assistant's is \"assistant\"");
}

TEST_CASE("example: every line that gives nothing has its reason", "[data][examples]") {
  using Kind = ExampleKind;
  REQUIRE(reason(R"({"messages": [{"role": "us)", Kind::chat) == DropReason::not_json);
  REQUIRE(reason("[1, 2]", Kind::chat) == DropReason::not_json);
  REQUIRE(reason(std::string(100, '['), Kind::chat) == DropReason::not_json);
  REQUIRE(reason(R"({"text": 5})", Kind::text) == DropReason::members);
  REQUIRE(reason(R"({"text": "a"})", Kind::chat) == DropReason::members);
  REQUIRE(reason(R"({"messages": ["a"]})", Kind::chat) == DropReason::message);
  REQUIRE(reason(R"({"messages": [{"content": "a"}]})", Kind::chat) == DropReason::message);
  REQUIRE(reason(R"({"messages": [{"role": "assistant", "content": "a", "weight": -1}]})",
                 Kind::chat) == DropReason::message);
  REQUIRE(reason(R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})",
                 Kind::chat) == DropReason::image);
  REQUIRE(reason(R"({"messages": [{"role": "assistant", "content": " \n"}]})", Kind::chat) ==
          DropReason::empty_answer);
  REQUIRE(reason(R"({"messages": [{"role": "user", "content": "a"}]})", Kind::chat) ==
          DropReason::nothing_trained);
  REQUIRE(reason(R"({"prompt": "a", "completion": ""})", Kind::prompt) == DropReason::empty_answer);
  REQUIRE(reason(R"({"prompt": "a", "completion": "b", "label": 2})", Kind::kto) ==
          DropReason::label);
  REQUIRE(reason(R"({"prompt": "a", "completion": "b"})", Kind::kto) == DropReason::label);
  REQUIRE(reason(R"({"chosen": "a", "rejected": "a"})", Kind::preference) ==
          DropReason::equal_pair);
}

TEST_CASE("example: a function_call of a message is a call, and functions are tools",
          "[data][examples][RW-3]") {
  const Example example = parsed(
      R"({"messages": [{"role": "user", "content": "w"}, {"role": "assistant", "function_call":
          {"name": "f", "arguments": "{}"}}, {"role": "function", "name": "f", "content": "2"},
          {"role": "assistant", "content": "3"}], "functions": [{"name": "f"}]})",
      {.kind = ExampleKind::chat});
  REQUIRE(turns(example.text) == "user=w;assistant=-;tool=2;assistant=3;");
  REQUIRE(example.text.conversation->messages[1].json().find(
              R"("tool_calls":[{"type":"function","function":{"name":"f","arguments":"{}"}}])") !=
          std::string::npos);
  REQUIRE(example.text.conversation->tools == R"([{"type":"function","function":{"name":"f"}}])");
  REQUIRE(example.remarks.empty());
}

TEST_CASE("example: members of parts of a content that nobody reads have their names",
          "[data][examples][RW-3]") {
  const Example example = parsed(
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "note": "b",
          "none": null}, "c"]}, {"role": "assistant", "content": "d"}]})",
      {.kind = ExampleKind::chat});
  REQUIRE(turns(example.text) == "user=ac;assistant=d;");
  REQUIRE(example.remarks ==
          std::vector<Remark>{{RemarkKind::not_read, "messages[].content[].note"}});
}

TEST_CASE("example: what should be a text and is none drops the line by its name",
          "[data][examples]") {
  const std::string turns =
      R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])";
  for (const auto& [line, name] :
       {std::pair(R"({"messages": )" + turns + R"(, "system": {"content": "S"}})", "system"),
        {R"({"messages": )" + turns + R"(, "system": ["S"]})", "system"},
        {R"({"messages": )" + turns + R"(, "system": 5})", "system"},
        {R"({"instruction": "a", "input": {"x": 1}, "output": "b"})", "input"},
        {R"({"instruction": ["a"], "output": "b"})", "instruction"},
        {R"({"instruction": "a", "output": ["b"]})", "output"}}) {
    INFO(line);
    const auto outcome = parse_example(line, {.kind = ExampleKind::chat});
    const auto* const dropped = std::get_if<Dropped>(&outcome);
    REQUIRE(dropped != nullptr);
    CHECK(dropped->reason == DropReason::members);
    CHECK(dropped->detail == "\"" + std::string(name) + "\" is no text");
  }
  // What is empty says nothing.
  CHECK(parsed(R"({"messages": )" + turns + R"(, "system": []})", {.kind = ExampleKind::chat})
            .remarks.empty());
  // Lists that Python printed are no messages, and no tools.
  const std::string printed = R"("[{'role': 'user', 'content': 'a'}]")";
  for (const std::string& line : {R"({"messages": )" + printed + "}",
                                  R"({"messages": )" + turns + R"(, "tools": )" + printed + "}"}) {
    const auto outcome = parse_example(line, {.kind = ExampleKind::chat});
    CHECK(std::get<Dropped>(outcome).detail.find("as Python prints it") != std::string::npos);
  }
}

TEST_CASE("example: labels of tables are texts and numbers", "[data][examples]") {
  for (const std::string label : {"true", "1", "1.0", R"("True")", R"("1")"}) {
    const ExampleOptions kto{.kind = ExampleKind::kto};
    INFO(label);
    CHECK(parsed(R"({"prompt": "a", "completion": "b", "label": )" + label + "}", kto).desirable);
  }
  for (const std::string label : {R"("yes")", "0.5", "[]"}) {
    INFO(label);
    CHECK(reason(R"({"prompt": "a", "completion": "b", "label": )" + label + "}",
                 ExampleKind::kto) == DropReason::label);
  }
}

TEST_CASE("example: KTO's labels are booleans or 0 and 1", "[data][examples]") {
  const ExampleOptions kto{.kind = ExampleKind::kto};
  REQUIRE(parsed(R"({"prompt": "a", "completion": "b", "label": true})", kto).desirable);
  REQUIRE_FALSE(parsed(R"({"prompt": "a", "completion": "b", "label": 0})", kto).desirable);
}
