#include "data/prepare/prepare.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <csignal>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "data/prepare/document_reader.hpp"
#include "data/tokens/dataset_facts.hpp"
#include "data/tokens/token_dataset.hpp"
#include "storage/files/file_calls.hpp"
#include "tests/data/tokenizer/tokenizer_fixture.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/inputs/small_tokenizer.hpp"

using namespace train;
using namespace train::data;
using train::test::read_bytes;
using train::test::TempDirectory;
using train::test::write_bytes;

namespace {

/// Tokens of a file as text; end-of-text shows as '|'.
std::string text_of(const std::filesystem::path& path) {
  const std::string bytes = read_bytes(path);
  std::string text;
  for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) {
    text.push_back(bytes[i + 1] == '\x01' ? '|' : bytes[i]);
  }
  return text;
}

std::vector<std::string> documents_of(const std::filesystem::path& path,
                                      std::string_view separator) {
  std::vector<std::string> documents;
  std::string open;
  const DocumentSink sink{
      .text = [&](std::span<const std::byte> piece) -> Status {
        open.append(reinterpret_cast<const char*>(piece.data()), piece.size());
        return {};
      },
      .end = [&]() -> Status {
        documents.push_back(std::exchange(open, {}));
        return {};
      },
      .dropped = [](storage::LineFault, const storage::InputRecord&) -> Status { return {}; },
      .consumed = [](std::uint64_t) {},
  };
  REQUIRE(read_documents(path, separator, storage::SaidLayout::nothing, sink));
  REQUIRE(open.empty());
  return documents;
}

Error prepare_error(const PrepareRequest& request) {
  const auto report = prepare_dataset(request);
  REQUIRE_FALSE(report);
  REQUIRE(report.error().exit_code() == 2);
  REQUIRE(report.error().message.find('\n') == std::string::npos);
  return report.error();
}

/// Kills its own process before a call that changes the disk, the how many-th of all.
class KillAtCall final : public storage::FileCallHook {
 public:
  explicit KillAtCall(int number) : left_(number) {}
  int before(storage::FileCall& /*call*/) override {
    if (--left_ == 0) {
      ::kill(::getpid(), SIGKILL);
    }
    return 0;
  }
  void after(const storage::FileCall& /*call*/, int /*error_number*/) override {}

 private:
  int left_;
};

/// Prepares in a process of its own, which is killed at a call; false: it ended before.
bool killed_at_call(const PrepareRequest& request, int number) {
  const pid_t child = ::fork();
  if (child == 0) {
    KillAtCall hook(number);
    storage::install_file_call_hook(&hook);
    ::_exit(prepare_dataset(request).ok() ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  if (WIFEXITED(status)) {
    REQUIRE(WEXITSTATUS(status) == 0);
    return false;
  }
  return WTERMSIG(status) == SIGKILL;
}

/// The files of a data directory by their names, the tokenizer's too.
std::map<std::string, std::string> data_files(const std::filesystem::path& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    const std::string name = entry.path().lexically_relative(directory).string();
    if (entry.is_regular_file() && name != ".prepare.lock") {
      files[name] = read_bytes(entry.path());
    }
  }
  return files;
}

}  // namespace

TEST_CASE("prepare: one document gives its tail to validation", "[data][prepare][ST-6]") {
  const TempDirectory directory;
  std::string text;
  for (int i = 0; i < 999; ++i) {
    text.push_back(static_cast<char>('a' + i % 26));
  }
  write_bytes(directory / "in.txt", text);
  std::uint64_t last_done = 0;
  std::uint64_t total = 0;
  const auto report = prepare_dataset({.inputs = {directory / "in.txt"}, .out = directory / "out"},
                                      [&](auto done, auto all) {
                                        REQUIRE(done >= last_done);
                                        last_done = done;
                                        total = all;
                                      });
  REQUIRE(report);
  REQUIRE(last_done == total);
  REQUIRE(report->documents == 1);
  REQUIRE_FALSE(report->whole_documents);
  REQUIRE(report->train_tokens == 950);
  REQUIRE(report->val_tokens == 50);
  REQUIRE(report->val_bytes == 49);
  REQUIRE(text_of(directory / "out/train.bin") + text_of(directory / "out/val.bin") == text + "|");

  const auto dataset = TokenDataset::open(directory / "out", {.sequence_length = 16});
  REQUIRE(dataset);
  REQUIRE(dataset->facts().vocab_size == 257);
  REQUIRE(dataset->facts().end_of_text == 256);
  REQUIRE(dataset->facts().tokenizer == "bytes");
  REQUIRE(dataset->bytes_per_token() == 49.0 / 50.0);
}

