#include "storage/inputs/input_reader.hpp"

#include <catch2/catch.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/harness/fixture_file.hpp"

namespace train::storage::testing::input_reader_test {

using train::test::TempDirectory;
using train::test::write_bytes;

/// "LINE:TEXT" of each record, or "LINE!CAUSE".
std::vector<std::string> records_of(RecordCutter& cutter, const std::string& text,
                                    std::size_t piece) {
  std::vector<std::string> seen;
  const TakeRecord take = [&](const InputRecord& record) -> Status {
    seen.push_back(std::to_string(record.line) +
                   (record.fault ? "!" + std::string(line_fault_text(*record.fault))
                                 : ":" + std::string(record.text)));
    return {};
  };
  for (std::size_t i = 0; i < text.size(); i += piece) {
    REQUIRE(cutter.feed(std::string_view(text).substr(i, piece), take));
  }
  REQUIRE(cutter.finish(take));
  return seen;
}

using Make = std::function<std::unique_ptr<RecordCutter>()>;
/// The same whatever the pieces are.
std::vector<std::string> cut(const Make& make, const std::string& text) {
  const auto whole = records_of(*make(), text, text.size() + 1);
  for (const std::size_t piece : {1U, 2U, 3U, 7U}) {
    REQUIRE(records_of(*make(), text, piece) == whole);
  }
  return whole;
}

using Lines = std::vector<std::string>;

InputLayout layout(const std::string& text, const std::string& ending = ".txt",
                   SaidLayout said = SaidLayout::nothing) {
  return layout_of({.text = text, .is_all = true, .ending = ending}, said);
}

TEST_CASE("record cutter: lines are numbered, blank ones passed over, one too long is reported",
          "[storage][inputs][RW-3]") {
  const Make make = [] { return make_line_cutter(20); };
  CHECK(cut(make, "one\n\n \r\nfour\r\nfive") == Lines{"1:one", "4:four\r", "5:five"});
  CHECK(cut(make, "one\n" + std::string(21, 'x') + "\nthree\n") ==
        Lines{"1:one", "2!a line of more than 32 MiB", "3:three"});
  CHECK(cut(make, "").empty());
}

TEST_CASE("record cutter: elements of an array end where their brackets do, over any lines",
          "[storage][inputs][RW-3]") {
  const Make make = [] { return make_value_cutter(40); };
  CHECK(cut(make, "[{\"a\": [1, \"}]\\\"\"]},\n {\n\"b\": 2}\n, null,3 ,\"x, y\"]\n") ==
        Lines{"1:{\"a\": [1, \"}]\\\"\"]}", "2:{\n\"b\": 2}", "4:null", "4:3", "4:\"x, y\""});
  CHECK(cut(make, "{\"a\":\n1}\n{\"a\":\n2}\n") == Lines{"1:{\"a\":\n1}", "3:{\"a\":\n2}"});
  CHECK(cut(make, "[{\"a\": 1}, {\"b\"") == Lines{"1:{\"a\": 1}", "1!JSON that is cut off"});
  CHECK(cut(make, "[{\"a\": 1}\n") == Lines{"1:{\"a\": 1}", "2!JSON that is cut off"});
  CHECK(cut(make, "[{\"a\": \"" + std::string(50, 'x') + "\"}, {\"b\": 2}]") ==
        Lines{"1!a line of more than 32 MiB", "1:{\"b\": 2}"});
  CHECK(cut(make, "[]").empty());
}

TEST_CASE("record cutter: the rows of a table are those that datasets reads", "[storage][inputs]") {
  for (const auto& example : test::read_fixture("tables.json")) {
    std::string text = example.at("text");
    const std::string delimiter = example.at("delimiter");
    CAPTURE(text);
    text.erase(0, text.starts_with("\xef\xbb\xbf") ? 3 : 0);
    std::size_t next = 0;
    for (const std::string& record :
         cut([&] { return make_table_cutter(delimiter[0], 10000); }, text)) {
      REQUIRE(record.find(':') != std::string::npos);
      const auto row = nlohmann::json::parse(record.substr(record.find(':') + 1));
      REQUIRE(row == example.at("rows").at(next++));
    }
    REQUIRE(next == example.at("rows").size());
  }
}

TEST_CASE("record cutter: a row of a table that is broken is counted, and its line is right",
          "[storage][inputs][RW-3]") {
  const Make make = [] { return make_table_cutter(',', 60); };
  CHECK(cut(make, "a,b\n\"x\ny\",1\n1,2,3\n4,5\n") == Lines{R"(2:{"a": "x\u000ay", "b": "1"})",
                                                            "4!more fields than the header has",
                                                            R"(5:{"a": "4", "b": "5"})"});
  CHECK(cut(make, "a,b\n1,2\n\"no end,3\n") ==
        Lines{R"(2:{"a": "1", "b": "2"})", "3!a quote that nothing closes"});
}

TEST_CASE("record cutter: a quote that nothing closes costs a line, and the lines of its cell",
          "[storage][inputs][RW-3]") {
  const Make make = [] { return make_table_cutter(',', 1000); };
  const Lines rest = {R"(4:{"a": "3", "b": "4"})", R"(5:{"a": "5", "b": "6"})"};
  const auto with_rest = [&](Lines lines) {
    lines.insert(lines.end(), rest.begin(), rest.end());
    return lines;
  };
  const Lines expected = with_rest({R"(2:{"a": "1", "b": "2"})", "3!a quote that nothing closes"});
  CHECK(cut(make, "a,b\n1,2\n\"open,9\n3,4\n5,6\n") == expected);
  CHECK(cut(make, "a,b\r\n1,2\r\n9,\"open\r\n3,4\r\n5,6") == expected);
  // What is behind it are no rows: all of it is counted.
  CHECK(cut(make, "a,b\n\"a story\nof three\nlines") == Lines{"2!a quote that nothing closes",
                                                              "3!a quote that nothing closes",
                                                              "4!a quote that nothing closes"});
  CHECK(cut(make, "a\n\"open\nrow\n") ==
        Lines{"2!a quote that nothing closes", "3!a quote that nothing closes"});
  // Long before the table's end.
  std::string table = "a,b\n\"open,9\n";
  for (int i = 0; i < 1000; ++i) {
    table += "3,4\n";
  }
  CHECK(cut(make, table).size() == 1001);
}

TEST_CASE("record cutter: a bracket that nothing closes costs its element, and not all behind it",
          "[storage][inputs][RW-3]") {
  const Make make = [] { return make_value_cutter(std::size_t{1} << 20); };
  CHECK(cut(make, R"([{"a": 1}, {"a": {"b": 2}, {"a": 3}, {"a": 4}])") ==
        Lines{R"(1:{"a": 1})", "1!not JSON", R"(1:{"a": 3})", R"(1:{"a": 4})"});
  CHECK(cut(make, "[{\"a\": 1},\n{\"a\": 2,\n{ \"a\": 3},\n{\"a\": 4}]\n") ==
        Lines{"1:{\"a\": 1}", "2!not JSON", "3:{ \"a\": 3}", "4:{\"a\": 4}"});
  std::string array = "[";
  std::string whole;
  for (int i = 0; i < 20'000; ++i) {
    whole = "{\"a\": \"element " + std::to_string(i) + "\"";
    array += whole + (i % 5000 == 100 ? "" : "}") + ",\n";
  }
  const auto cutter = make_value_cutter(std::size_t{1} << 20);
  CHECK(records_of(*cutter, array + whole + "}]", std::size_t{1} << 18).size() == 20'001);
}

TEST_CASE("record cutter: quotes too many cost the elements that they are in, and no other",
          "[storage][inputs][RW-3]") {
  const Make make = [] { return make_value_cutter(std::size_t{1} << 20); };
  CHECK(cut(make, R"([{"a": "x"y", "b": 1}, {"a": "z"w", "b": 2}, {"a": "v", "b": 3}])") ==
        Lines{"1!not JSON", "1!not JSON", R"(1:{"a": "v", "b": 3})"});
  CHECK(cut(make,
            "[{\"a\": \"1\"},\n{\"a\": \"x\"y, and more\"},\n{\"a\": \"z\"},\n"
            "{\"a\": \"w, {or\" so\"},\n{\"a\": \"v\"}]") == Lines{"1:{\"a\": \"1\"}", "2!not JSON",
                                                                   "3:{\"a\": \"z\"}", "4!not JSON",
                                                                   "5:{\"a\": \"v\"}"});
  // An object within that begins as its own does is no other element.
  CHECK(cut(make, R"([{"a": {"a": 1}}, {"a": [{"a": "2"}]}])") ==
        Lines{R"(1:{"a": {"a": 1}})", R"(1:{"a": [{"a": "2"}]})"});
}

TEST_CASE("input layout: JSON is known by what it is, whatever its name", "[storage][inputs]") {
  const std::string line = "{\"text\": \"a\"}\n";
  for (const char* const ending : {".json", ".jsonl", ".ndjson", ".txt", ""}) {
    CAPTURE(ending);
    CHECK(layout(line + line, ending) == InputLayout::json_lines);
    CHECK(layout("\n \n" + line, ending) == InputLayout::json_lines);
    CHECK(layout("[\n{\"text\": \"a\"}]", ending) == InputLayout::json_values);
    CHECK(layout("[ { \"text\"", ending) == InputLayout::json_values);
    CHECK(layout("{\n \"text\": \"a\"\n}\n{\n \"text\": \"b\"\n}\n", ending) ==
          InputLayout::json_values);
    // One broken line does not make it a text.
    CHECK(layout("{\"text\": \"a\n" + line, ending) == InputLayout::json_lines);
    CHECK(layout("{\"text\": NaN}\n" + line, ending) == InputLayout::json_lines);
  }
  CHECK(layout("not JSON\n" + line, ".jsonl") == InputLayout::json_lines);
  CHECK(layout("", ".jsonl") == InputLayout::json_lines);
  CHECK(layout("{ a set } of words\nand more") == InputLayout::text);
  CHECK(layout("[1] A footnote\n") == InputLayout::text);
  CHECK(layout("[1]") == InputLayout::text);
  CHECK(layout("[\"a quote\"] and more\n") == InputLayout::text);
  CHECK(layout("[[{\"text\": \"a\"}], []]") == InputLayout::json_values);
  CHECK(layout("[\"a\", \"b\"]") == InputLayout::json_values);
  CHECK(layout("{\"text\": \"a\"}{\"text\": \"b\"}") == InputLayout::json_values);
  CHECK(layout("{\"text\": \"a\"}\r{\"text\": \"b\"}\r") == InputLayout::json_values);
  CHECK(layout("{\n  int x = 0;\n}\n") == InputLayout::text);
  CHECK(layout(line, ".jsonl", SaidLayout::text) == InputLayout::text);
}

TEST_CASE("input layout: a table is known by its name, or by members in its first row",
          "[storage][inputs]") {
  CHECK(layout("a,b\n1,2\n", ".csv") == InputLayout::csv);
  CHECK(layout("a\tb\n1\t2\n", ".tsv") == InputLayout::tsv);
  CHECK(layout("text,label\n\"hello, you\",2\n") == InputLayout::csv);
  CHECK(layout("id\ttext\n1\thello, you\n") == InputLayout::tsv);
  for (const std::string ending : {".txt", ".csv", ".tsv"}) {
    CHECK(layout("id;text\n1;hello, you\n", ending) == InputLayout::semicolons);
    CHECK(layout("id|text\n1|hello, you\n", ending) == InputLayout::pipes);
    CHECK(layout("id,text\n1,hello\n", ending) == InputLayout::csv);
    CHECK(layout("id\ttext\n1\thello\n", ending) == InputLayout::tsv);
  }
  CHECK(layout("a;text\n1;2\n", ".txt", SaidLayout::csv) == InputLayout::semicolons);
  CHECK(layout("text, as such, is long\nand has, commas\n") == InputLayout::text);
  CHECK(layout("text,label\nthis one is a poem\nwithout, commas, or many\n") == InputLayout::text);
  CHECK(layout("a,b\n1,2\n") == InputLayout::text);
  CHECK(layout("a,b\n1,2\n", ".txt", SaidLayout::csv) == InputLayout::csv);
}

TEST_CASE("input reader: what is no text is refused by name, unless it is said to be text",
          "[storage][inputs]") {
  const TempDirectory directory;
  std::string noise;
  for (unsigned i = 0, state = 1; i < 5000; ++i) {
    state = state * 1664525U + 1013904223U;
    noise.push_back(static_cast<char>(state >> 24U));
  }
  const std::string zip = std::string("PK\x03\x04", 4) + noise;
  std::string wide;
  for (const char letter : std::string(2000, 'a')) {
    wide += {letter, '\0'};
  }
  for (const auto& [bytes, name] : {std::pair(zip, "a ZIP archive"),
                                    {"\xff\xfe" + wide, "UTF-16"},
                                    {wide, "UTF-16LE"},
                                    {wide.substr(1), "UTF-16BE"},
                                    {"\x80\x04\x95" + noise, "a pickle"},
                                    {std::string(2000, '\x01'), "control characters"},
                                    {noise, "invalid UTF-8"},
                                    {std::string(257, 'x') + "ustar" + noise, "a tar archive"}}) {
    write_bytes(directory / "in.txt", bytes);
    const auto reader = InputReader::open(directory / "in.txt");
    REQUIRE_FALSE(reader.ok());
    CHECK(reader.error().exit_code() == 2);
    CHECK_THAT(reader.error().message, Catch::Contains("in.txt") && Catch::Contains(name));
    CHECK(InputReader::open(directory / "in.txt", SaidLayout::text).ok());
  }
  // Another encoding of a language with few letters beyond ASCII is a text with some breaks.
  write_bytes(directory / "in.txt",
              "Caf\xe9 au lait, cr\xe8me br\xfbl\xe9"
              "e et th\xe9 chaud.");
  CHECK(InputReader::open(directory / "in.txt").ok());
}

TEST_CASE("line fault: a line that is no object is told by its true cause",
          "[storage][inputs][RW-3]") {
  const std::vector<std::pair<std::string, LineFault>> cases = {
      {R"({"text": "hello \ud83d"})", LineFault::half_surrogate},
      {R"({"id": "\udc00", "text": "hello"})", LineFault::half_surrogate},
      {R"({"text": "hello", "score": NaN})", LineFault::no_number},
      {R"({"score": NaN})", LineFault::no_number},
      {R"({"score": -Infinity, "text": "hello"})", LineFault::no_number},
      {R"([Infinity])", LineFault::no_number},
      {R"({"text": "hello", "score": 1e999})", LineFault::huge_number},
      {"{\"text\": \"a\xff\"}", LineFault::bad_byte},
      {"{\"text\": \"a\xc3\"}", LineFault::bad_byte},
      {R"({"text": "hello)", LineFault::cut_off},
      {R"({"text": "hello")", LineFault::cut_off},
      {R"({"text": "hello", )", LineFault::cut_off},
      {R"({"text": tru)", LineFault::cut_off},
      {R"({"text": 1.)", LineFault::cut_off},
      {R"({"text": "a\u00)", LineFault::cut_off},
      {"{\"text\": \"a\tb\"}", LineFault::control},
      {R"({'text': 'hello'})", LineFault::not_json},
      {R"({"text": "hello",})", LineFault::not_json},
      {R"({"text": "NaN" "b"})", LineFault::not_json},
      {R"({"a": 1}{"b": 2})", LineFault::not_json},
      {"null", LineFault::no_object},
      {"[1]", LineFault::no_object},
  };
  for (const auto& [line, fault] : cases) {
    CAPTURE(line);
    CHECK(line_fault_text(json_fault(line)) == line_fault_text(fault));
  }
}

}  // namespace train::storage::testing::input_reader_test
