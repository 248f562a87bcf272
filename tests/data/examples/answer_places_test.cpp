#include "data/examples/answer_places.hpp"

#include <catch2/catch.hpp>

#include "tests/data/chat/chat_fixture.hpp"

namespace train::data::testing::answer_places_test {

using train::test::OrderedJson;

/// The text with brackets around what is found of `answers`, and a bar before its tail; or why none
/// is found.
std::string placed(const std::string& source, const OrderedJson& messages,
                   const std::vector<std::size_t>& answers) {
  auto found = ChatTemplate::of_source(source, "test.jinja");
  REQUIRE(found.ok());
  const auto conversation = conversation_from_json(messages);
  REQUIRE(conversation.ok());
  auto text = found->render(*conversation);
  INFO((text ? "" : text.error().message));
  REQUIRE(text.ok());
  const auto outcome = place_answers(*found, *conversation, *text, answers);
  if (const auto* const dropped = std::get_if<Dropped>(&outcome)) {
    REQUIRE(dropped->reason == DropReason::no_mask);
    return dropped->detail;
  }
  std::string marked = *text;
  const auto& spans = std::get<std::vector<AnswerSpan>>(outcome);
  for (auto span = spans.rbegin(); span != spans.rend(); ++span) {
    marked.insert(span->end_bytes, "]");
    marked.insert(span->end_bytes - span->tail_bytes, "|");
    marked.insert(span->begin_bytes, "[");
  }
  return marked;
}

OrderedJson turns(const std::vector<std::string>& contents) {
  OrderedJson messages = OrderedJson::array();
  for (const std::string& content : contents) {
    const char* const role = messages.size() % 2 == 0 ? "user" : "assistant";
    messages.push_back({{"role", role}, {"content", content}});
  }
  return messages;
}

/// Asks with a thought that answers do not have, and drops what was thought.
constexpr const char* drops_thoughts =
    "{%- for m in messages %}{%- if m.role == 'user' %}{{ '<User>' + m.content }}"
    "{%- else %}{{ '<Assistant>' + m.content.split('</think>')[-1] + '<end>' }}"
    "{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{ '<Assistant><think>\\n' }}{%- "
    "endif %}";

/// Keeps the thoughts of the answers behind the last question, and puts an empty one there.
constexpr const char* keeps_last_thoughts =
    "{%- set ns = namespace(last=-1) %}{%- for m in messages %}{%- if m.role == 'user' %}"
    "{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}"
    "{%- for m in messages %}{{ '<s>' + m.role + '\\n' }}{%- if m.role == 'assistant' %}"
    "{%- set body = m.content.split('</think>')[-1].strip() %}"
    "{%- set thought = m.content.split('</think>')[0].split('<think>')[-1].strip() "
    "if '</think>' in m.content else '' %}"
    "{%- if loop.index0 > ns.last %}{{ '<think>\\n' + thought + '\\n</think>\\n\\n' }}{%- endif %}"
    "{{ body }}{%- else %}{{ m.content }}{%- endif %}{{ '<e>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{ '<s>assistant\\n' }}{%- endif %}";

TEST_CASE("answer places: an answer that a header or an earlier turn has is not taken for it",
          "[data][examples][AP-1]") {
  for (const std::string answer : {"A", "s", "is", "t", "Assistant", "end", "1"}) {
    CHECK(placed(drops_thoughts, turns({"A is 1", answer}), {1}) ==
          "<User>A is 1<Assistant>[" + answer + "|<end>]");
    CHECK(placed(drops_thoughts, turns({"A is 1", answer, answer, answer}), {1, 3}) ==
          "<User>A is 1<Assistant>[" + answer + "|<end>]<User>" + answer + "<Assistant>[" + answer +
              "|<end>]");
  }
}

TEST_CASE("answer places: a header is not the answer's where nothing asks for an answer",
          "[data][examples][AP-1]") {
  const std::string asks_for_nothing =
      "{%- for m in messages %}{{ '<|' + m.role + '|>\\n' + m.content + '</s>' }}{%- endfor %}";
  CHECK(placed(asks_for_nothing, turns({"q", "s", "s", "A"}), {1, 3}) ==
        "<|user|>\nq</s><|assistant|>\n[s|</s>]<|user|>\ns</s><|assistant|>\n[A|</s>]");
  // A space before an answer is its own.
  const std::string without_header =
      "{%- for m in messages %}{{ '[Q]' + m.content + '[/Q]' if m.role == 'user' else ' ' + "
      "m.content + '</s>' }}{%- endfor %}";
  CHECK(placed(without_header, turns({"q", "A"}), {1}) == "[Q]q[/Q][ A|</s>]");
}

TEST_CASE("answer places: a conversation may begin with an answer", "[data][examples][AP-1]") {
  const OrderedJson greeting = OrderedJson::parse(
      R"([{"role": "assistant", "content": "A"}, {"role": "user", "content": "q"},
          {"role": "assistant", "content": "B"}])");
  const auto with = [](const std::string& first) {
    return "{%- for m in messages %}" + first +
           "{{ '<|' + m.role + '|>' + m.content + '</s>' }}{%- endfor %}"
           "{%- if add_generation_prompt %}{{ '<|assistant|>' }}{%- endif %}";
  };
  const std::string rest = "<|assistant|>[A|</s>]<|user|>q</s><|assistant|>[B|</s>]";
  CHECK(placed(with(""), greeting, {0, 2}) == rest);
  CHECK(placed(with("{{ '<s>' if loop.first }}"), greeting, {0, 2}) == "<s>" + rest);
}

