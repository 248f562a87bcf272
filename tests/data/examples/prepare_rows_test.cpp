#include "data/examples/prepare_rows.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <fstream>
#include <map>
#include <sstream>

#include "storage/files/atomic_file.hpp"
#include "storage/inputs/input_reader.hpp"
#include "tests/data/examples/examples_fixture.hpp"
#include "tests/support/processes/allocated.hpp"

using namespace train;
using namespace train::data;
using namespace train::test;

namespace {

using Texts = std::vector<std::string>;

std::string chat_line(const std::string& question, const std::string& answer) {
  return nlohmann::ordered_json{{"messages",
                                 {{{"role", "user"}, {"content", question}},
                                  {{"role", "assistant"}, {"content", answer}}}}}
             .dump() +
         "\n";
}

std::string many_chats(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) {
    lines +=
        chat_line("q" + std::to_string(i), std::string(static_cast<std::size_t>(i % 20 + 1), 'a'));
  }
  return lines;
}

/// What is in the directory of the output, hidden files too.
std::string listing(const std::filesystem::path& directory) {
  std::string all;
  const auto names = storage::entry_names(directory);
  REQUIRE(names.ok());
  for (const std::string& name : *names) {
    all += name + " ";
  }
  return all;
}

}  // namespace

TEST_CASE("prepare rows: of a chat what the assistant says is trained, with its end",
          "[data][examples]") {
  const DataPlace place;
  const RowReport report =
      prepared(place.request(chat_line("hi", "the ant") + "\n" + chat_line("ho", "no")));
  REQUIRE(place.marked() ==
          Texts{"<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n[[the ant<|im_end|>]]\n",
                "<|im_start|>user\nho<|im_end|>\n<|im_start|>assistant\n[[no<|im_end|>]]\n"});
  REQUIRE((report.total.lines == 2 && report.total.documents == 2 && report.total.dropped == 0));
  REQUIRE(report.total.trained_tokens == report.facts.train.trained_tokens);
  REQUIRE(report.total.tokens == report.facts.train.tokens);
  REQUIRE(report.masks[0] == 2);
  REQUIRE(report.facts.kind == "chat");
}

TEST_CASE("prepare rows: a prompt's tokens are not trained, and the end of a text is",
          "[data][examples]") {
  const DataPlace place;
  SECTION("a prompt and its completion") {
    prepared(place.request(R"({"prompt": "ab", "completion": " cd"})"));
    REQUIRE(place.marked() == Texts{"ab[[ cd<|endoftext|>]]"});
  }
  SECTION("whose border lies in a token") {
    const auto report = prepared(place.request(R"({"prompt": "xt", "completion": "he"})"));
    REQUIRE(place.marked() == Texts{"x[[the<|endoftext|>]]"});
    REQUIRE((report.merged == 1 && report.prompts == 1));
    REQUIRE(contains(report.lines().back(), "1 of 1 prompts"));
  }
  SECTION("a text") {
    prepared(place.request(R"({"text": "abc"})"));
    REQUIRE(place.marked() == Texts{"a[[bc<|endoftext|>]]"});
  }
}

TEST_CASE("prepare rows: with keywords the tokens that they match are trained, of texts alone",
          "[data][examples]") {
  const DataPlace place;
  const TempDirectory lists;
  const auto with_keywords = [&](PrepareRowsRequest request, const std::string& list) {
    write_bytes(lists / "keywords.txt", list);
    request.keywords = lists / "keywords.txt";
    return request;
  };
  SECTION("in upper or lower case, and not the end of the text") {
    prepared(with_keywords(place.request(R"({"text": "abcabd"})"), "# a comment\n\nB|D\n"));
    REQUIRE(place.marked() == Texts{"a[[b]]ca[[bd]]<|endoftext|>"});
  }
  SECTION("a line without any is dropped, and counted") {
    auto request =
        with_keywords(place.request("{\"text\": \"abc\"}\n{\"text\": \"acd\"}\n"), "b\n");
    request.most_dropped = 0.5;
    const RowReport report = prepared(request);
    REQUIRE(place.marked() == Texts{"a[[b]]c<|endoftext|>"});
    REQUIRE(report.total.dropped == 1);
  }
  SECTION("what is no list of expressions is refused, naming the file") {
    for (const std::string list : {"(b\n", "# nothing\n"}) {
      const auto report = prepare_rows(with_keywords(place.request(R"({"text": "abc"})"), list));
      REQUIRE_FALSE(report.ok());
      REQUIRE(contains(report.error().message, "keywords.txt: "));
    }
    const auto chat = prepare_rows(with_keywords(place.request(chat_line("hi", "the ant")), "a\n"));
    REQUIRE_FALSE(chat.ok());
    REQUIRE(contains(chat.error().message, "--keywords are for texts"));
  }
}

