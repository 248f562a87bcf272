#include "data/chat/chat_template.hpp"

#include <filesystem>

#include "data/chat/template_files.hpp"
#include "tests/data/chat/chat_fixture.hpp"
#include "tests/storage/weight_files/gguf_bytes.hpp"
#include "tests/support/disks/temp_directory.hpp"

using namespace train;
using namespace train::data;
using namespace train::test;

namespace {

namespace fs = std::filesystem;

const char* const kShown = "{{ bos_token }}|{{ eos_token }}|{{ pad_token is defined }}";

/// What the template of a path prints, or the mistake.
std::string printed(const fs::path& path, const ChatSettings& settings = {},
                    const Conversation& conversation = turns({{"user", "Hello."}})) {
  auto opened = ChatTemplate::open(path, settings);
  return opened ? outcome_of(*opened, conversation) : opened.error().message;
}

bool has(const std::string& text, const std::string& part) {
  UNSCOPED_INFO(text);
  return text.find(part) != std::string::npos && text.find('\n') == std::string::npos;
}

Conversation with_tools() {
  Conversation conversation = turns({{"user", "Hello."}});
  conversation.tools = R"([{"name": "f"}])";
  return conversation;
}

}  // namespace

TEST_CASE("chat template files: chat_template.jinja goes before tokenizer_config.json",
          "[data][chat]") {
  const TempDirectory model;
  write_bytes(model / "tokenizer_config.json",
              R"({"chat_template": "old {{ bos_token }}", "bos_token": "<s>", "pad_token": null,
                  "eos_token": {"content": "</s>", "special": true}})");
  CHECK(printed(model.path()) == "old <s>");
  write_bytes(model / "chat_template.jinja", std::string("new ") + kShown + "\n");
  CHECK(printed(model.path()) == "new <s>|</s>|False");
  ChatSettings settings;
  settings.special_tokens = {{"eos_token", "<end>"}, {"pad_token", "<pad>"}};
  CHECK(printed(model.path(), settings) == "new <s>|<end>|True");
  // The file itself has the tokens beside it.
  CHECK(printed(model / "chat_template.jinja") == "new <s>|</s>|False");
}

TEST_CASE("chat template files: an older map of special tokens", "[data][chat]") {
  const TempDirectory model;
  write_bytes(model / "chat_template.jinja", kShown);
  write_bytes(model / "special_tokens_map.json", R"({"bos_token": {"content": "<map>"}})");
  CHECK(printed(model.path()) == "<map>||False");
  write_bytes(model / "tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  CHECK(printed(model.path()) == "<map>|</s>|False");
  write_bytes(model / "tokenizer_config.json",
              R"({"bos_token": "<s>", "added_tokens_decoder": {}})");
  CHECK(printed(model.path()) == "<s>||False");
}

TEST_CASE("chat template files: an object of templates, and a default among the additional ones",
          "[data][chat]") {
  const TempDirectory model;
  write_bytes(model / "tokenizer_config.json",
              R"({"chat_template": {"default": "first", "tool_use": "second"}})");
  CHECK(printed(model.path()) == "first");
  ChatSettings second;
  second.name = "tool_use";
  CHECK(printed(model.path(), second) == "second");
  std::filesystem::create_directory(model / "additional_chat_templates");
  write_bytes(model / "chat_template.jinja", "third");
  CHECK(printed(model.path()) == "third");
  write_bytes(model / "additional_chat_templates" / "default.jinja", "fourth");
  CHECK(printed(model.path()) == "fourth");
}

TEST_CASE("chat template files: a model's own names for its tokens", "[data][chat]") {
  const TempDirectory model;
  write_bytes(model / "tokenizer_config.json",
              R"({"chat_template": "{{ user_token }}|{{ a_token }}|{{ eos_token }}|{{ bos_token }}",
                  "user_token": "<u>", "eos_token": "</s>",
                  "extra_special_tokens": {"a_token": "<a>"}})");
  CHECK(printed(model.path()) == "<u>|<a>|</s>|");
}