TEST_CASE("answer places: thoughts are the answer's where the template writes them, in any turn",
          "[data][examples][AP-1]") {
  CHECK(placed(keeps_last_thoughts, turns({"A", "s"}), {1}) ==
        "<s>user\nA<e>\n<s>assistant\n[<think>\n\n</think>\n\ns|<e>\n]");
  CHECK(placed(keeps_last_thoughts,
               turns({"A", "<think>\nx\n</think>\n\ns", "B", "<think>\ny\n</think>\n\nt"}),
               {1, 3}) ==
        "<s>user\nA<e>\n<s>assistant\n[s|<e>\n]<s>user\nB<e>\n<s>assistant\n"
        "[<think>\ny\n</think>\n\nt|<e>\n]");
  // Of what asks for an answer the text has the beginning alone.
  CHECK(placed(drops_thoughts, turns({"A", "<think>x</think>s"}), {1}) ==
        "<User>A<Assistant>[s|<end>]");
}

TEST_CASE(
    "answer places: white space that the template trims is nobody's, and what ends the whole "
    "text is the last answer's",
    "[data][examples][AP-1]") {
  const std::string trims =
      "{%- for m in messages %}{{ '<' + m.role + '>' + (m.content | trim) + '</s>\\n' }}{%- endfor "
      "%}{%- if add_generation_prompt %}{{ '<assistant>' }}{%- else %}{{ '<eos>' }}{%- endif %}";
  CHECK(placed(trims, turns({" a ", "\n s ", "u", "s"}), {1, 3}) ==
        "<user>a</s>\n<assistant>[s|</s>\n<]user>u</s>\n<assistant>[s|</s>\n<eos>]");
}

