// A tuned model stops where its data ends an assistant's turn.

#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "data/rows/row_facts.hpp"
#include "run/model/model_files.hpp"
#include "tests/support/disks/temp_directory.hpp"

namespace train::run {
namespace {

namespace fs = std::filesystem;

/// A run with its copy of a model, on data whose turns end with the tokens 9 and 4.
struct TunedSite {
  test::TempDirectory directory;
  fs::path model = directory.path() / "run" / "model";
  configs::RunConfig config;

  TunedSite() {
    fs::create_directories(model);
    fs::create_directory(directory.path() / "data");
    config.data.dir = (directory.path() / "data").string();
    data::RowFacts facts;
    facts.kind = "chat";
    facts.end_of_text = 2;
    facts.turn_ends = {9, 4};
    facts.row_length = 16;
    REQUIRE(data::write_row_facts(config.data.dir, facts));
  }
  void write(const char* name, const std::string& text) const {
    test::write_bytes(model / name, text);
  }
  /// generation_config.json behind keep_turn_ends().
  [[nodiscard]] nlohmann::json kept() const {
    REQUIRE(keep_turn_ends(config, directory.path() / "run"));
    return nlohmann::json::parse(test::read_bytes(model / "generation_config.json"));
  }
};

}  // namespace

TEST_CASE("turn ends: a run's model stops where its data ends turns, too", "[run][model_files]") {
  const TunedSite site;
  site.write("config.json", R"({"eos_token_id": 2, "bos_token_id": 1, "vocab_size": 20})");
  using Json = nlohmann::json;
  CHECK(site.kept() ==
        Json({{"_from_model_config", true}, {"bos_token_id", 1}, {"eos_token_id", {2, 9, 4}}}));
  // The model's own file goes before, and keeps the rest of what it says.
  site.write("generation_config.json", R"({"eos_token_id": 4, "temperature": 0.5})");
  CHECK(site.kept() == Json({{"eos_token_id", {4, 9}}, {"temperature", 0.5}}));
  CHECK(site.kept() == Json({{"eos_token_id", {4, 9}}, {"temperature", 0.5}}));
  site.write("generation_config.json", "{");
  const Status refused = keep_turn_ends(site.config, site.directory.path() / "run");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().exit_code() == 2);
}

TEST_CASE("turn ends: a model that names none stops at the data's end of text first",
          "[run][model_files]") {
  const TunedSite site;
  site.write("config.json", R"({"vocab_size": 20})");
  CHECK(site.kept().at("eos_token_id") == nlohmann::json({2, 9, 4}));
}

TEST_CASE("turn ends: data of texts, and a run without files of a model, change nothing",
          "[run][model_files]") {
  TunedSite site;
  REQUIRE(keep_turn_ends(site.config, site.directory.path() / "run"));
  CHECK_FALSE(fs::exists(site.model / "generation_config.json"));
  site.write("config.json", R"({"eos_token_id": 2})");
  site.config.data.dir = (site.directory.path() / "run").string();
  REQUIRE(keep_turn_ends(site.config, site.directory.path() / "run"));
  CHECK_FALSE(fs::exists(site.model / "generation_config.json"));
}

TEST_CASE("turn ends: a run's model has the chat template of its data", "[run][model_files]") {
  TunedSite site;
  site.write("config.json", R"({"eos_token_id": 2})");
  site.write("tokenizer_config.json", R"({"chat_template": "the model's", "eos_token": "</s>"})");
  const auto run = site.directory.path() / "run";
  // Texts have none.
  REQUIRE(keep_chat_template(site.config, run));
  CHECK_FALSE(fs::exists(site.model / "chat_template.jinja"));
  auto facts = data::read_row_facts(site.config.data.dir);
  REQUIRE(facts.ok());
  facts->chat_template = "chatml";
  REQUIRE(data::write_row_facts(site.config.data.dir, *facts));
  fs::create_directory(site.directory / "data/tokenizer");
  test::write_bytes(site.directory / "data/tokenizer/chat_template.jinja", "the data's");
  for (int start = 0; start < 2; ++start) {
    REQUIRE(keep_chat_template(site.config, run));
    CHECK(test::read_bytes(site.model / "chat_template.jinja") == "the data's");
    CHECK(nlohmann::json::parse(test::read_bytes(site.model / "tokenizer_config.json")) ==
          nlohmann::json({{"eos_token", "</s>"}}));
  }
  // A run goes on where the template is gone.
  fs::remove_all(site.directory / "data/tokenizer");
  CHECK(keep_chat_template(site.config, run));
  CHECK(test::read_bytes(site.model / "chat_template.jinja") == "the data's");
}

}  // namespace train::run