TEST_CASE("prepare: a tail of one token is the end of the text", "[data][prepare][ST-6]") {
  const TempDirectory directory;
  write_bytes(directory / "in.txt", "0123456789");
  const auto report = prepare_dataset(
      {.inputs = {directory / "in.txt"}, .out = directory / "out", .val_fraction = 0.01});
  REQUIRE(report);
  REQUIRE(report->train_tokens == 10);
  REQUIRE(report->val_tokens == 1);
  REQUIRE(text_of(directory / "out/train.bin") == "0123456789");
  REQUIRE(text_of(directory / "out/val.bin") == "|");
}

TEST_CASE("prepare: many documents stay whole", "[data][prepare][ST-6]") {
  const TempDirectory directory;
  std::string text;
  for (int i = 0; i < 2000; ++i) {
    text += "document " + std::to_string(i) + "\n---\n";
  }
  write_bytes(directory / "in.txt", text);
  PrepareRequest request{
      .inputs = {directory / "in.txt"}, .out = directory / "out", .document_separator = "\n---\n"};
  const auto report = prepare_dataset(request);
  REQUIRE(report);
  REQUIRE(report->documents == 2000);
  REQUIRE(report->whole_documents);
  const std::string train = text_of(directory / "out/train.bin");
  const std::string val = text_of(directory / "out/val.bin");
  REQUIRE(val.size() > train.size() / 40);
  REQUIRE(val.size() < train.size() / 9);
  int in_val = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::string document = "document " + std::to_string(i) + "|";
    const bool first_val = val.starts_with(document);
    const bool is_val = first_val || val.find("|" + document) != std::string::npos;
    const bool is_train =
        train.starts_with(document) || train.find("|" + document) != std::string::npos;
    REQUIRE(is_val != is_train);
    in_val += is_val ? 1 : 0;
  }
  REQUIRE(report->val_tokens - report->val_bytes == static_cast<std::uint64_t>(in_val));

  // A pure function of the request: again the same bytes, another seed other documents.
  request.force = true;
  REQUIRE(prepare_dataset(request));
  REQUIRE(text_of(directory / "out/val.bin") == val);
  request.seed = 1;
  REQUIRE(prepare_dataset(request));
  REQUIRE(text_of(directory / "out/val.bin") != val);
}

TEST_CASE("prepare: a few documents never leave a side empty", "[data][.full][prepare][ST-6]") {
  const TempDirectory directory;
  for (int count = 1; count <= 8; ++count) {
    PrepareRequest request{.inputs = {}, .out = directory / "out", .force = true};
    std::string all;
    for (int i = 0; i < count; ++i) {
      const auto path = directory / ("in" + std::to_string(i) + ".txt");
      const std::string text(static_cast<std::size_t>(10 + 300 * (i % 2)),
                             static_cast<char>('a' + i));
      write_bytes(path, text);
      request.inputs.push_back(path);
      all += text + "|";
    }
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
      request.seed = seed;
      const auto report = prepare_dataset(request);
      REQUIRE(report);
      REQUIRE(report->documents == static_cast<std::uint64_t>(count));
      REQUIRE(report->train_tokens > 0);
      REQUIRE(report->val_tokens > 0);
      REQUIRE(report->train_tokens + report->val_tokens == all.size());
      if (!report->whole_documents) {
        REQUIRE(text_of(directory / "out/train.bin") + text_of(directory / "out/val.bin") == all);
      }
    }
  }
  write_bytes(directory / "one", "x");
  const auto report =
      prepare_dataset({.inputs = {directory / "one"}, .out = directory / "out", .force = true});
  REQUIRE(report);
  REQUIRE(report->train_tokens == 1);
  REQUIRE(report->val_tokens == 1);
}