TEST_CASE("chat template files: several by name", "[data][chat]") {
  const TempDirectory model;
  const auto of = [&](const char* name, const Conversation& conversation) {
    ChatSettings settings;
    settings.name = name;
    return printed(model.path(), settings, conversation);
  };
  const Conversation bare = turns({{"user", "Hello."}});
  write_bytes(model / "tokenizer_config.json",
              R"({"chat_template": [{"name": "default", "template": "d"},
                                    {"name": "tool_use", "template": "t{{ tools | length }}"},
                                    {"name": "rag", "template": "r"}]})");
  CHECK(of("", bare) == "d");
  CHECK(of("", with_tools()) == "t1");
  CHECK(of("rag", with_tools()) == "r");
  CHECK(has(of("none", bare), "it has no template named \"none\"; it has default, rag, tool_use"));
  fs::create_directory(model / "additional_chat_templates");
  write_bytes(model / "additional_chat_templates/rag.jinja", "file");
  CHECK(of("rag", bare) == "file");
  CHECK(has(of("", bare), "it has no template named \"default\"; it has rag"));
  write_bytes(model / "chat_template.jinja", "file d");
  CHECK(of("", with_tools()) == "file d");
}

TEST_CASE("chat template files: of a GGUF file", "[data][chat]") {
  constexpr std::uint32_t is_text = 8;
  constexpr std::uint32_t is_list = 9;
  const TempDirectory directory;
  GgufBytes file;
  file.start(0, 5);
  const auto text = [&](const char* key, const char* value) {
    file.text(key).number(is_text, 4).text(value);
  };
  text("tokenizer.chat_template", "{{ bos_token }}{{ messages[0].content }}");
  text("tokenizer.chat_template.tool_use", "tools");
  file.text("tokenizer.ggml.tokens").number(is_list, 4).number(is_text, 4).number(2, 8);
  file.text("<unk>").text("<s>");
  file.key("tokenizer.ggml.bos_token_id", 4, 1, 4);
  file.key("tokenizer.ggml.eos_token_id", 4, 7, 4);
  file.data(0);
  write_bytes(directory / "model.gguf", file.bytes);
  CHECK(printed(directory / "model.gguf") == "<s>Hello.");
  CHECK(printed(directory / "model.gguf", {}, with_tools()) == "tools");
  GgufBytes empty;
  empty.start(0, 0).data(0);
  write_bytes(directory / "empty.gguf", empty.bytes);
  CHECK(has(printed(directory / "empty.gguf"), "has no chat template"));
}

TEST_CASE("chat template files: what is wrong is named in a line", "[data][chat]") {
  const TempDirectory model;
  CHECK(has(
      printed(model.path()),
      "has no chat template: no chat_template.jinja, no chat_template in tokenizer_config.json; "
      "use a built-in one, as with --template chatml, gemma, llama3, plain, tulu"));
  CHECK(has(printed(model / "nowhere.jinja"), "nowhere.jinja"));
  const auto config = [&](const char* text) {
    write_bytes(model / "tokenizer_config.json", text);
    return printed(model.path());
  };
  CHECK(has(config("{"), "tokenizer_config.json: not a JSON object"));
  CHECK(has(config("[]"), "tokenizer_config.json: not a JSON object"));
  CHECK(has(config(R"({"chat_template": 3})"), "chat_template is neither a text nor a list"));
  CHECK(has(config(R"({"chat_template": [{"name": "x"}]})"), "lacks its name or its template"));
  write_bytes(model / "tokenizer_config.json", "{}");
  write_bytes(model / "chat_template.jinja", "ab\xff");
  CHECK(has(printed(model.path()), "chat_template.jinja: byte 2: not valid UTF-8"));
  CHECK(has(ChatTemplate::find("chatlm").error().message,
            "unknown built-in chat template \"chatlm\"; there are chatml, gemma"));
  CHECK(ChatTemplate::find("chatml")->where() == "built-in chat template chatml");
  for (const char* date : {"", "today", "2024-13-01", "2023-02-29", "2024-7-26", "2024-07-26T00"}) {
    ChatSettings settings;
    settings.date = date;
    CHECK(has(ChatTemplate::built_in("chatml", settings).error().message, "YYYY-MM-DD, not \""));
  }
}

