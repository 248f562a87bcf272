#include "configs/scaling/scaling.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "configs/fields/field_table.hpp"
#include "configs/load_config.hpp"

namespace train::configs::scaling_test {
namespace {

const char* const kRules = ACTORTRAIN_SOURCE_DIR "/configs/scaling_rules.toml";

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

ScalingTable built_in() {
  auto table = load_scaling_table("");
  REQUIRE(table.ok());
  return std::move(table).value();
}

double lr_of(const ScalingTable& table, const char* rule, const char* optimizer, std::int64_t heads,
             double kappa = 0.85, std::int64_t sequences = 32) {
  const ScalingRule& found = *table.find(rule);
  const auto model = scaled_model(found, heads);
  REQUIRE(model.ok());
  const auto lr =
      scaled_lr(table, found, {.optimizer = optimizer, .kappa = kappa, .sequences = sequences},
                model->non_embedding);
  REQUIRE(lr.ok());
  return *lr;
}

/// A number printed with four digits, the last one rounded.
void check_printed(double value, double printed) {
  CHECK(std::abs(value - printed) <= 0.51e-3 * std::pow(10.0, std::floor(std::log10(printed))));
}

/// One line of text of a run; `more` are its other sections.
Result<RunConfig> parsed(const std::string& scaling, const std::string& more = "",
                         const std::vector<std::string>& set = {}) {
  return parse_config(fmt::format("[run]\nname = \"a\"\n[data]\ndir = \"d\"\n"
                                  "sequence_length = 2048\n[batch]\nlanes = 4\nmicro_batch = 8\n"
                                  "[scaling]\n{}\n{}",
                                  scaling, more),
                      "a.toml", set);
}

std::string error_of(const Result<RunConfig>& config) {
  REQUIRE_FALSE(config.ok());
  CHECK(config.error().exit_code() == 2);
  CHECK(config.error().message.find('\n') == std::string::npos);
  return config.error().message;
}

struct EnokiRow {
  std::int64_t heads, embedding_dim, layers, mlp_hidden, non_embedding, steps, steps_of_total;
  std::vector<double> lr;  ///< adamw, adana, dana-mk4, dana-star, ademamix, d-muon
};

const std::vector<EnokiRow> kEnoki = {
    {3, 192, 2, 768, 884736, 270, 6165, {.01098, .004389, .004252, .004269, .004584, .00707}},
    {4, 256, 3, 1024, 2359296, 720, 8580, {.006663, .002513, .002314, .003264, .002806, .004772}},
    {6, 384, 4, 1536, 7077888, 2160, 13950, {.003793, .001301, .001165, .001982, .001616, .003038}},
    {8,
     512,
     6,
     2048,
     18874368,
     5760,
     21480,
     {.002291, .0007144, .0006303, .001104, .000987, .002022}},
    {12,
     768,
     9,
     3072,
     63700992,
     19440,
     43020,
     {.001225, .0003378, .0002941, .0004858, .0005354, .001219}},
    {16,
     1024,
     12,
     4096,
     150994944,
     46080,
     77520,
     {.0007853, .0001983, .0001712, .0002641, .0003469, .0008506}},
    {24,
     1536,
     18,
     6144,
     509607936,
     155520,
     202680,
     {.0004197, 9.355e-5, 7.985e-5, 1.104e-4, 1.881e-4, 5.123e-4}},
    {40,
     2560,
     30,
     10240,
     2359296000,
     720000,
     798600,
     {.0001906, 3.629e-5, 3.055e-5, 3.648e-5, 8.703e-5, 2.704e-4}}};

TEST_CASE("scaling: enoki's dimensions, steps and learning rates by heads", "[configs][scaling]") {
  const ScalingTable table = built_in();
  const ScalingRule& rule = *table.find("enoki");
  const char* const optimizers[] = {"adamw",     "adana",    "dana-mk4",
                                    "dana-star", "ademamix", "d-muon"};
  for (const EnokiRow& row : kEnoki) {
    CAPTURE(row.heads);
    const auto model = scaled_model(rule, row.heads);
    REQUIRE(model.ok());
    CHECK(model->heads == row.heads);
    CHECK(model->head_dim == 64);
    CHECK(model->embedding_dim == row.embedding_dim);
    CHECK(model->layers == row.layers);
    CHECK(model->mlp_hidden == row.mlp_hidden);
    CHECK(model->non_embedding == row.non_embedding);
    CHECK(scaled_steps(model->non_embedding, 20.0, 65536) == row.steps);
    CHECK(scaled_steps(model->total, 20.0, 65536) == row.steps_of_total);
    for (std::size_t i = 0; i < row.lr.size(); ++i) {
      CAPTURE(optimizers[i]);
      check_printed(lr_of(table, "enoki", optimizers[i], row.heads), row.lr[i]);
    }
    CHECK(lr_of(table, "enoki", "dana-star-mk4", row.heads) ==
          lr_of(table, "enoki", "dana-star", row.heads));
  }
}

TEST_CASE("scaling: qwen3's dimensions and learning rates by heads", "[configs][scaling]") {
  struct Row {
    std::int64_t heads, embedding_dim, layers, mlp_hidden, non_embedding;
    double adamw, dana_star_mk4, adana;
  };
  const ScalingTable table = built_in();
  for (const Row& row : {Row{2, 256, 4, 768, 3145728, .04502, .002607, 8.031e-4},
                         Row{6, 768, 12, 2304, 84934656, .002583, 2.596e-4, 1.307e-4},
                         Row{12, 1536, 24, 4608, 679477248, 4.207e-4, 6.044e-5, 4.139e-5}}) {
    CAPTURE(row.heads);
    const auto model = scaled_model(*table.find("qwen3"), row.heads);
    REQUIRE(model.ok());
    CHECK(model->head_dim == 128);
    CHECK(model->embedding_dim == row.embedding_dim);
    CHECK(model->layers == row.layers);
    CHECK(model->mlp_hidden == row.mlp_hidden);
    CHECK(model->non_embedding == row.non_embedding);
    CHECK(model->total == row.non_embedding + 2 * 50304 * row.embedding_dim);
    check_printed(lr_of(table, "qwen3", "adamw", row.heads), row.adamw);
    check_printed(lr_of(table, "qwen3", "dana-star-mk4", row.heads), row.dana_star_mk4);
    check_printed(lr_of(table, "qwen3", "adana", row.heads), row.adana);
  }
}

TEST_CASE("scaling: kappa and the batch choose the formula", "[configs][scaling]") {
  const ScalingTable table = built_in();
  const double p = 884736.0;
  const auto enoki = [&](const char* optimizer, double kappa, std::int64_t sequences) {
    return lr_of(table, "enoki", optimizer, 3, kappa, sequences);
  };
  CHECK(enoki("adana", 0.75, 32) == Approx(12.7 * std::pow(9.55e3 + p, -.624)).epsilon(1e-14));
  CHECK(enoki("adana", 0.80, 32) == Approx(17.6 * std::pow(3.66e4 + p, -.624)).epsilon(1e-14));
  CHECK(enoki("adana", 0.83, 32) == enoki("adana", 0.85, 32));
  CHECK(enoki("adana", 1.0, 32) == Approx(68.9 * std::pow(2.95e4 + p, -.667)).epsilon(1e-14));
  CHECK(enoki("dana-mk4", 0.2, 32) == enoki("dana-mk4", 0.75, 32));
  CHECK(enoki("adamw", 0.2, 32) == enoki("adamw", 0.9, 7));
  CHECK(enoki("adamw", 0.85, 512) == Approx(16.7 * std::pow(1.58e7 + p, -.464)).epsilon(1e-14));
  CHECK(enoki("adana", 0.75, 512) == Approx(85.3 * std::pow(3.04e4 + p, -.654)).epsilon(1e-14));
  CHECK(enoki("d-muon", 0.85, 512) == enoki("d-muon", 0.85, 32));
}

TEST_CASE("scaling: weight decay from omega by the optimizer's convention", "[configs][scaling]") {
  for (const char* name : {"adana", "dana-mk4", "dana-star", "dana-star-mk4", "adamw-decaying-wd",
                           "ademamix-decaying-wd"}) {
    CHECK(has_decaying_weight_decay(name));
    CHECK(scaled_weight_decay(name, 4.0, 1e-3, 6165, 616) == 4.0 / 616);
  }
  for (const char* name : {"adamw", "ademamix", "d-muon", "muon"}) {
    CHECK_FALSE(has_decaying_weight_decay(name));
    CHECK(scaled_weight_decay(name, 4.0, 1e-3, 6165, 616) == 4.0 / (1e-3 * 6165));
  }
  CHECK(scaled_decay_time(6165) == 616);
  CHECK(scaled_decay_time(9) == 1);
}

TEST_CASE("scaling: a rule fills in a run", "[configs][scaling]") {
  const auto config = parsed("rule = \"enoki\"\nheads = 6");
  INFO((config.ok() ? "" : config.error().message));
  REQUIRE(config.ok());
  CHECK(config->model.arch == "enoki");
  CHECK(config->model.heads == 6);
  CHECK(config->model.layers == 4);
  CHECK(config->model.head_dim == 64);
  CHECK(config->model.embedding_dim == 384);
  CHECK(config->model.mlp_hidden == 1536);
  CHECK(config->run.steps == 13950);
  check_printed(config->optimizer.lr, .003793);
  CHECK(config->optimizer.weight_decay == Approx(4.0 / (config->optimizer.lr * 13950)));
  CHECK(parsed("rule = \"enoki\"\nheads = 6\nparams = \"non_embedding\"")->run.steps == 2160);
  CHECK(parsed("rule = \"enoki\"\nheads = 6\ntokens_per_parameter = 40")->run.steps == 27900);
  CHECK(parsed("rule = \"qwen3\"\nheads = 2")->model.layers == 4);
  CHECK(parsed("rule = \"enoki\"\nheads = 6\nomega = 0")->optimizer.weight_decay == 0.0);
}

TEST_CASE("scaling: what is given stays, and what follows from it follows", "[configs][scaling]") {
  const auto config = parsed("rule = \"enoki\"\nheads = 6", "[optimizer]\nlr = 2e-3\n",
                             {"model.layers=5", "run.steps=1000"});
  REQUIRE(config.ok());
  CHECK(config->model.layers == 5);
  CHECK(config->model.embedding_dim == 384);
  CHECK(config->run.steps == 1000);
  CHECK(config->optimizer.lr == 2e-3);
  CHECK(config->optimizer.weight_decay == Approx(2.0));
  CHECK(config->origins.at("model.layers") == "--set");
  CHECK(config->origins.at("model.embedding_dim") == "rule");
  CHECK(config->origins.at("optimizer.lr") == "file");
  CHECK(config->origins.at("optimizer.beta1") == "default");
  const std::string shown = to_toml(*config, Origins::shown);
  CHECK(shown.find("\nlr = 0.002  # file\n") != std::string::npos);
  CHECK(shown.find("\nlayers = 5  # --set\n") != std::string::npos);
  CHECK(shown.find("\nweight_decay = 2.0  # rule\n") != std::string::npos);
  CHECK(to_toml(*config).find('#') == std::string::npos);
  CHECK(parsed("rule = \"enoki\"\nheads = 6", "[optimizer]\nweight_decay = 0.5\n")
            ->optimizer.weight_decay == 0.5);
}

TEST_CASE("scaling: a resolved run reads back as itself", "[configs][scaling][CF-2]") {
  const auto config = parsed("rule = \"enoki\"\nheads = 3");
  REQUIRE(config.ok());
  const auto back = parse_config(to_toml(*config, Origins::shown), "config.toml");
  REQUIRE(back.ok());
  CHECK(to_toml(*back) == to_toml(*config));
  // Elsewhere, or later, the table may be gone.
  const auto gone = parse_config(to_toml(*config), "config.toml",
                                 std::vector<std::string>{"scaling.table=/nowhere/t.toml"});
  REQUIRE(gone.ok());
  CHECK(gone->optimizer.lr == config->optimizer.lr);
  CHECK(error_of(parsed("rule = \"enoki\"\nheads = 3\ntable = \"/nowhere/t.toml\""))
            .starts_with("a.toml:12: /nowhere/t.toml: cannot be read"));
}

TEST_CASE("scaling: without a rule nothing changes", "[configs][scaling]") {
  const auto config = parsed("rule = \"none\"", "[model]\narch = \"enoki\"\n");
  REQUIRE(config.ok());
  CHECK(config->origins.empty());
  CHECK(config->model.layers == 0);
  CHECK(to_toml(*config, Origins::shown) == to_toml(*config));
}

TEST_CASE("scaling: mistakes name their place and what there is", "[configs][scaling]") {
  CHECK(error_of(parsed("rule = \"enoki\""))
            .starts_with("a.toml:10: scaling.rule = \"enoki\" needs"));
  CHECK(error_of(parsed("rule = \"enoki\"\nheads = 0")).find("needs scaling.heads") !=
        std::string::npos);
  CHECK(error_of(parsed("rule = \"enoki\"\nheads = 1")).find("heads give no layer") !=
        std::string::npos);
  CHECK(error_of(parsed("rule = \"enoki\"\nheads = 2000")).find("0 .. 1024") != std::string::npos);
  CHECK(error_of(parsed("rule = \"enko\"\nheads = 3")).find("did you mean \"enoki\"?") !=
        std::string::npos);
  CHECK(error_of(parsed("rule = \"qwen3\"\nheads = 3", "[model]\narch = \"enoki\"\n")) ==
        "a.toml:13: model.arch is \"enoki\", but scaling.rule \"qwen3\" is for \"qwen3\"");
  CHECK(error_of(parsed("heads = 3", "[model]\narch = \"enoki\"\n")).find("has no effect") !=
        std::string::npos);
  CHECK(error_of(parsed("rule = \"enoki\"\nheads = 3\ntokens_per_parameter = 1e-9"))
            .find("less than one step") != std::string::npos);
  CHECK(error_of(parsed("rule = \"enoki\"\nheads = 3", "", {"batch.lanes=0"}))
            .starts_with("--set batch.lanes=0: "));
  CHECK(error_of(parsed("rule = \"enoki\"\nheads = 3", "", {"run.steps=0"}))
            .starts_with("--set run.steps=0: "));
  CHECK(error_of(parsed("rule = \"enoki\"\nheads = 3\nomega = 1e6"))
            .starts_with("a.toml:10 (scaling.rule): optimizer.weight_decay must be"));
}

TEST_CASE("scaling: an optimizer without a rule gets the pairs that exist", "[configs][scaling]") {
  const ScalingTable table = built_in();
  const auto lr = scaled_lr(table, *table.find("qwen3"), {.optimizer = "muon"}, 1000);
  REQUIRE_FALSE(lr.ok());
  CHECK(lr.error().message.find("no learning rate for qwen3 with the optimizer \"muon\"; there is "
                                "one for enoki with adamw, ") != std::string::npos);
  CHECK(lr.error().message.find("; qwen3 with adamw, adana, dana-mk4, dana-star-mk4") !=
        std::string::npos);
}

TEST_CASE("scaling: the program holds the shipped table", "[configs][scaling]") {
  CHECK(text_of(kRules) == built_in_scaling_rules());
  const auto config = parsed(fmt::format("rule = \"enoki\"\nheads = 4\ntable = \"{}\"", kRules));
  REQUIRE(config.ok());
  CHECK(config->run.steps == 8580);
  // A run that is shipped does not ask for a rule, and is not touched by it.
  const auto shipped = load_config(ACTORTRAIN_SOURCE_DIR "/configs/quickstart.toml");
  REQUIRE(shipped.ok());
  CHECK(shipped->origins.empty());
}

TEST_CASE("scaling: a table's mistakes name file, line and key", "[configs][scaling]") {
  const std::string good =
      "[tiny]\narch = \"enoki\"\nhead_dim = 8\nlayers_per_heads = [1, 2]\nmlp_ratio = 2\n"
      "block_weights = 8\nvocab_size = 64\n"
      "lr = [{ optimizer = \"adamw\", a = 1, b = 0, d = -0.5 }]\n";
  const auto table = parse_scaling_table(good, "t.toml");
  INFO((table.ok() ? "" : table.error().message));
  REQUIRE(table.ok());
  const auto model = scaled_model(table->rules[0], 4);
  REQUIRE(model.ok());
  CHECK(model->layers == 2);
  CHECK(model->total == 8 * 32 * 32 * 2 + 2 * 32 * 64);
  const auto error = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    const auto bad = parse_scaling_table(text, "t.toml");
    REQUIRE_FALSE(bad.ok());
    CHECK(bad.error().exit_code() == 2);
    return bad.error().message;
  };
  CHECK(error("head_dim = 8", "head_dim = 0").starts_with("t.toml:3: tiny.head_dim wants 1 .. "));
  CHECK(error("mlp_ratio = 2\n", "").find("tiny.mlp_ratio is missing") != std::string::npos);
  CHECK(error("mlp_ratio", "mlp_ration").find("tiny.mlp_ratio is missing") != std::string::npos);
  CHECK(error("[1, 2]", "[1, 0]").find("two integers") != std::string::npos);
  CHECK(error("[1, 2]", "3").find("wants a list") != std::string::npos);
  CHECK(error("a = 1,", "a = -1,").find("needs a above 0") != std::string::npos);
  CHECK(error("d = -0.5", "d = \"x\"").find("tiny.lr.d wants a number") != std::string::npos);
  CHECK(error("d = -0.5", "d = -0.5, kapa = 1").find("unknown key \"tiny.lr.kapa\"") !=
        std::string::npos);
  CHECK(error("[tiny]", "[tiny").find("not valid TOML") != std::string::npos);
  CHECK(error("arch = \"enoki\"", "arch = 3").find("tiny.arch wants text") != std::string::npos);
  CHECK_FALSE(parse_scaling_table("", "t.toml").ok());
  CHECK_FALSE(parse_scaling_table("a = 1", "t.toml").ok());
  CHECK_FALSE(load_scaling_table("/nowhere/t.toml").ok());
  CHECK_FALSE(load_scaling_table(ACTORTRAIN_SOURCE_DIR "/configs").ok());
}

}  // namespace
}  // namespace train::configs::scaling_test