TEST_CASE("answer places: calls without text lie between beginnings, before their results",
          "[data][examples][AP-1]") {
  const OrderedJson messages = OrderedJson::parse(
      R"([{"role": "user", "content": "w"}, {"role": "assistant", "content": null, "tool_calls":
          [{"function": {"name": "f", "arguments": {}}}]}, {"role": "tool", "content": "f"},
          {"role": "assistant", "content": "f"}])");
  const std::string calls_alone =
      "{%- for m in messages %}{{ '<' + m.role + '>' }}{%- if m.tool_calls %}"
      "{{ 'call ' + m.tool_calls[0].function.name }}{%- else %}{{ m.content }}{%- endif %}"
      "{{ '</s>' }}{%- endfor %}{%- if add_generation_prompt %}{{ '<assistant>' }}{%- endif %}";
  CHECK(placed(calls_alone, messages, {1, 3}) ==
        "<user>w</s><assistant>[|call f</s>]<tool>f</s><assistant>[f|</s>]");
  // Behind a result nothing asks for the next call, which has a header all the same.
  const std::string unasked_results =
      "{%- for m in messages %}{{ '<' + m.role + '>' }}{%- if m.tool_calls %}"
      "{{ 'call f' }}{%- else %}{{ m.content }}{%- endif %}{{ '</s>' }}{%- endfor %}"
      "{%- if add_generation_prompt and messages[-1].role != 'tool' %}{{ '<assistant>' }}"
      "{%- endif %}";
  OrderedJson twice = messages;
  twice.insert(twice.begin() + 3, messages.begin() + 1, messages.begin() + 3);
  CHECK(placed(unasked_results, twice, {1, 3, 5}) ==
        "<user>w</s><assistant>[|call f</s>]<tool>f</s><assistant>[|call f</s>]<tool>f</s>"
        "<assistant>[f|</s>]");
  const std::string results_first =
      "{%- for m in messages %}{%- if m.role == 'user' %}{{ '<user>' + m.content + '</s>' }}"
      "{%- elif m.role == 'assistant' %}{{ '<assistant>' }}{%- if m.tool_calls %}{{ 'call f' }}"
      "{%- if not loop.last %}{{ '<r>' + messages[loop.index].content + '</r>' }}{%- endif %}"
      "{%- endif %}{{ m.content or '' }}{{ '</s>' }}{%- endif %}{%- endfor %}"
      "{%- if add_generation_prompt %}{{ '<assistant>' }}{%- endif %}";
  // A tail may end within a token, which is then not the answer's.
  CHECK(placed(results_first, messages, {1}) ==
        "<user>w</s><assistant>[|call f<]r>f</r></s><assistant>f</s>");
}

TEST_CASE("answer places: answers that the template writes as they are said are replaced together",
          "[data][examples][AP-1]") {
  // Says so if only one of two answers is replaced.
  const std::string counts =
      "{%- set ns = namespace(count=0) %}{%- for m in messages %}"
      "{%- if m.content.startswith('QxAnswer') %}{%- set ns.count = ns.count + 1 %}{%- endif %}"
      "{%- endfor %}{%- if ns.count == 1 and messages | length == 4 %}"
      "{{ raise_exception('one of two') }}{%- endif %}"
      "{%- for m in messages %}{{ '<' + m.role + '>' + (m.content | trim) + '</s>\\n' }}{%- endfor "
      "%}"
      "{%- if add_generation_prompt %}{{ '<assistant>' }}{%- endif %}";
  CHECK(placed(counts, turns({"assistant", " s\n", "s</s>", "s</s>"}), {1, 3}) ==
        "<user>assistant</s>\n<assistant>[s|</s>\n]<user>s</s></s>\n<assistant>[s</s>|</s>\n]");
  CHECK(placed(counts, turns({"q", "s", "u", "t"}), {3}) ==
        "message 4: the template rejects another answer in its place: test.jinja: line 1: one of "
        "two");
}

TEST_CASE("answer places: where a place is not known, what the template does is said",
          "[data][examples][AP-1]") {
  const auto why = [](const std::string& answer) {
    return placed(
        "{%- for m in messages %}{{ '<' + m.role + '>' }}{%- if m.role == 'user' %}"
        "{{ m.content }}{%- else %}" +
            answer + "{%- endif %}{%- endfor %}",
        turns({"a", "b"}), {1});
  };
  CHECK(why("{{ m.content | upper }}") ==
        "message 2: the template omits or changes the answer's text");
  CHECK(why("{{ m.content + m.content }}") == "message 2: the template repeats the answer's text");
  CHECK(why("{{ m.content ~ (m.content | length) }}") ==
        "message 2: the text around the answer depends on the answer");
  CHECK(why("{{ m.content if m.content | length < 2 else raise_exception('long') }}")
            .starts_with("message 2: the template rejects another answer in its place: "));
}

}  // namespace train::data::testing::answer_places_test
