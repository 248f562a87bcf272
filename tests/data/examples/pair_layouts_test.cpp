#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "data/examples/example.hpp"

// How data sets of pairs, judged answers and prompts write where the prompt is.
namespace train::data::testing::pair_layouts_test {

/// What a side begins with, as "role=content;" of each message or as a text, a bar, and its answer.
std::string side(const ExampleText& text) {
  if (!text.conversation) {
    return text.prompt + "|" + text.answer;
  }
  std::string all;
  for (std::size_t i = 0; i < text.message_weights.size(); ++i) {
    const ChatMessage& message = text.conversation->messages[i];
    all += text.message_weights[i] > 0.0F ? "|" : "";
    all += message.role().substr(0, 1) + "=" + message.content().value_or("-") + ";";
  }
  return all;
}

/// Both sides; or why the line is dropped, or that its kind is not known.
std::string read(const std::string& line) {
  const auto kind = example_kind_of(nlohmann::ordered_json::parse(line));
  if (!kind) {
    return "no kind";
  }
  const auto outcome = parse_example(line, {.kind = *kind});
  if (const auto* const dropped = std::get_if<Dropped>(&outcome)) {
    return dropped->reason == DropReason::pair_prompt ? "prompt: " + dropped->detail
                                                      : std::string("dropped: ") + dropped->detail;
  }
  const auto& example = std::get<Example>(outcome);
  return side(example.text) + (example.worse ? " " + side(*example.worse) : "");
}

struct Layout {
  const char* line;
  const char* wanted;
};

const std::vector<Layout> layouts_with_prompt = {
    {R"({"prompt": "Q", "chosen": " y", "rejected": " n"})", "Q| y Q| n"},
    {R"({"chosen": "Q: y", "rejected": "Q: n"})", "Q:| y Q:| n"},
    {R"({"prompt": "Q", "chosen": "y", "rejected": "n", "score_chosen": 8})", "Q|y Q|n"},
    {R"({"prompt": [{"role": "user", "content": "Q"}], "chosen": [{"role": "assistant",
           "content": "y"}], "rejected": [{"role": "assistant", "content": "n"}]})",
     "u=Q;|a=y; u=Q;|a=n;"},
    {R"({"chosen": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "y"}],
           "rejected": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "n"}]})",
     "u=Q;|a=y; u=Q;|a=n;"},
    {R"({"prompt": "Q", "chosen": [{"role": "user", "content": "Q"}, {"role": "assistant",
           "content": "y"}], "rejected": [{"role": "user", "content": "Q"}, {"role": "assistant",
           "content": "n"}]})",
     "u=Q;|a=y; u=Q;|a=n;"},
    {R"({"prompt": "Q", "chosen": [{"role": "assistant", "content": "y"}], "rejected":
           [{"role": "assistant", "content": "n"}]})",
     "u=Q;|a=y; u=Q;|a=n;"},
    {R"({"prompt": [{"role": "user", "content": "Q"}], "chosen": "y", "rejected": "n"})",
     "u=Q;|a=y; u=Q;|a=n;"},
    {R"({"prompt": "Q", "system": "S", "chosen": "y", "rejected": "n"})",
     "s=S;u=Q;|a=y; s=S;u=Q;|a=n;"},
    {R"({"system": "S", "question": "Q", "chosen": "y", "rejected": "n"})",
     "s=S;u=Q;|a=y; s=S;u=Q;|a=n;"},
    {R"({"question": "Q", "chosen": "y", "rejected": "n"})", "u=Q;|a=y; u=Q;|a=n;"},
    {R"({"input": "Q", "chosen": "y", "rejected": "n"})", "u=Q;|a=y; u=Q;|a=n;"},
    {R"({"system": "S", "input": "Q", "chosen": "y", "rejected": "n"})",
     "s=S;u=Q;|a=y; s=S;u=Q;|a=n;"},
    {R"({"instruction": "Q", "input": "", "chosen": "y", "rejected": "n"})", "u=Q;|a=y; u=Q;|a=n;"},
    {R"({"instruction": "Q", "input": "I", "chosen": "y", "rejected": "n"})",
     "u=Q\n\nI;|a=y; u=Q\n\nI;|a=n;"},
    {R"({"instruction": "Q", "input": null, "system": "S", "history": [["a", "b"]], "chosen": "y",
           "rejected": "n"})",
     "s=S;u=a;a=b;u=Q;|a=y; s=S;u=a;a=b;u=Q;|a=n;"},
    {R"({"conversations": [{"from": "human", "value": "Q"}], "chosen": {"from": "gpt", "value":
           "y"}, "rejected": {"from": "gpt", "value": "n"}})",
     "u=Q;|a=y; u=Q;|a=n;"},
    {R"({"messages": [{"role": "user", "content": "Q"}], "chosen": {"role": "assistant",
           "content": "y"}, "rejected": {"role": "assistant", "content": "n"}})",
     "u=Q;|a=y; u=Q;|a=n;"},
    {R"({"conversation": [{"role": "user", "content": "Q"}], "chosen": "y", "rejected": "n"})",
     "u=Q;|a=y; u=Q;|a=n;"},
    {R"({"system": "S", "conversations": [{"from": "human", "value": "Q"}], "chosen": "y",
           "rejected": "n"})",
     "s=S;u=Q;|a=y; s=S;u=Q;|a=n;"},
    {R"({"system": "S", "chosen": [{"role": "user", "content": "Q"}, {"role": "assistant",
           "content": "y"}], "rejected": [{"role": "user", "content": "Q"}, {"role": "assistant",
           "content": "n"}]})",
     "s=S;u=Q;|a=y; s=S;u=Q;|a=n;"},
    {R"({"question": "Q", "chosen": [{"role": "assistant", "content": "y"}], "rejected":
           [{"role": "assistant", "content": "n"}]})",
     "u=Q;|a=y; u=Q;|a=n;"},
    {R"({"prompt": [{"from": "human", "value": "Q"}], "chosen": [{"from": "gpt", "value": "y"}],
           "rejected": [{"from": "gpt", "value": "n"}]})",
     "u=Q;|a=y; u=Q;|a=n;"},
    {R"({"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "b"},
           {"role": "user", "content": "R"}], "chosen": "y", "rejected": "n"})",
     "u=Q;a=b;u=R;|a=y; u=Q;a=b;u=R;|a=n;"},
    {R"({"prompt": "Q", "messages": [{"role": "user", "content": "Q"}, {"role": "assistant",
           "content": "y"}], "chosen": [{"role": "user", "content": "Q"}, {"role": "assistant",
           "content": "y"}], "rejected": [{"role": "user", "content": "Q"}, {"role": "assistant",
           "content": "n"}]})",
     "u=Q;|a=y; u=Q;|a=n;"},
    {R"({"prompt": [{"role": "user", "content": "Q"}], "chosen": [{"role": "user", "content":
           "Q"}, {"role": "assistant", "content": "y"}], "rejected": [{"role": "user", "content":
           "Q"}, {"role": "assistant", "content": "n"}]})",
     "u=Q;|a=y; u=Q;|a=n;"},
    // As tables have lists.
    {R"({"prompt": "[{\"role\": \"user\", \"content\": \"Q\"}]", )"
     R"("chosen": "[{\"role\": \"assistant\", \"content\": \"y\"}]", )"
     R"("rejected": "[{\"role\": \"assistant\", \"content\": \"n\"}]"})",
     "u=Q;|a=y; u=Q;|a=n;"},
    {R"({"prompt": "Q", "label": "True", )"
     R"("completion": "[{\"role\": \"assistant\", \"content\": \"y\"}]"})",
     "u=Q;|a=y;"},
    {R"({"prompt": "Q", "completion": "[1, 2]"})", "Q|[1, 2]"},
    {R"({"prompt": "Q", "completion": "{'a': 1}"})", "Q|{'a': 1}"},
    // White space of Unicode around a text is no other text.
    {R"({"prompt": "\u3000Q\u00a0", "chosen": [{"role": "user", "content": "Q"}, {"role":
           "assistant", "content": "y"}], "rejected": [{"role": "user", "content": "Q"}, {"role":
           "assistant", "content": "n"}]})",
     "u=Q;|a=y; u=Q;|a=n;"},
    {R"({"prompt": "Q", "question": "Q ", "chosen": "y", "rejected": "n"})", "Q|y Q|n"},
    {R"({"prompt": "Q", "completion": " y"})", "Q| y"},
    {R"({"prompt": "Q", "completion": " y", "label": true})", "Q| y"},
    {R"({"prompt": [{"role": "user", "content": "Q"}], "completion": "y", "label": true})",
     "u=Q;|a=y;"},
    {R"({"prompt": "Q", "completion": [{"role": "assistant", "content": "y"}]})", "u=Q;|a=y;"},
    {R"({"system": "S", "prompt": "Q", "completion": "y"})", "s=S;u=Q;|a=y;"},
    {R"({"instruction": "Q", "input": "I", "output": "y", "kto_tag": true})", "u=Q\n\nI;|a=y;"},
    {R"({"conversations": [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "y"}],
           "label": false})",
     "u=Q;|a=y;"}};