TEST_CASE("chat template files: templates are written as transformers writes them",
          "[data][chat]") {
  const TempDirectory model;
  write_bytes(model / "tokenizer_config.json",
              R"({"bos_token": "<s>", "chat_template": "old", "model_max_length": 1e30})");
  write_bytes(model / "chat_template.json", R"({"chat_template": "older"})");
  REQUIRE(write_template_files({{"default", "old"}}, model.path()));
  CHECK(std::filesystem::exists(model / "chat_template.json"));  // They are that already.
  REQUIRE(write_template_files({{"default", kShown}, {"tool_use", "tools"}}, model.path()));
  CHECK(printed(model.path()) == "<s>||False");
  CHECK(read_bytes(model / "chat_template.jinja") == kShown);
  CHECK(read_bytes(model / "additional_chat_templates/tool_use.jinja") == "tools");
  CHECK(nlohmann::json::parse(read_bytes(model / "tokenizer_config.json")) ==
        nlohmann::json({{"bos_token", "<s>"}, {"model_max_length", 1e30}}));
  CHECK_FALSE(std::filesystem::exists(model / "chat_template.json"));
  // Those of before are gone.
  REQUIRE(write_template_files({{"default", "new"}}, model.path()));
  CHECK(printed(model.path()) == "new");
  CHECK_FALSE(std::filesystem::exists(model / "additional_chat_templates"));
  const Status refused = write_template_files({{"../up", "x"}}, model.path());
  REQUIRE_FALSE(refused);
  CHECK(refused.error().exit_code() == 2);
  CHECK(printed(model.path()) == "new");
}

TEST_CASE("chat templates: what stands around an answer is known from a question alone",
          "[data][chat]") {
  const auto texts = [](const std::string& source) {
    auto made = template_of(source);
    const auto& found = made.turn_texts();
    return found ? found->question + "|" + found->end : "none";
  };
  const std::string turns_of =
      "{% for m in messages %}{{ '<' + m.role + '>' + m.content + '</s>' }}{% endfor %}";
  CHECK(texts(turns_of + "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}") ==
        "<assistant>|</s>");
  // A thought that answers do not have is no part of what stands before them.
  CHECK(texts(turns_of + "{% if add_generation_prompt %}{{ '<assistant><think>' }}{% endif %}") ==
        "<assistant>|</s>");
  CHECK(texts(turns_of) == "none");
  CHECK(texts("{% for m in messages %}{{ m.content }}{{ m.content }}{% endfor %}"
              "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}") == "none");
}

TEST_CASE("chat templates: the sources of built-in ones print what these print",
          "[data][chat][CT-1]") {
  for (const std::string_view name : built_in_chat_templates()) {
    auto built_in = ChatTemplate::built_in(name);
    REQUIRE(built_in.ok());
    auto made = template_of(built_in->sources().at("default"));
    for (const auto& messages : std::vector<std::vector<std::pair<std::string, std::string>>>{
             {},
             {{"user", "a"}},
             {{"system", " s "}, {"user", " a\n"}, {"assistant", "\u3000b "}},
             {{"user", "a"}, {"assistant", "b"}, {"user", "c"}, {"assistant", "'d' \\n"}},
             {{"user", "a"}, {"user", "b"}}}) {
      for (const bool asks : {false, true}) {
        INFO(name << ", " << messages.size() << " messages, " << asks);
        const auto wanted = built_in->render(turns(messages), {.add_generation_prompt = asks});
        const auto found = made.render(turns(messages), {.add_generation_prompt = asks});
        CHECK(wanted.ok() == found.ok());
        CHECK((!wanted || !found || *wanted == *found));
      }
    }
  }
}

TEST_CASE("chat templates: the date is the setting's", "[data][chat][CT-2]") {
  ChatSettings settings;
  CHECK(outcome_of("{{ strftime_now('%Y-%m-%d') }}") == "2024-07-26");
  settings.date = "2031-02-28";
  CHECK(outcome_of("{{ strftime_now('%d %b %Y') }}", settings) == "28 Feb 2031");
}

