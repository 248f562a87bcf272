#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <string>
#include <vector>

#include "data/tokenizer/formats/sentencepiece/sentencepiece_model.hpp"
#include "data/tokenizer/formats/sentencepiece/sentencepiece_writer.hpp"
#include "data/tokenizer/tokenizer.hpp"
#include "storage/text/utf8.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/inputs/sentencepiece_fixture.hpp"

using namespace train;
using namespace train::data;
using train::test::sentencepiece_fixture;
using train::test::sentencepiece_model;
using train::test::TempDirectory;

namespace {

using Ids = std::vector<std::uint32_t>;

Result<Tokenizer> load_bytes(const std::string& bytes) {
  const TempDirectory directory;
  const auto path = directory.path() / "tokenizer.model";
  std::ofstream(path, std::ios::binary) << bytes;
  return Tokenizer::load(path);
}

std::uint32_t characters_before(std::string_view text, std::size_t end) {
  return static_cast<std::uint32_t>(
      std::count_if(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end),
                    [](char byte) { return !storage::continues(byte); }));
}

}  // namespace

TEST_CASE("sentencepiece: ids and texts are the reference's", "[data][tokenizer][TK-1]") {
  for (const auto& [name, expected] : sentencepiece_fixture().at("models").items()) {
    const auto tokenizer = load_bytes(sentencepiece_model(name));
    CAPTURE(name, tokenizer.ok() ? std::string() : tokenizer.error().message);
    REQUIRE(tokenizer.ok());
    const auto& texts = sentencepiece_fixture().at("texts");
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const auto text = texts[i].get<std::string>();
      CAPTURE(i, text);
      const auto ids = tokenizer->encode(text, /*add_special_tokens=*/false);
      REQUIRE(ids.ok());
      CHECK(*ids == expected.at("ids")[i].get<Ids>());
      CHECK(tokenizer->decode(*ids, /*skip_special=*/true) ==
            expected.at("decoded")[i].get<std::string>());
      const auto begun = tokenizer->encode(text, /*add_special_tokens=*/true);
      REQUIRE(begun.ok());
      Ids framed = *ids;
      if (!expected.contains("long")) {  // Of BPE: Llama and its kin.
        framed.insert(framed.begin(), expected.at("begin").get<std::uint32_t>());
      }
      CHECK(*begun == framed);
    }
  }
}

TEST_CASE("sentencepiece: a long text's likeliest pieces are the reference's, by its rounding",
          "[data][tokenizer][TK-1]") {
  for (const auto& [name, expected] : sentencepiece_fixture().at("models").items()) {
    if (!expected.contains("long")) {
      continue;
    }
    const auto tokenizer = load_bytes(sentencepiece_model(name));
    REQUIRE(tokenizer.ok());
    for (const auto& [key, parts] : sentencepiece_fixture().at("long_texts").items()) {
      CAPTURE(name, key);
      std::string text;
      for (int i = 0; i < parts[1].get<int>(); ++i) {
        text += parts[0].get<std::string>();
      }
      const auto ids = tokenizer->encode(text, /*add_special_tokens=*/false);
      REQUIRE(ids.ok());
      std::uint64_t checksum = 0xcbf29ce484222325;
      for (const std::uint32_t id : *ids) {
        checksum = (checksum ^ id) * 0x100000001b3;
      }
      CHECK(ids->size() == expected.at("long").at(key)[0].get<std::size_t>());
      CHECK(checksum == expected.at("long").at(key)[1].get<std::uint64_t>());
    }
  }
}

TEST_CASE("sentencepiece: spans of likeliest pieces cover the text", "[data][tokenizer]") {
  const auto tokenizer = load_bytes(sentencepiece_model("unigram_bytes"));
  REQUIRE(tokenizer.ok());
  const auto encoded = tokenizer->encode_with_spans("the ship \U0001f600\u8239ab", {});
  REQUIRE(encoded.ok());
  REQUIRE(encoded->ids.size() == encoded->spans.size());
  std::uint32_t reached = 0;
  for (const storage::TokenSpan& span : encoded->spans) {
    CHECK(span.first <= reached);
    CHECK(span.last >= span.first);
    reached = std::max(reached, span.last);
  }
  CHECK(reached == std::string_view("the ship \U0001f600\u8239ab").size());
  // The bytes of a character without a piece stand for all of it.
  CHECK(std::count(encoded->spans.begin(), encoded->spans.end(), storage::TokenSpan{9, 13}) == 4);
}