TEST_CASE("prepare rows: pairs and KTO's examples are numbered, with their sides",
          "[data][examples]") {
  const DataPlace place;
  SECTION("pairs") {
    const auto report =
        prepared(place.request(R"({"prompt": "p", "chosen": " good", "rejected": " bad"})"));
    REQUIRE(report.facts.train.pairs == 1);
    REQUIRE(place.marked() == Texts{"p[[ good<|endoftext|>]]", "p[[ bad<|endoftext|>]]"});
  }
  SECTION("KTO") {
    const auto report =
        prepared(place.request(R"({"prompt": "p", "completion": " good", "label": true})"
                               "\n"
                               R"({"prompt": "q", "completion": " bad", "label": false})"));
    REQUIRE(report.facts.kind == "kto");
    REQUIRE((report.desirable == 1 && report.undesirable == 1));
    const auto split = RowSplit::open(place / "out", "train");
    REQUIRE(split.ok());
    std::map<std::int64_t, std::vector<int>> sides;
    for (std::uint64_t row = 0; row < split->rows(); ++row) {
      for (const RowDocument& document : split->documents(row)) {
        sides[document.pair].push_back(document.side);
      }
    }
    REQUIRE(sides == std::map<std::int64_t, std::vector<int>>{{0, {0, 2}}, {1, {1, 2}}});
    const auto lines = report.lines();
    REQUIRE(std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
      return contains(line, "labels: 1 true, 1 false");
    }));
    Texts marked = place.marked();
    std::sort(marked.begin(), marked.end());
    REQUIRE(marked == Texts{"p[[ bad<|endoftext|>]]", "p[[ good<|endoftext|>]]",
                            "q[[ bad<|endoftext|>]]", "q[[ good<|endoftext|>]]"});
  }
  SECTION("KTO with labels that are all alike, none, or no truth") {
    const std::string line = R"({"prompt": "p", "completion": " a", "label": )";
    REQUIRE(contains(prepare_rows_error(place.request(line + "true}\n" + line + "1}\n")),
                     "all 2 labels are true"));
    auto request = place.request(line + "true}\n" + line + "false}\n" + line + "\"good\"}\n" +
                                 R"({"prompt": "p", "completion": " a"})");
    REQUIRE(contains(prepare_rows_error(request), "a label that is neither true nor false"));
    request.most_dropped = 0.6;
    const auto report = prepared(request);
    const auto& dropped = report.dropped.at(static_cast<std::size_t>(DropReason::label));
    REQUIRE(dropped.lines == 2);
    REQUIRE(contains(dropped.first, "in.jsonl:3"));
  }
  SECTION("KTO of a long answer leaves half a row to its prompt with another one") {
    const std::string line = R"({"prompt": "p", "completion": ")" + std::string(100, 'x');
    const auto report =
        prepared(place.request(line + R"(", "label": true})" + "\n" + line + R"(y", "label": 0})"));
    REQUIRE(report.total.truncated == 2);
    const auto split = RowSplit::open(place / "out", "train");
    REQUIRE(split.ok());
    for (const RowDocument& document : split->documents(0)) {
      REQUIRE(document.length == 32);
      REQUIRE(document.trained > 0);
    }
  }
  SECTION("packing that would cut them is refused") {
    auto request = place.request(R"({"prompt": "p", "chosen": "a", "rejected": "b"})");
    request.packing = Packing::wrapped;
    REQUIRE(contains(prepare_rows_error(request), "must stay whole"));
  }
}

TEST_CASE("prepare rows: long documents keep their beginning; without an answer there they go",
          "[data][examples]") {
  const DataPlace place;
  auto request =
      place.request(chat_line("q", std::string(90, 'a')) + chat_line(std::string(90, 'b'), "c"));
  request.most_dropped = 0.5;
  const RowReport report = prepared(request);
  REQUIRE((report.total.truncated == 1 && report.total.dropped == 1));
  const auto& gone = report.dropped.at(static_cast<std::size_t>(DropReason::truncated_away));
  REQUIRE(gone.lines == 1);
  REQUIRE(contains(gone.first, "in.jsonl:2"));
  REQUIRE(report.facts.train.tokens == 64);
}

