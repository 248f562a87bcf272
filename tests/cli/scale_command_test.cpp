#include "cli/report/scale_report.hpp"

#include <fmt/format.h>

#include <any>
#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "cli/options.hpp"
#include "configs/load_config.hpp"

namespace train::cli::scale_command_test {
namespace {

Result<Command> parsed(std::vector<const char*> words) {
  words.insert(words.begin(), {"actortrain", "scale"});
  return parse(static_cast<int>(words.size()), words.data());
}

ScaleOptions accepted(const std::vector<const char*>& words) {
  const auto command = parsed(words);
  INFO((command.ok() ? "" : command.error().message));
  REQUIRE(command.ok());
  REQUIRE(std::any_cast<ScaleOptions>(&command->options) != nullptr);
  return std::any_cast<ScaleOptions>(command->options);
}

std::string refused(const std::vector<const char*>& words) {
  const auto command = parsed(words);
  REQUIRE_FALSE(command.ok());
  CHECK(command.error().exit_code() == kExitUserError);
  return command.error().message;
}

nlohmann::json json_of(const std::vector<const char*>& words) {
  ScaleOptions options = accepted(words);
  options.json = true;
  const auto text = describe_scaling(options);
  REQUIRE(text.ok());
  return nlohmann::json::parse(*text);
}

TEST_CASE("scale: takes numbers, lists and ranges of heads", "[actors][cli][scale]") {
  const auto heads = [](const char* text) {
    return accepted({"--arch", "enoki", "--optimizer", "adamw", "--heads", text}).heads;
  };
  using List = std::vector<std::int64_t>;
  CHECK(heads("6") == List{6});
  CHECK(heads("3..6") == List{3, 4, 5, 6});
  CHECK(heads("3,8..9,12") == List{3, 8, 9, 12});
  CHECK(heads("1..1024").size() == 1024);
  for (const char* bad :
       {"", "0", "-3", "3..", "..3", "6..3", "3,,4", "3,", "1025", "3...5", "x"}) {
    CAPTURE(bad);
    CHECK(refused({"--arch", "enoki", "--optimizer", "adamw", "--heads", bad})
              .find("--heads wants numbers 1 .. 1024") != std::string::npos);
  }
}

TEST_CASE("scale: options out of range are refused", "[actors][cli][scale]") {
  const std::vector<const char*> good = {"--arch", "enoki", "--optimizer", "adamw", "--heads", "3"};
  const auto with = [&](const char* option, const char* value) {
    auto words = good;
    words.insert(words.end(), {option, value});
    return refused(words);
  };
  const ScaleOptions plain = accepted(good);
  CHECK(plain.kappa == 0.85);
  CHECK(plain.batch == 32);
  CHECK(plain.sequence_length == 2048);
  CHECK(plain.params == "total");
  CHECK_FALSE(plain.json);
  CHECK(with("--kappa", "nan").find("--kappa must be 0 or more") != std::string::npos);
  CHECK(with("--omega", "-1").find("--omega must be 0 or more") != std::string::npos);
  CHECK(with("--batch", "0").find("--batch must be 1 ..") != std::string::npos);
  CHECK(with("--params", "all").find("total or non_embedding") != std::string::npos);
  CHECK(with("--tokens-per-parameter", "0").find("above 0") != std::string::npos);
  CHECK(refused({"--arch", "enoki", "--heads", "3"}).find("--optimizer") != std::string::npos);
}

TEST_CASE("scale: the numbers are those a run gets", "[actors][scale]") {
  const auto list = json_of({"--arch", "enoki", "--optimizer", "adamw", "--heads", "3..8"});
  REQUIRE(list.size() == 6);
  for (const auto& row : list) {
    const auto config = configs::parse_config(
        fmt::format(
            "[run]\nname = \"a\"\n[data]\ndir = \"d\"\nsequence_length = 2048\n"
            "[batch]\nlanes = 8\nmicro_batch = 4\n[scaling]\nrule = \"enoki\"\nheads = {}\n",
            row.at("heads").get<int>()),
        "a.toml");
    REQUIRE(config.ok());
    CHECK(row.at("layers") == config->model.layers);
    CHECK(row.at("head_dim") == config->model.head_dim);
    CHECK(row.at("embedding_dim") == config->model.embedding_dim);
    CHECK(row.at("mlp_hidden") == config->model.mlp_hidden);
    CHECK(row.at("lr") == config->optimizer.lr);
    CHECK(row.at("steps") == config->run.steps);
    CHECK(row.at("weight_decay") == config->optimizer.weight_decay);
    CHECK_FALSE(row.contains("wd_ts"));
  }
}

TEST_CASE("scale: kappa, the batch and what is counted matter", "[actors][scale]") {
  const auto adana = json_of({"--arch", "enoki", "--optimizer", "adana", "--heads", "3"})[0];
  CHECK(adana.at("steps") == 6165);
  CHECK(adana.at("wd_ts") == 616);
  CHECK(adana.at("weight_decay").get<double>() == 4.0 / 616);
  CHECK(adana.at("non_embedding") == 884736);
  CHECK(adana.at("lr").get<double>() == Approx(.004389).epsilon(1e-3));
  const auto kappa =
      json_of({"--arch", "enoki", "--optimizer", "adana", "--heads", "3", "--kappa", "0.75"})[0];
  CHECK(kappa.at("lr").get<double>() ==
        Approx(12.7 * std::pow(9.55e3 + 884736, -.624)).epsilon(1e-12));
  const auto large =
      json_of({"--arch", "enoki", "--optimizer", "adana", "--heads", "3", "--batch", "512"})[0];
  CHECK(large.at("steps") == 385);
  CHECK(large.at("lr").get<double>() ==
        Approx(85.3 * std::pow(3.04e4 + 884736, -.654)).epsilon(1e-12));
  const auto inner = json_of(
      {"--arch", "enoki", "--optimizer", "adana", "--heads", "3", "--params", "non_embedding"})[0];
  CHECK(inner.at("steps") == 270);
}

TEST_CASE("scale: prints a line for each number of heads", "[actors][scale]") {
  const auto text = describe_scaling(
      accepted({"--arch", "qwen3", "--optimizer", "dana-mk4", "--heads", "2,6,12"}));
  REQUIRE(text.ok());
  std::istringstream lines(*text);
  std::vector<std::string> all;
  for (std::string line; std::getline(lines, line);) {
    CHECK(line.size() == 119);
    all.push_back(line);
  }
  REQUIRE(all.size() == 4);
  CHECK(all[0].find("embedding_dim") != std::string::npos);
  CHECK(all[2].starts_with("    6     12      128           768       2304      84934656"));
}

TEST_CASE("scale: mistakes are one line", "[actors][scale]") {
  const auto error = [](const std::vector<const char*>& words) {
    const auto text = describe_scaling(accepted(words));
    REQUIRE_FALSE(text.ok());
    CHECK(text.error().exit_code() == 2);
    CHECK(text.error().message.find('\n') == std::string::npos);
    return text.error().message;
  };
  CHECK(error({"--arch", "enok", "--optimizer", "adamw", "--heads", "3"})
            .find("did you mean \"enoki\"?") != std::string::npos);
  CHECK(error({"--arch", "qwen3", "--optimizer", "ademamix", "--heads", "3"})
            .find("qwen3 with adamw, adana, dana-mk4, dana-star-mk4") != std::string::npos);
  CHECK(error({"--arch", "enoki", "--optimizer", "adamw", "--heads", "1..3"})
            .find("1 heads give no layer") != std::string::npos);
  CHECK(error({"--arch", "enoki", "--optimizer", "adamw", "--heads", "3", "--table", "/nowhere"})
            .starts_with("/nowhere: cannot be read"));
}

}  // namespace
}  // namespace train::cli::scale_command_test