TEST_CASE("prepare: separators across reading pieces are found", "[data][prepare]") {
  const TempDirectory directory;
  constexpr std::size_t piece = std::size_t{1} << 20;
  for (std::size_t shift = 0; shift <= 6; ++shift) {
    const std::string first(piece - shift, 'a');
    const std::string second(2 * piece + shift, 'b');
    write_bytes(directory / "in.txt", first + "=====" + second + "=====" + "=====" + "====");
    const auto documents = documents_of(directory / "in.txt", "=====");
    REQUIRE(documents.size() == 3);
    REQUIRE((documents[0] == first && documents[1] == second && documents[2] == "===="));
  }
  write_bytes(directory / "in.txt", "--a----b--");
  REQUIRE(documents_of(directory / "in.txt", "--") == std::vector<std::string>{"a", "b"});
  REQUIRE(documents_of(directory / "in.txt", "") == std::vector<std::string>{"--a----b--"});
}

TEST_CASE("prepare: jsonl lines are documents", "[data][prepare]") {
  const TempDirectory directory;
  const std::string deep(100'000, '[');
  write_bytes(
      directory / "in.jsonl",
      "{\"text\":\"one\\n\\u00e4\"}\n\n  \r\n{\"id\":[1,{\"text\":\"no\"}],\"text\":\"two\"}\n"
      "{\"text\":\"\"}\n{\"text\":\"three\"}");
  REQUIRE(documents_of(directory / "in.jsonl", "") ==
          std::vector<std::string>{"one\n\xc3\xa4", "two", "three"});
  std::string many;
  for (int i = 0; i < 50'000; ++i) {
    many += "{\"text\":\"document number " + std::to_string(i) + " with some text\"}\n";
  }
  write_bytes(directory / "in.jsonl", many);
  const auto documents = documents_of(directory / "in.jsonl", "");
  REQUIRE(documents.size() == 50'000);
  REQUIRE(documents[49'999] == "document number 49999 with some text");

  const std::vector<std::string> bad = {"{\"text\":\"a\"",
                                        "[\"text\"]",
                                        "\"text\"",
                                        "5",
                                        "{}",
                                        "{\"text\":5}",
                                        "{\"Text\":\"a\"}",
                                        "{\"text\":\"\xff\"}",
                                        "{\"a\":{\"text\":\"x\"}}",
                                        "{\"a\":" + deep};
  for (const std::string& line : bad) {
    INFO(line.substr(0, 40));
    write_bytes(directory / "in.jsonl", "{\"text\":\"fine\"}\n" + line + "\n{\"text\":\"x\"}\n");
    const Error error =
        prepare_error({.inputs = {directory / "in.jsonl"}, .out = directory / "out"});
    REQUIRE_THAT(error.message, Catch::Contains("in.jsonl:2"));
    REQUIRE_FALSE(std::filesystem::exists(directory / "out"));
  }
}

TEST_CASE("prepare: a line that is broken is counted by its cause, and does not end the reading",
          "[data][prepare][RW-3]") {
  const TempDirectory directory;
  const std::vector<std::pair<std::string, storage::LineFault>> broken = {
      {R"({"text": "hello \ud83d"})", storage::LineFault::half_surrogate},
      {R"({"text": "hello", "score": NaN})", storage::LineFault::no_number},
      {R"({"text": null})", storage::LineFault::null_text},
      {"{\"text\": \"a\xff\"}", storage::LineFault::bad_byte},
      {R"({"text": "hel)", storage::LineFault::cut_off},
      {"{\"text\": \"a\tb\"}", storage::LineFault::control},
      {R"({'text': 'hello'})", storage::LineFault::not_json},
      {"null", storage::LineFault::no_object},
      {R"({"body": "hello"})", storage::LineFault::no_text},
      {R"({"text": ["hello"]})", storage::LineFault::other_text},
      {R"({"text": ""})", storage::LineFault::empty_text}};
  std::string text;
  for (int i = 0; i < 1100; ++i) {
    const auto n = static_cast<std::size_t>(i);
    text += n % 100 == 0 ? broken[n / 100].first : R"({"text": "hello thanks"})";
    text += "\n";
  }
  // A name that says nothing: the second line tells that it is JSON.
  write_bytes(directory / "in.data", text);
  PrepareRequest request{.inputs = {directory / "in.data"}, .out = directory / "out"};
  write_bytes(directory / "tokenizer.json", test::small_tokenizer_json());
  for (const std::string& tokenizer :
       {std::string("bytes"), (directory / "tokenizer.json").string()}) {
    request.tokenizer = tokenizer;
    request.force = true;
    const auto report = prepare_dataset(request);
    REQUIRE(report.ok());
    CHECK(report->documents == 1089);
    CHECK(report->dropped_lines().size() == broken.size() + 1);  // and a heading
    for (std::size_t i = 0; i < broken.size(); ++i) {
      const storage::DropTally& tally =
          report->dropped.at(static_cast<std::size_t>(broken[i].second));
      CAPTURE(broken[i].first);
      CHECK(tally.lines == 1);
      CHECK_THAT(tally.first, Catch::EndsWith("in.data:" + std::to_string(100 * i + 1)));
    }
  }
  request.most_dropped = 0.005;
  CHECK_THAT(prepare_error(request).message,
             Catch::Contains("11 of 1100 lines (1.0 %)") && Catch::Contains("--max-dropped"));
  for (const auto& [line, fault] : broken) {
    CHECK_THAT(prepare_error(request).message,
               Catch::Contains("1 dropped: " + std::string(storage::line_fault_text(fault))));
  }
}

TEST_CASE("prepare: records of another kind end the reading soon, and say what to do",
          "[data][prepare]") {
  const TempDirectory directory;
  std::string text;
  for (int i = 0; i < 5000; ++i) {
    text += R"({"messages": []})"
            "\n";
  }
  write_bytes(directory / "in.jsonl", text);
  const PrepareRequest request{.inputs = {directory / "in.jsonl"}, .out = directory / "out"};
  CHECK_THAT(prepare_error(request).message, Catch::Contains("1000 dropped: no member \"text\"") &&
                                                 Catch::Contains("--row-length"));
}

TEST_CASE("prepare: records without a text have the advice that fits their members",
          "[data][prepare]") {
  const TempDirectory directory;
  const auto refusal = [&](const char* name, const std::string& bytes) {
    write_bytes(directory / name, bytes);
    return prepare_error({.inputs = {directory / name}, .out = directory / "out"}).message;
  };
  const std::string table = refusal("in.csv", "review,stars\ngood,5\nbad,1\n");
  CHECK_THAT(table, Catch::Contains("no member \"text\"") &&
                        Catch::Contains("its members \"review\", \"stars\"") &&
                        Catch::Contains("rename that one \"text\""));
  CHECK_THAT(table, !Catch::Contains("--row-length"));
  CHECK_THAT(refusal("pairs.csv", "chosen,rejected\na,b\n"), Catch::Contains("--row-length"));
}

TEST_CASE("prepare: a separator for what is no text is refused, and what to do is said",
          "[data][prepare]") {
  const TempDirectory directory;
  write_bytes(directory / "in.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
  write_bytes(directory / "in.csv", "text,label\none,1\ntwo,2\n");
  PrepareRequest request{.out = directory / "out", .document_separator = "--"};
  for (const auto& [name, holds] :
       {std::pair("in.jsonl", "records of JSON"), {"in.csv", "rows of a table"}}) {
    request.inputs = {directory / name};
    CHECK_THAT(prepare_error(request).message, Catch::Contains(name) && Catch::Contains(holds) &&
                                                   Catch::Contains("--document-separator") &&
                                                   Catch::Contains("--input-format text"));
    request.layout = storage::SaidLayout::text;  // The way out that it says.
    CHECK(prepare_dataset(request).ok());
    request.layout = storage::SaidLayout::nothing;
    request.force = true;
  }
}

TEST_CASE("prepare: bytes that are no UTF-8 are counted where they are tokens as they are",
          "[data][prepare]") {
  const TempDirectory directory;
  // As Latin-1 has it; a character over two pieces of reading is whole.
  std::string text = "caf\xe9 and na\xefve, ";
  text.resize((std::size_t{1} << 20) - 1, 'x');
  text += "\u00e9 \xf0\x9f\x98\x80 \xf0\x9f\x98";
  write_bytes(directory / "in.txt", text);
  const auto report = prepare_dataset({.inputs = {directory / "in.txt"}, .out = directory / "out"});
  REQUIRE(report.ok());
  CHECK(report->kept_breaks == 3);
  CHECK(report->replaced == 0);
}

TEST_CASE("prepare: an input is the same documents however it is packed and named",
          "[data][prepare]") {
  const TempDirectory directory;
  std::string lines;
  std::string table = "label,text\r\n";
  nlohmann::json array = nlohmann::json::array();
  std::vector<std::string> wanted;
  for (int i = 0; i < 500; ++i) {
    wanted.push_back("say \"" + std::to_string(i) + "\",\nand go on");
    array.push_back({{"text", wanted.back()}, {"label", i}});
    lines += array.back().dump() + "\n";
    table += std::to_string(i) + ",\"say \"\"" + std::to_string(i) + "\"\",\nand go on\"\r\n";
  }
  for (const auto& [name, bytes] : {std::pair("a.json", lines),
                                    {"a.NDJSON", lines},
                                    {"a", lines},
                                    {"b.jsonl", array.dump()},
                                    {"b.json", array.dump(2)},
                                    {"b.txt", "\xef\xbb\xbf" + array.dump(1)},
                                    {"c.CSV", table},
                                    {"c.txt", "\xef\xbb\xbf" + table}}) {
    CAPTURE(name);
    write_bytes(directory / name, bytes);
    REQUIRE(documents_of(directory / name, "") == wanted);
  }
}

TEST_CASE("prepare: mistakes are named, and nothing is written", "[data][prepare]") {
  const TempDirectory directory;
  write_bytes(directory / "in.txt", "some text");
  write_bytes(directory / "empty.txt", "");
  const auto out = directory / "out";
  const auto in = directory / "in.txt";
  REQUIRE_THAT(prepare_error({.inputs = {}, .out = out}).message, Catch::Contains("--input"));
  REQUIRE_THAT(prepare_error({.inputs = {in, directory / "none.txt"}, .out = out}).message,
               Catch::Contains("none.txt"));
  REQUIRE_THAT(prepare_error({.inputs = {directory.path()}, .out = out}).message,
               Catch::Contains("not a regular file"));
  REQUIRE_THAT(prepare_error({.inputs = {directory / "empty.txt"}, .out = out}).message,
               Catch::Contains("empty.txt") && Catch::Contains("no text"));
  REQUIRE_THAT(prepare_error({.inputs = {in}, .tokenizer = "gpt2", .out = out}).message,
               Catch::Contains("gpt2"));
  for (const double fraction : {0.0, 1.0, -1.0, 2.0, std::nan("")}) {
    REQUIRE_THAT(prepare_error({.inputs = {in}, .out = out, .val_fraction = fraction}).message,
                 Catch::Contains("--val-fraction"));
  }
  REQUIRE_THAT(prepare_error({.inputs = {in}, .out = in / "below"}).message,
               Catch::Contains("in.txt"));
  REQUIRE_FALSE(std::filesystem::exists(out));
}

TEST_CASE("prepare: other data is replaced only when told", "[data][prepare][ST-6]") {
  const TempDirectory directory;
  write_bytes(directory / "in.txt", std::string(100, 'n'));
  std::filesystem::create_directory(directory / "out");
  write_bytes(directory / "out/train_0001.bin", "old!");
  write_bytes(directory / "out/notes.txt", "mine");
  write_bytes(directory / "out/.val.bin.tmp-1-2", "left by a killed process");
  PrepareRequest request{.inputs = {directory / "in.txt"}, .out = directory / "out"};
  REQUIRE_THAT(prepare_error(request).message,
               Catch::Contains("train_0001.bin") && Catch::Contains("--force"));
  REQUIRE(read_bytes(directory / "out/train_0001.bin") == "old!");
  request.force = true;
  REQUIRE(prepare_dataset(request));
  REQUIRE(test::names_in(directory / "out") == std::vector<std::string>{".prepare.lock",
                                                                        "meta.json", "notes.txt",
                                                                        "train.bin", "val.bin"});
}

TEST_CASE("prepare: memory does not grow with a document", "[data][prepare][.full]") {
  const TempDirectory directory;
  {
    std::ofstream file(directory / "big.txt", std::ios::binary);
    const std::string piece(std::size_t{1} << 20, 'x');
    for (int i = 0; i < 400; ++i) {
      file << piece;
    }
  }
  rusage before{};
  ::getrusage(RUSAGE_SELF, &before);
  const auto report = prepare_dataset({.inputs = {directory / "big.txt"},
                                       .out = directory / "out",
                                       .document_separator = "never there"});
  rusage after{};
  ::getrusage(RUSAGE_SELF, &after);
  REQUIRE(report);
  REQUIRE(report->train_tokens + report->val_tokens == (std::uint64_t{400} << 20) + 1);
  REQUIRE(after.ru_maxrss - before.ru_maxrss < 64 * 1024);  // KiB
}

TEST_CASE("prepare: killed at any call it leaves old data, new data or none, and is made anew",
          "[data][prepare][.full][ST-6]") {
  const TempDirectory directory;
  write_bytes(directory / "tokenizer.json", test::fixture_file("gpt2").dump());
  write_bytes(directory / "tokenizer_config.json", R"({"eos_token": "</s>"})");
  write_bytes(directory / "old.txt", "the old text.the old text once more.and the end");
  write_bytes(directory / "new.txt", "another one.of which there is more.than before.a b c");
  for (const std::string& tokenizer : {std::string("bytes"), directory.path().string()}) {
    CAPTURE(tokenizer);
    const auto request = [&](const char* input, const std::filesystem::path& out) {
      return PrepareRequest{.inputs = {directory / input},
                            .tokenizer = tokenizer,
                            .out = out,
                            .document_separator = ".",
                            .force = true};
    };
    REQUIRE(prepare_dataset(request("old.txt", directory / "first")));
    REQUIRE(prepare_dataset(request("new.txt", directory / "second")));
    const auto old_files = data_files(directory / "first");
    const auto new_files = data_files(directory / "second");
    REQUIRE(old_files != new_files);
    int number = 1;
    int refused = 0;
    for (;; ++number) {
      CAPTURE(number);
      const TempDirectory place;
      REQUIRE(prepare_dataset(request("old.txt", place / "out")));
      PrepareRequest again = request("new.txt", place / "out");
      if (!killed_at_call(again, number)) {
        break;
      }
      if (const auto facts = read_dataset_facts(place / "out")) {
        auto left = data_files(place / "out");
        std::erase_if(left, [](const auto& file) { return file.first.starts_with('.'); });
        REQUIRE((left == old_files || left == new_files));
      } else {
        REQUIRE_THAT(facts.error().message, Catch::Contains("run it again"));
        again.force = false;
        ++refused;
      }
      REQUIRE(prepare_dataset(again));
      REQUIRE(data_files(place / "out") == new_files);
    }
    REQUIRE(refused > 5);
    REQUIRE(number > refused + 5);
  }
}