TEST_CASE("prepare rows: of a long pair the longer side gives way", "[data][examples]") {
  const DataPlace place;
  prepared(place.request(R"({"prompt": "p", "chosen": ")" + std::string(100, 'x') +
                         R"(", "rejected": ")" + std::string(9, 'y') + R"("})"));
  const auto split = RowSplit::open(place / "out", "train");
  REQUIRE(split.ok());
  const auto documents = split->documents(0);
  REQUIRE((documents.at(0).length == 53 && documents.at(1).length == 11));
}

TEST_CASE("prepare rows: dropped lines are counted, and too many are an error",
          "[data][examples][RW-3]") {
  const DataPlace place;
  auto request = place.request(many_chats(30) + R"({"messages": [{"role": "us)" + "\n" +
                               R"({"messages": [{"role": "user", "content": "a"}]})");
  const std::string error = prepare_rows_error(request);
  REQUIRE(contains(error, "2 of 32 lines (6.2 %) were dropped"));
  REQUIRE(contains(error, "in.jsonl:31"));
  REQUIRE(contains(error, "--max-dropped"));
  REQUIRE(listing(place / "out") == ".prepare.lock ");
  request.most_dropped = 0.1;
  const RowReport report = prepared(request);
  REQUIRE((report.total.lines == 32 && report.total.dropped == 2 && report.total.documents == 30));
  const auto facts = read_row_facts(place / "out");
  REQUIRE(facts.ok());
  const auto stored = nlohmann::json::parse(facts->report);
  REQUIRE(stored.at("dropped") == 2);
  REQUIRE(stored.at("sources").at("in.jsonl").at("lines") == 32);
  REQUIRE(contains(
      stored.at("dropped_by_reason").at("JSON that is cut off").at("first").get<std::string>(),
      "in.jsonl:31"));
}

TEST_CASE("prepare rows: every reason has its count and its first line, in a table or an error",
          "[data][examples][RW-3]") {
  const DataPlace place;
  const std::string cut = R"({"messages": [{"role": "us)"
                          "\n";
  const std::string unanswered = R"({"messages": [{"role": "user", "content": "a"}]})"
                                 "\n";
  const std::string error = prepare_rows_error(place.request(unanswered + cut + cut));
  CHECK(
      contains(error, "all 3 lines were dropped; 2 dropped: JSON that is cut off, the first at "));
  CHECK(contains(error, "in.jsonl:2; 1 dropped: nothing that is trained, the first at "));
  CHECK(contains(error, "in.jsonl:1: no message of the assistant is trained"));
  // Where no line says its kind.
  const std::string unknown = prepare_rows_error(place.request("null\n" + cut + cut));
  CHECK(contains(unknown, "in.jsonl:1: cannot tell which kind"));
  CHECK(contains(unknown, "2 dropped: JSON that is cut off, the first at "));
  CHECK(contains(unknown, "1 dropped: not a JSON object, the first at "));
  auto request = place.request(many_chats(40) + unanswered + cut + cut);
  request.most_dropped = 0.1;
  const Texts lines = prepared(request).lines();
  const auto heading = std::find_if(lines.begin(), lines.end(), [](const std::string& line) {
    return contains(line, "DROPPED  REASON");
  });
  REQUIRE(lines.end() - heading > 3);
  CHECK(heading[1].starts_with("        2  JSON that is cut off    "));
  CHECK(heading[1].ends_with("in.jsonl:42"));
  CHECK(heading[2].starts_with("        1  nothing that is trained  "));
  CHECK(heading->find("FIRST AT") == heading[2].find(place / "in.jsonl"));
}

TEST_CASE("prepare rows: an unknown role is called that", "[data][examples][RW-3]") {
  const DataPlace place;
  const auto chat = [](const std::string& first, const std::string& second) {
    return nlohmann::json{
               {"messages",
                {{{"role", first}, {"content", "q"}}, {{"role", second}, {"content", "a"}}}}}
               .dump() +
           "\n";
  };
  // The template refuses the first; nothing of the second is trained.
  const std::string error =
      prepare_rows_error(place.request(chat("narrator", "assistant") + chat("user", "bing")));
  CHECK(contains(error, "2 dropped: an unknown role, the first at "));
  CHECK(contains(
      error, "in.jsonl:1: \"narrator\": built-in chat template chatml: message 1: the role is"));
}