TEST_CASE("chat templates: the fingerprint is of all that makes the text", "[data][chat]") {
  const auto of = [](const std::string& source, const ChatSettings& settings) {
    return template_of(source, settings).fingerprint();
  };
  ChatSettings other_date;
  other_date.date = "2025-01-01";
  ChatSettings other_token;
  other_token.special_tokens = {{"bos_token", "<s>"}};
  const std::set<std::string> all = {of("a", {}),
                                     of("b", {}),
                                     of("a", other_date),
                                     of("a", other_token),
                                     ChatTemplate::built_in("chatml")->fingerprint(),
                                     ChatTemplate::built_in("llama3")->fingerprint()};
  CHECK(all.size() == 6);
  CHECK(of("a", {}) == of("a", {}));
}

TEST_CASE("chat templates: variables, and what may not be overridden", "[data][chat]") {
  auto shown = template_of(
      "{{ depth }} {{ bos_token }} {{ messages | length }} {{ add_generation_prompt }} {{ tools "
      "}}");
  Conversation conversation = turns({{"user", "x"}});
  conversation.variables =
      R"({"depth": 3, "bos_token": "<b>", "messages": [], "add_generation_prompt": true})";
  CHECK(outcome_of(shown, conversation) == "3 <b> 1 False None");
}

TEST_CASE("chat templates: beginnings of a conversation in one exchange", "[data][chat]") {
  const Conversation whole =
      turns({{"system", "S"}, {"user", "U"}, {"assistant", "A"}, {"user", "V"}});
  const std::vector<ChatPrefix> prefixes = {{.messages_count = 2},
                                            {.messages_count = 2, .options = {true}},
                                            {.messages_count = 3},
                                            {.messages_count = 4},
                                            {.messages_count = 0}};
  auto jinja = template_of(
      "{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}{% endfor %}"
      "{{ '<a>' if add_generation_prompt }}");
  std::vector<std::string> texts;
  for (const auto& text : jinja.render_prefixes(whole, prefixes)) {
    REQUIRE(text.ok());
    texts.push_back(text->text);
  }
  CHECK(texts == std::vector<std::string>{"<s>S<u>U", "<s>S<u>U<a>", "<s>S<u>U<a>A",
                                          "<s>S<u>U<a>A<u>V", ""});
  auto built_in = ChatTemplate::built_in("plain");
  REQUIRE(built_in.ok());
  CHECK(built_in->render_prefixes(whole, prefixes)[2]->text == "SUA");
}

TEST_CASE("chat templates: other texts in the place of contents, for one rendering each",
          "[data][chat]") {
  Conversation whole = turns({{"user", "U"}, {"assistant", "A"}});
  const auto named =
      ChatMessage::from_json(OrderedJson{{"role", "user"}, {"content", "V"}, {"name", "Ada"}});
  REQUIRE(named.ok());
  whole.messages.push_back(*named);
  const std::vector<ChatPrefix> prefixes = {{.messages_count = 3, .contents = {{1, "x"}, {2, "y"}}},
                                            {.messages_count = 3}};
  auto jinja = template_of("{% for m in messages %}{{ m.name }}{{ m.content }}.{% endfor %}");
  auto rendered = jinja.render_prefixes(whole, prefixes);
  CHECK(rendered[0]->text == "U.x.Aday.");
  CHECK(rendered[1]->text == "U.A.AdaV.");
  auto built_in = ChatTemplate::built_in("plain");
  REQUIRE(built_in.ok());
  rendered = built_in->render_prefixes(whole, prefixes);
  CHECK(rendered[0]->text == "Uxy");
  CHECK(rendered[1]->text == "UAV");
}

TEST_CASE("chat templates: members of messages that a template asks for in none are named",
          "[data][chat]") {
  const Conversation conversation = conversation_of(OrderedJson::parse(
      R"([{"role": "user", "content": "U", "name": "Ada", "at": 5, "note": ""},
          {"role": "assistant", "content": "A", "thinking": "T", "score": 0.5}])"));
  const auto unasked = [&](const std::string& source) {
    auto chat_template = template_of(source);
    const auto chat = chat_template.render_with_spans(conversation);
    REQUIRE(chat.ok());
    return chat->unasked;
  };
  using Names = std::vector<std::string>;
  CHECK(unasked("{% for m in messages %}{{ m.content }}{% endfor %}") ==
        Names{"at", "name", "score"});
  CHECK(unasked("{% for m in messages %}{{ m['name'] }}{{ m.get('at') }}{% endfor %}") ==
        Names{"score"});
  CHECK(unasked("{{ 'score' in messages[1] }}{{ messages[0].name is defined }}") == Names{"at"});
  CHECK(unasked("{% for m in messages %}{{ m | tojson }}{% endfor %}").empty());
  auto built_in = ChatTemplate::built_in("plain");
  REQUIRE(built_in.ok());
  CHECK(built_in->render_with_spans(conversation)->unasked == Names{"at", "name", "score"});
}

