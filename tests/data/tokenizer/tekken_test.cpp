// Mistral's tekken.json against the ids that mistral-common gives.
#include <catch2/catch.hpp>
#include <fstream>
#include <string>

#include "tests/data/tokenizer/tokenizer_fixture.hpp"
#include "tests/support/disks/temp_directory.hpp"

using namespace train;
using namespace train::data;
using test::Ids;
using test::TempDirectory;

namespace {

const nlohmann::json& tekken_fixture() {
  static const nlohmann::json fixture = test::read_fixture("tekken.json");
  return fixture;
}

Result<Tokenizer> load_text(const std::string& text) {
  const TempDirectory directory;
  std::ofstream(directory.path() / "tekken.json", std::ios::binary) << text;
  return Tokenizer::load(directory.path());
}

}  // namespace

TEST_CASE("tekken: ids are the reference's", "[data][tokenizer][TK-1]") {
  for (const auto& one : tekken_fixture().at("files")) {
    const auto tokenizer = load_text(one.at("file").dump());
    CAPTURE(tokenizer.ok() ? std::string() : tokenizer.error().message);
    REQUIRE(tokenizer.ok());
    CHECK(tokenizer->end_of_text() == one.at("end").get<std::uint32_t>());
    const auto& texts = tekken_fixture().at("texts");
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const auto text = texts[i].get<std::string>();
      CAPTURE(i, text);
      auto expected = one.at("ids")[i].get<Ids>();
      CHECK(test::encoded(*tokenizer, text) == expected);
      CHECK(tokenizer->decode(expected, true) == text);
      expected.insert(expected.begin(), one.at("begin").get<std::uint32_t>());
      CHECK(test::encoded(*tokenizer, text, /*special=*/true) == expected);
    }
  }
}

TEST_CASE("tekken: special tokens have their names, and are found in rendered text alone",
          "[data][tokenizer]") {
  for (const auto& one : tekken_fixture().at("files")) {
    const auto tokenizer = load_text(one.at("file").dump());
    REQUIRE(tokenizer.ok());
    const auto& specials = one.at("specials");
    for (std::uint32_t id = 0; id < specials.size(); ++id) {
      const auto name = specials[id].get<std::string>();
      CAPTURE(id, name);
      CHECK(tokenizer->token_text(id) == name);
      CHECK(tokenizer->is_special(id));
      const std::string text = "the" + name + " water";
      const auto rendered = tokenizer->encode_with_spans(text, {.rendered = true});
      REQUIRE(rendered.ok());
      REQUIRE(rendered->ids.size() == 3);
      CHECK(rendered->ids[1] == id);
      CHECK(rendered->spans[1] ==
            storage::TokenSpan{3, static_cast<std::uint32_t>(3 + name.size())});
      CHECK(test::encoded(*tokenizer, text) != rendered->ids);
    }
  }
}

TEST_CASE("tekken: what is wrong with a file is said in one line", "[data][tokenizer]") {
  const nlohmann::json whole = tekken_fixture().at("files")[1].at("file");
  const auto refused = [](const nlohmann::json& file, const char* word) {
    const auto tokenizer = load_text(file.dump());
    CAPTURE(word);
    REQUIRE_FALSE(tokenizer.ok());
    CAPTURE(tokenizer.error().message);
    CHECK(tokenizer.error().kind == ErrorKind::user);
    CHECK(tokenizer.error().message.find('\n') == std::string::npos);
    CHECK(tokenizer.error().message.find(word) != std::string::npos);
  };
  nlohmann::json file = whole;
  file["vocab"][270]["rank"] = 7;
  refused(file, "vocab");
  file = whole;
  file["vocab"][260]["token_bytes"] = "not base64";
  refused(file, "entry 260");
  file = whole;
  file["vocab"][260]["token_bytes"] = file["vocab"][261]["token_bytes"];
  refused(file, "twice");
  file = whole;
  file["config"]["default_vocab_size"] = 1'000'000'000'000;
  refused(file, "default_vocab_size");
  file = whole;
  file["config"]["pattern"] = "(";
  refused(file, "config.pattern");
  file = whole;
  file["special_tokens"][1]["rank"] = 0;
  refused(file, "special token");
  refused(nlohmann::json::array(), "config");
  const auto broken = load_text(whole.dump().substr(0, 400));
  REQUIRE_FALSE(broken.ok());
  CHECK(broken.error().message.find("not JSON") != std::string::npos);
}