TEST_CASE("prepare rows: pairs that teach nothing are counted, the first of a kind with its line",
          "[data][examples][RW-3]") {
  const DataPlace place;
  const auto pair = [](const std::string& chosen, const std::string& rejected) {
    return nlohmann::json{{"prompt", "q"}, {"chosen", chosen}, {"rejected", rejected}}.dump() +
           "\n";
  };
  auto request = place.request(pair("a", "b") + pair("c", "c") + pair("b", "a") + pair("", "b") +
                               pair("b", " ") + pair("d", "d"));
  REQUIRE(contains(prepare_rows_error(request), "4 of 6 lines"));
  request.most_dropped = 0.9;
  const RowReport report = prepared(request);
  REQUIRE((report.total.documents == 4 && report.total.dropped == 4));
  for (const auto& [reason, line] :
       {std::pair(DropReason::equal_pair, 2), std::pair(DropReason::empty_answer, 4)}) {
    const auto& dropped = report.dropped.at(static_cast<std::size_t>(reason));
    CHECK(dropped.lines == 2);
    CHECK(contains(dropped.first, "in.jsonl:" + std::to_string(line)));
  }
}

TEST_CASE("prepare rows: what nobody reads is said by its name, with the lines that have it",
          "[data][examples][RW-3]") {
  const DataPlace place;
  const std::string said = R"("messages": [{"role": "user", "content": "a"}, )"
                           R"({"role": "assistant", "content": "b", "reasoning_content": "c"}])";
  auto request = place.request("{\"id\": 1, " + said + "}\n{\"id\": 2, \"note\": \"x\", " + said +
                               "}\n{\"note\": null, " + said + "}\n");
  const RowReport report = prepared(request);
  const auto lines = report.lines();
  const auto has = [&](const std::string& line) {
    return std::find(lines.begin(), lines.end(), line) != lines.end();
  };
  REQUIRE(has("not read: id (2 lines), note (1 lines)"));
  REQUIRE(has("changed or omitted by the template: reasoning_content (3 lines)"));
  const auto json = nlohmann::json::parse(report.facts.report);
  REQUIRE(json.at("not_read") == nlohmann::json{{"id", 2}, {"note", 1}});
}

TEST_CASE("prepare rows: a line of 1 GB is named, and no more of it is kept than a line may have",
          "[data][examples][.full]") {
  const DataPlace place;
  auto request = place.request(many_chats(40));
  const std::filesystem::path input = request.inputs.front();
  std::filesystem::resize_file(input,
                               std::filesystem::file_size(input) + (std::uintmax_t{1} << 30));
  std::ofstream(input, std::ios::app) << "\n" << chat_line("last", "one");
  const Allocated before = allocated();
  const RowReport report = prepared(request);
  const std::uint64_t bytes = allocated().bytes - before.bytes;
  REQUIRE((report.total.lines == 42 && report.total.dropped == 1 && report.total.documents == 41));
  const auto& first = report.dropped.at(static_cast<std::size_t>(DropReason::long_line));
  REQUIRE(contains(first.first, "in.jsonl:41"));
  REQUIRE(bytes < 8 * storage::kRecordLimitBytes);
}

TEST_CASE("prepare rows: data that trains on everything is refused, and what is no data",
          "[data][examples]") {
  const DataPlace place;
  auto request = place.request(R"({"messages": [{"role": "assistant", "content": "abc"}]})");
  request.chat_template = "plain";
  REQUIRE(contains(prepare_rows_error(request), "every token"));
  REQUIRE(contains(prepare_rows_error(place.request("")), "no lines"));
}