TEST_CASE("pair layouts: a prompt of any name and form comes before both answers",
          "[data][examples][RW-3]") {
  for (const Layout& layout : layouts_with_prompt) {
    INFO(layout.line);
    CHECK(read(layout.line) == layout.wanted);
  }
}

const std::vector<Layout> layouts_without = {
    {R"({"chosen": "yes", "rejected": "no"})",
     R"(prompt: "chosen" and "rejected" begin with nothing in common; give a "prompt")"},
    {R"({"query": "Q", "chosen": "The y", "rejected": "The n"})",
     R"(prompt: it may be in "query", which is not read: call that "prompt", or take it out)"},
    {R"({"context": ["Q"], "post": "P", "chosen": "The y", "rejected": "The n"})",
     R"(prompt: it may be in "context", "post", which is not read: call that "prompt", or )"
     R"(take it out)"},
    {R"({"system": "S", "chosen": "The y", "rejected": "The n"})",
     R"(prompt: it may be in "system", which is not read: call that "prompt", or take it out)"},
    {R"({"prompt": "P", "chosen": [{"role": "user", "content": "Q"}, {"role": "assistant",
           "content": "y"}], "rejected": [{"role": "user", "content": "Q"}, {"role": "assistant",
           "content": "n"}]})",
     R"(prompt: "prompt" is not what "chosen" and "rejected" begin with; give answers alone, or )"
     R"(take it out)"},
    {R"({"prompt": "Q", "query": "P", "chosen": "y", "rejected": "n"})",
     R"(prompt: it may be in "query", too, which is not read: put that into "prompt", or take )"
     R"(it out)"},
    {R"({"prompt": "Q", "history": [["a", "b"]], "chosen": "y", "rejected": "n"})",
     R"(prompt: it may be in "history", too, which is not read: put that into "prompt", or take )"
     R"(it out)"},
    {R"({"system_prompt": "S", "question": "Q", "chosen": "y", "rejected": "n"})",
     R"(prompt: it may be in "system_prompt", too, which is not read: put that into "prompt", or )"
     R"(take it out)"},
    {R"({"context": {"a": "P"}, "chosen": [{"role": "user", "content": "Q"}, {"role": "assistant",
           "content": "y"}], "rejected": [{"role": "user", "content": "Q"}, {"role": "assistant",
           "content": "n"}]})",
     R"(prompt: it may be in "context", too, which is not read: put that into "prompt", or take )"
     R"(it out)"},
    {R"({"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "y"}],
           "chosen": "y", "rejected": "n"})",
     R"(prompt: "messages" ends with an answer already; take that out of it)"},
    {R"({"prompt": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "y"}],
           "completion": "y"})",
     R"(dropped: "prompt" ends with an answer already; take that out of it)"},
    {R"({"chosen": [{"role": "assistant", "content": "y"}], "rejected": [{"role": "assistant",
           "content": "n"}]})",
     R"(prompt: "chosen" begins with the assistant's message; give a "prompt")"},
    {R"({"chosen": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "y"}],
           "rejected": [{"role": "user", "content": "R"}, {"role": "assistant", "content": "n"}]})",
     R"(prompt: "chosen" and "rejected" begin with nothing in common; give a "prompt")"},
    // As tables have lists that Python printed, or NumPy, without commas.
    {R"({"prompt": "Q", "chosen": "[{'role': 'assistant', 'content': \"it's y\"}]",
           "rejected": "n"})",
     "dropped: \"chosen\": the messages are a list as Python prints it, which is no JSON: write it "
     "with json.dumps(), or give Parquet"},
    {R"({"prompt": "[{'content': 'Q', 'role': 'user'}\n {'content': 'y', 'role': 'assistant'}]",
           "completion": "y"})",
     "dropped: \"prompt\": the messages are a list as Python prints it, which is no JSON: write it "
     "with json.dumps(), or give Parquet"},
    // Of another type than a text.
    {R"({"system": {"text": "S"}, "prompt": "Q", "completion": "y"})",
     R"(dropped: "system" is no text)"},
    {R"({"question": ["Q"], "chosen": "y", "rejected": "n"})",
     R"(dropped: "question" is no text)"}};

TEST_CASE("pair layouts: where the prompt is not known the members are named, and nothing guessed",
          "[data][examples][RW-3]") {
  for (const Layout& layout : layouts_without) {
    INFO(layout.line);
    CHECK(read(layout.line) == layout.wanted);
  }
}

}  // namespace train::data::testing::pair_layouts_test