TEST_CASE("sentencepiece: rendered text has control pieces, as the reference finds them",
          "[data][tokenizer][TK-1]") {
  const auto& fixture = sentencepiece_fixture().at("rendered");
  const auto& texts = sentencepiece_fixture().at("texts");
  for (const auto& [name, legacy] : {std::pair("first", false), std::pair("each", true)}) {
    const TempDirectory directory;
    std::ofstream(directory.path() / "tokenizer.model", std::ios::binary)
        << sentencepiece_model(fixture.at("model"));
    std::ofstream(directory.path() / "tokenizer_config.json")
        << nlohmann::json{{"legacy", legacy}}.dump();
    const auto tokenizer = Tokenizer::load(directory.path());
    REQUIRE(tokenizer.ok());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const auto text = texts[i].get<std::string>();
      CAPTURE(name, i, text);
      const auto encoded = tokenizer->encode_with_spans(text, {.rendered = true});
      REQUIRE(encoded.ok());
      CHECK(encoded->ids == fixture.at(name)[i][0].get<Ids>());
      std::vector<std::uint32_t> edges;
      for (const storage::TokenSpan& span : encoded->spans) {
        edges.push_back(characters_before(text, span.first));
        edges.push_back(characters_before(text, span.last));
      }
      CHECK(edges == fixture.at(name)[i][1].get<Ids>());
    }
  }
}

TEST_CASE("sentencepiece: a model that was written again is the same", "[data][tokenizer]") {
  for (const auto& [name, expected] : sentencepiece_fixture().at("models").items()) {
    CAPTURE(name);
    const std::string bytes = sentencepiece_model(name);
    const auto model = parse_sentencepiece_model(bytes);
    REQUIRE(model.ok());
    const std::string written = sentencepiece_file(*model);
    CHECK(is_sentencepiece_model(written));
    const auto again = parse_sentencepiece_model(written);
    REQUIRE(again.ok());
    REQUIRE(again->pieces.size() == model->pieces.size());
    for (std::size_t id = 0; id < model->pieces.size(); ++id) {
      const auto& piece = again->pieces[id];
      CHECK(piece.text == model->pieces[id].text);
      CHECK(piece.score == model->pieces[id].score);
      CHECK(piece.type == model->pieces[id].type);
    }
    const auto tokenizer = load_bytes(written);
    REQUIRE(tokenizer.ok());
    const auto& texts = sentencepiece_fixture().at("texts");
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const auto ids = tokenizer->encode(texts[i].get<std::string>(), false);
      REQUIRE(ids.ok());
      CHECK(*ids == expected.at("ids")[i].get<Ids>());
      CHECK(tokenizer->decode(*ids, true) == expected.at("decoded")[i].get<std::string>());
    }
  }
}

TEST_CASE("sentencepiece: a file that breaks off anywhere is refused, or a smaller model",
          "[data][tokenizer]") {
  const std::string whole = sentencepiece_model("bytes");
  std::size_t refused = 0;
  for (std::size_t length = 0; length < whole.size(); length += 13) {
    const auto tokenizer = load_bytes(whole.substr(0, length));
    if (tokenizer.ok()) {
      CHECK(tokenizer->encode("the ship", false).ok());
    } else {
      CHECK(tokenizer.error().kind == ErrorKind::user);
      CHECK(tokenizer.error().message.find('\n') == std::string::npos);
      ++refused;
    }
  }
  CHECK(refused > 0);
}

TEST_CASE("sentencepiece: what it is not is said in one line", "[data][tokenizer]") {
  // The model's kind: field 3 of message 2, 2 for BPE, 3 for whole words.
  std::string words = sentencepiece_model("bytes");
  const std::size_t kind = words.rfind(std::string("\x18\x02", 2));
  REQUIRE(kind != std::string::npos);
  words[kind + 1] = '\x03';
  const auto other = load_bytes(words);
  REQUIRE_FALSE(other.ok());
  CHECK(other.error().message.find("whole words") != std::string::npos);
  // A length that no file has.
  const auto hostile = load_bytes(std::string("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 10));
  REQUIRE_FALSE(hostile.ok());
  CHECK(hostile.error().kind == ErrorKind::user);
}