TEST_CASE("prepare rows: lines of which none says what it is want --kind, and why is said",
          "[data][examples]") {
  for (const auto& [line, why] :
       {std::pair(std::string(R"({"messages": [{"role": "us)"), "it is JSON that is cut off"),
        std::pair(std::string("[1]"), "it is JSON, but no object"),
        std::pair(std::string(storage::kRecordLimitBytes + 1, ' '), "it is a line of more than")}) {
    const DataPlace place;
    const std::string error = prepare_rows_error(place.request(line + "\n{}\n"));
    CHECK(contains(error, "in.jsonl:1: cannot tell which kind of example this is: "));
    CHECK(contains(error, why));
    CHECK(contains(error, "use --kind"));
    // One bad line at the beginning is one bad line.
    CHECK(prepared(place.request(line + "\n" + many_chats(40))).total.dropped == 1);
  }
}

TEST_CASE("prepare rows: records of no kind are told what their members have to be called",
          "[data][examples]") {
  const DataPlace place;
  // As SHP has them, HelpSteer, Nectar.
  for (const auto& [line, members] :
       {std::pair(R"({"history": "Q", "human_ref_A": "y", "human_ref_B": "n", "labels": 1})",
                  R"(members "history", "human_ref_A", "human_ref_B", "labels")"),
        {R"({"prompt": "Q", "response": "y", "helpfulness": 4})",
         R"(members "prompt", "response", "helpfulness")"},
        {R"({"prompt": "Q", "answers": [{"answer": "y", "rank": 1}]})",
         R"(members "prompt", "answers")"}}) {
    const std::string error = prepare_rows_error(place.request(std::string(line) + "\n"));
    CHECK(contains(error, "it has none of \"messages\""));
    CHECK(contains(error, members));
    CHECK(contains(error, "jq -c '{prompt: .KEY, chosen: .KEY, rejected: .KEY}' FILE"));
    CHECK_FALSE(contains(error, "--kind"));
  }
}

TEST_CASE("prepare rows: a template that ends answers as texts go on is said, once",
          "[data][examples][D-R2]") {
  const DataPlace place;
  const auto notes = [&](const std::string& chat_template) {
    auto request = place.request(many_chats(20));
    request.chat_template = chat_template;
    request.row_length = 512;
    request.force = true;
    const auto lines = prepared(request).lines();
    return std::count_if(lines.begin(), lines.end(), [](const std::string& line) {
      return contains(line, "the model will not stop in `generate --chat`");
    });
  };
  CHECK(notes("chatml") == 0);
  write_bytes(place / "lines.jinja",
              "{% for m in messages %}{{ m.role + ': ' + m.content + '\\n' }}{% endfor %}"
              "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}");
  CHECK(notes(place / "lines.jinja") == 1);
  // Tokens that the tokenizer does not have are text.
  CHECK(notes("gemma") == 1);
}

TEST_CASE("prepare rows: texts beside a chat template that none of them uses are said",
          "[data][examples][D-R2]") {
  const DataPlace place;
  const auto note = [&](const std::string& line) {
    auto request = place.request(line + "\n" + line + "\n");
    request.force = true;
    const auto lines = prepared(request).lines();
    const auto found = std::find_if(lines.begin(), lines.end(), [](const std::string& text) {
      return contains(text, "taken without the chat template");
    });
    return found == lines.end() ? std::string() : *found;
  };
  const std::string texts = R"({"prompt": "the", "completion": " them"})";
  const std::string pair = R"({"prompt": "the", "chosen": " them", "rejected": " then"})";
  CHECK(note(texts).empty());  // The tokenizer has none.
  write_bytes(place / "tokenizer/chat_template.jinja",
              "{% for m in messages %}{{ '<|im_start|>' + m.role + m.content + '<|im_end|>' }}"
              "{% endfor %}");
  CHECK(contains(note(texts), R"(2 examples have texts, not messages)"));
  CHECK(contains(note(texts), R"("completion": [{"role": "assistant", "content": "..."}])"));
  CHECK(contains(note(pair), R"("rejected": [{"role": "assistant", "content": "..."}])"));
  // The form that it names is taken with the template.
  CHECK(note(R"({"prompt": [{"role": "user", "content": "the"}], )"
             R"("completion": [{"role": "assistant", "content": "them"}]})")
            .empty());
}

TEST_CASE("prepare rows: a line that is broken is counted by its cause", "[data][examples][RW-3]") {
  const DataPlace place;
  auto request = place.request(many_chats(100) + R"({"messages": "\ud83d"})"
                                                 "\n"
                                                 R"({"score": NaN})"
                                                 "\n"
                                                 "{\"a\": \"\xff\"}\n"
                                                 R"({"messages": [)"
                                                 "\n{\"a\": \"\t\"}\nnull\n");
  request.most_dropped = 0.1;
  const RowReport report = prepared(request);
  CHECK(report.total.dropped == 6);
  for (const auto reason : {DropReason::half_surrogate, DropReason::no_number, DropReason::bad_byte,
                            DropReason::cut_off, DropReason::control, DropReason::not_json}) {
    CAPTURE(drop_reason_text(reason));
    CHECK(report.dropped.at(static_cast<std::size_t>(reason)).lines == 1);
  }
}

TEST_CASE("prepare rows: conversations are the same rows as lines, as an array, compressed",
          "[data][examples][RW-1]") {
  const DataPlace place;
  const std::string lines = many_chats(200);
  auto request = place.request(lines);
  const RowReport wanted = prepared(request);
  const std::string as_array = [&] {
    nlohmann::json array = nlohmann::json::array();
    std::istringstream stream(lines);
    for (std::string line; std::getline(stream, line);) {
      array.push_back(nlohmann::json::parse(line));
    }
    return array.dump(3);
  }();
  request = place.request(as_array);
  request.force = true;
  const RowReport found = prepared(request);
  CHECK(found.facts.train == wanted.facts.train);
  CHECK(found.facts.val == wanted.facts.val);
}

TEST_CASE("prepare rows: a template's file has the special tokens of the tokenizer that reads it",
          "[data][examples][CT-1]") {
  const DataPlace place;
  write_bytes(place / "tokenizer/tokenizer_config.json",
              R"({"eos_token": "<|im_end|>", "bos_token": "<|im_start|>"})");
  std::filesystem::create_directory(place / "elsewhere");
  // What lies beside the template is another model's.
  write_bytes(place / "elsewhere/tokenizer_config.json",
              R"({"eos_token": "</s>", "bos_token": "<s>", "unk_token": "<unk>"})");
  write_bytes(place / "elsewhere/chat.jinja",
              "{% for m in messages %}{{ bos_token + m.content + eos_token + (unk_token or '') }}"
              "{% endfor %}{% if add_generation_prompt %}{{ bos_token }}{% endif %}");
  auto request = place.request(chat_line("q", "a"));
  request.chat_template = place / "elsewhere/chat.jinja";
  REQUIRE(prepared(request).total.documents == 1);
  REQUIRE(place.marked().front() == "<|im_start|>q<|im_end|><|im_start|>[[a<|im_end|>]]");
}

TEST_CASE("prepare rows: what ends the assistant's turns is said beside the rows",
          "[data][examples][D-R2]") {
  const DataPlace place;
  const RowReport report = prepared(place.request(many_chats(20)));
  const auto end = place.tokenizer().encode("<|im_end|>", false);
  REQUIRE((end.ok() && end->size() == 1));
  REQUIRE(report.facts.end_of_text != end->front());
  const auto facts = read_row_facts(place / "out");
  REQUIRE(facts.ok());
  CHECK(facts->turn_ends == std::vector<std::uint32_t>{end->front()});
  // Texts have no turns.
  auto text = place.request(R"({"text": "a"})");
  text.force = true;
  CHECK(prepared(text).facts.turn_ends.empty());
}

TEST_CASE("prepare rows: the template of conversations is kept beside the tokenizer",
          "[data][examples][CT-1]") {
  const DataPlace place;
  write_bytes(place / "tokenizer/tokenizer_config.json",
              R"({"eos_token": "<|im_end|>", "chat_template": "the tokenizer's own"})");
  write_bytes(place / "other.jinja",
              "{% for m in messages %}{{ m.role + ': ' + m.content + eos_token }}{% endfor %}"
              "{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}");
  const Conversation asked = {.messages = {{"user", "q"}}};
  const auto asks = [&] {
    auto kept = ChatTemplate::open(kept_tokenizer_folder(place / "out"));
    REQUIRE(kept.ok());
    const auto text = kept->render(asked, {.add_generation_prompt = true});
    REQUIRE(text.ok());
    return *text;
  };
  auto request = place.request(many_chats(20));
  request.chat_template = place / "other.jinja";
  CHECK(prepared(request).facts.chat_template == "other.jinja");
  CHECK(asks() == "user: q<|im_end|>assistant: ");
  CHECK(read_row_facts(place / "out")->chat_template == "other.jinja");
  request.force = true;
  request.chat_template = "chatml";
  // A tokenizer of one file has no folder of its own.
  request.tokenizer = place / "tokenizer/tokenizer.json";
  write_bytes(place / "small.json", chat_tokenizer_json());
  for (const std::string& tokenizer : {request.tokenizer, (place / "small.json").string()}) {
    request.tokenizer = tokenizer;
    CHECK(prepared(request).facts.chat_template == "chatml");
    CHECK(asks() == "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n");
    CHECK(Tokenizer::load(kept_tokenizer(place / "out")).ok());
  }
  // Texts are rendered by none.
  auto text = place.request(R"({"text": "a"})");
  text.force = true;
  CHECK(prepared(text).facts.chat_template.empty());
}

TEST_CASE("prepare rows: the result does not depend on threads; equal lines stay on one side",
          "[data][examples][RW-1]") {
  const DataPlace place;
  auto request = place.request(many_chats(300) + many_chats(300));
  request.val_fraction = 0.3;
  const RowReport one = prepared(request);
  request.threads = 3;
  request.force = true;
  const RowReport three = prepared(request);
  REQUIRE(one.facts.train == three.facts.train);
  REQUIRE(one.facts.val == three.facts.val);
  REQUIRE(one.facts.val.documents > 60);
  REQUIRE(one.facts.val.documents % 2 == 0);
  REQUIRE(one.facts.train.documents + one.facts.val.documents == 600);
}

TEST_CASE("prepare rows: a file that is named twice counts twice, on one side of the split",
          "[data][examples][RW-1]") {
  const DataPlace place;
  auto request = place.request(many_chats(300));
  request.val_fraction = 0.3;
  const RowReport once = prepared(request);
  request.inputs.push_back(request.inputs.front());
  request.force = true;
  const RowReport twice = prepared(request);
  CHECK(twice.facts.train.documents == 2 * once.facts.train.documents);
  CHECK(twice.facts.val.documents == 2 * once.facts.val.documents);
  CHECK(once.facts.val.documents > 30);
  CHECK(twice.facts.sources == Texts{"in.jsonl", "in.jsonl"});
  CHECK(read_row_facts(place / "out").ok());
}

TEST_CASE("prepare rows: the same again does nothing; anything else wants --force",
          "[data][examples]") {
  const DataPlace place;
  auto request = place.request(many_chats(20));
  REQUIRE_FALSE(prepared(request).up_to_date);
  const auto before = std::filesystem::last_write_time(place / "out/meta.json");
  REQUIRE(prepared(request).up_to_date);
  REQUIRE(std::filesystem::last_write_time(place / "out/meta.json") == before);
  auto other = request;
  SECTION("another option") { other.seed = 5; }
  SECTION("another template") { other.chat_template = "tulu"; }
  SECTION("another input") { other = place.request(many_chats(21)); }
  REQUIRE(contains(prepare_rows_error(other), "--force"));
  other.force = true;
  REQUIRE_FALSE(prepared(other).up_to_date);
}

TEST_CASE("prepare rows: sources are the files, or what the lines say", "[data][examples]") {
  const DataPlace place;
  auto request = place.request(R"({"text": "ab", "from": "x"})"
                               "\n"
                               R"({"text": "cd", "from": "y"})"
                               "\n"
                               R"({"text": "ef", "from": "x"})");
  request.source_key = "from";
  const RowReport report = prepared(request);
  REQUIRE(report.facts.sources == Texts{"x", "y"});
  REQUIRE((report.sources[0].lines == 2 && report.sources[1].lines == 1));
}

TEST_CASE("prepare rows: killed at any time it leaves what was there",
          "[data][examples][exhaustive]") {
  const DataPlace place;
  auto request = place.request(many_chats(20));
  const RowReport first = prepared(request);
  request =
      place.request(many_chats(9000));  // more than are read at once, so that some are written
  request.force = true;
  const pid_t child = ::fork();
  if (child == 0) {
    static_cast<void>(prepare_rows(request, [](std::uint64_t done, std::uint64_t) {
      if (done > 0) {
        ::kill(::getpid(), SIGKILL);
      }
    }));
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
  REQUIRE(std::filesystem::exists(place / "out/.rows.tmp"));
  const auto facts = read_row_facts(place / "out");
  REQUIRE(facts.ok());
  REQUIRE(facts->train == first.facts.train);
  REQUIRE(place.marked().size() == 20);
  REQUIRE(prepared(request).facts.train.documents == 9000);
  REQUIRE_FALSE(std::filesystem::exists(place / "out/.rows.tmp"));
}

TEST_CASE("prepare rows: rows without meta.json, which a kill left, are replaced",
          "[data][examples]") {
  const DataPlace place;
  const auto request = place.request(many_chats(20));
  prepared(request);
  std::filesystem::remove(place / "out/meta.json");
  REQUIRE_FALSE(prepared(request).up_to_date);
  REQUIRE(place.marked().size() == 20);
}