TEST_CASE("chat templates: spans in bytes and in characters", "[data][chat]") {
  const Conversation conversation = turns({{"user", "\u00e4\U0001f600"}, {"assistant", "\u4e16!"}});
  const auto spans_are = [](const RenderedChat& chat, const TextSpan& span) {
    REQUIRE(chat.generated.size() == 1);
    CHECK(chat.generated[0] == span);
  };
  auto jinja = template_of(
      "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% else %}"
      "{% generation %}{{ m.content }}{% endgeneration %}{% endif %}{% endfor %}.");
  auto text = jinja.render_with_spans(conversation);
  REQUIRE(text.ok());
  CHECK(text->text == "\u00e4\U0001f600\u4e16!.");
  spans_are(*text, {6, 10, 2, 4});
  for (const auto& [name, generated] :
       std::map<std::string, std::string>{{"chatml", "\u4e16!<|im_end|>"},
                                          {"llama3", "\u4e16!<|eot_id|>"},
                                          {"gemma", "\u4e16!<end_of_turn>"},
                                          {"tulu", "\u4e16!<|end_of_text|>"},
                                          {"plain", "\u4e16!"}}) {
    auto chat_template = ChatTemplate::built_in(name);
    const auto chat = chat_template->render_with_spans(conversation);
    REQUIRE(chat.ok());
    REQUIRE(chat->generated.size() == 1);
    const TextSpan span = chat->generated[0];
    CHECK(chat->text.substr(span.begin_bytes, span.end_bytes - span.begin_bytes) == generated);
    CHECK(span.begin_bytes - span.begin_characters == 4);
    CHECK(span.end_bytes - span.end_characters == 6);
  }
}

TEST_CASE("chat templates: a generation block without a place is a mistake where spans count",
          "[data][chat]") {
  auto hidden = template_of(
      "x\n{% macro f() %}{{ 'a' }}{% generation %}b{% endgeneration %}{% endmacro %}{{ f() }}");
  const Conversation conversation = turns({{"user", "x"}});
  CHECK(outcome_of(hidden, conversation) == "x\nab");
  const auto text = hidden.render_with_spans(conversation);
  REQUIRE_FALSE(text.ok());
  CHECK(text.error().message ==
        "a.jinja: line 2: what this generation block holds is printed elsewhere (it is in a macro "
        "or a set block), so that its place is not known");
}

TEST_CASE("chat templates: built-in ones refuse what they have no words for", "[data][chat]") {
  const auto mistake = [](const char* name, const Conversation& conversation) {
    auto chat_template = ChatTemplate::built_in(name);
    return outcome_of(*chat_template, conversation);
  };
  CHECK(mistake("gemma", turns({{"user", "a"}, {"user", "b"}})) ==
        "built-in chat template gemma: Conversation roles must alternate "
        "user/assistant/user/assistant/...");
  CHECK(mistake("llama3", turns({{"user", "a"}, {"tool", "b"}})) ==
        "built-in chat template llama3: message 2: the role is \"tool\", not system, user or "
        "assistant; use the model's own template");
  CHECK(mistake("chatml", with_tools()) ==
        "built-in chat template chatml: this template does not support tools; use the model's own "
        "template");
  const auto parts =
      parse_conversation(R"([{"role": "user", "content": [{"type": "text", "text": "x"}]}])");
  REQUIRE(parts.ok());
  CHECK(mistake("tulu", *parts) ==
        "built-in chat template tulu: message 1: its content is not text; use the model's own "
        "template");
  ChatSettings settings;
  settings.special_tokens = {{"eos_token", "</s>"}};
  auto tulu = ChatTemplate::built_in("tulu", settings);
  CHECK(outcome_of(*tulu, turns({{"assistant", "a"}})) == "<|assistant|>\na</s>");
}
