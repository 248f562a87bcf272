// Published models of scans, alone and among attention and experts, in processes: from a directory
// of the fixtures' shapes through training, fine-tuning and exports and back.

#include "tests/integration/published_families.hpp"
#include "tests/support/harness/drawn.hpp"

namespace train::test::published_state_spaces_test {
namespace {

struct Family {
  std::string fixture;  ///< In fixtures/state_spaces.json.
  int layers, scans;    ///< All, and those that have one.
  std::string layer;    ///< Prefix of a layer with a scan.
  Words projections;    ///< Its linear maps.
  bool packs = true;    ///< Rows may have several texts.
};

const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      {"mamba_70", 2, 2, "backbone.layers.1.mixer.", {"in_proj", "x_proj", "dt_proj", "out_proj"}},
      {"falcon_mamba_70",
       2,
       2,
       "backbone.layers.1.mixer.",
       {"in_proj", "x_proj", "dt_proj", "out_proj"}},
      {"mamba2_129", 2, 2, "backbone.layers.1.mixer.", {"in_proj", "out_proj"}},
      {"jamba", 4, 3, "model.layers.1.mamba.", {"in_proj", "x_proj", "dt_proj", "out_proj"}},
      {"hymba_packed",
       4,
       4,
       "model.layers.1.mamba.",
       {"in_proj", "x_proj.0", "dt_proj.0", "out_proj"}},
      {"hymba_70",
       4,
       4,
       "model.layers.1.mamba.",
       {"in_proj", "x_proj.0", "dt_proj.0", "out_proj"},
       false}};
  return all;
}

const RunSite& site_of(const Family& family) {
  return family_site("state_spaces.json", family.fixture, kFamilyKeys);
}

const Family& any_family() {
  const auto index = GENERATE(as<std::size_t>(), 0, 1, 2, 3, 4, 5);
  return families()[index];
}

/// Three of all, drawn by --rng-seed, or all where tests soak: for what does not depend on a scan.
const Family& drawn_family() {
  const auto index = GENERATE(from_range(drawn(std::vector<std::size_t>{0, 1, 2, 3, 4, 5}, 3)));
  return families()[index];
}

/// Likewise, of those whose rows may have several texts.
const Family& drawn_packed_family() {
  const auto index = GENERATE(from_range(drawn(std::vector<std::size_t>{0, 1, 2, 3, 4}, 3)));
  REQUIRE(families()[index].packs);
  return families()[index];
}

}  // namespace

TEST_CASE("published state spaces: ranks, strategies and what is computed again do not show",
          "[integration][published][state_space][P1]") {
  const Family& family = any_family();
  CAPTURE(family.fixture);
  check_layouts(site_of(family), kFamilyKeys);
}

TEST_CASE("published state spaces: a killed rank comes back, others go on, to the same bits",
          "[integration][soak][published][state_space][P1][P3][P4]") {
  const Family& family = drawn_family();
  CAPTURE(family.fixture);
  check_killed(site_of(family), fmt::format("scan:{}:1", 4 * family.scans + 1), kFamilyKeys);
}

TEST_CASE("published state spaces: export and convert keep every byte, evaluation every bit",
          "[integration][published][state_space][P1]") {
  const Family& family = any_family();
  CAPTURE(family.fixture);
  check_exports(site_of(family));
}

TEST_CASE("published state spaces: conversations and preferences have the same bits on two ranks",
          "[integration][soak][published][state_space][sft][preference][P1]") {
  const Family& family = drawn_packed_family();
  CAPTURE(family.fixture);
  const RunSite& site = site_of(family);
  check_packed_rows(site, {.row_length = 32, .documents = 100},
                    joined(kFamilyKeys, {"objective.name=sft"}));
  check_packed_rows(site,
                    {.kind = "preference", .row_length = 32, .documents = 60, .weights = false},
                    joined(kFamilyKeys, {"objective.name=dpo"}));
}

TEST_CASE("published state spaces: unlearning has the same bits on two ranks",
          "[integration][soak][published][state_space][unlearning][P1]") {
  const Family& family = drawn_packed_family();
  CAPTURE(family.fixture);
  const RunSite site;
  write_rows(site / "retain", {.row_length = 32, .documents = 60, .weights = false});
  write_rows(site / "forget", {.row_length = 32, .documents = 40, .weights = false});
  site.write_config("retain");
  write_run_file(site, fmt::format("from = \"{}\"", (site_of(family) / "model").string()));
  const int steps = 2 * family.layers;
  const Words keys = {"objective.name=sequential_unlearning",
                      "data.forget_dir=forget",
                      "objective.layer_stride=1",
                      "objective.steps_per_layer=2",
                      "objective.gradient_join=same_sign_forget",
                      "schedule.warmup_steps=0",
                      fmt::format("run.steps={}", steps)};
  check_two_ranks(site, joined(kFamilyKeys, keys), steps);
}

TEST_CASE("published state spaces: multiple choice has the same scores at any number of ranks",
          "[integration][soak][published][state_space][choices][P1]") {
  const Family& family = drawn_packed_family();
  CAPTURE(family.fixture);
  const RunSite& site = site_of(family);
  std::string lines;
  for (int i = 0; i < 9; ++i) {
    lines += fmt::format(R"({{"question": "{}?", "choices": ["a", "b", "c", "d"], "answer": {}}})"
                         "\n",
                         i, i % 4);
  }
  write_bytes(site / "letters.jsonl", lines);
  const auto evaluate = [&](const char* ranks) {
    return output_of(site, {"eval", "runs/alone", "--ranks", ranks, "--choices", "letters.jsonl"});
  };
  const std::string one = evaluate("1");
  CHECK(has(one, "digest="));
  CHECK(evaluate("3") == one);
}

TEST_CASE("published state spaces: adapters of every map of a scan, trained, exported and merged",
          "[integration][published][state_space][lora][P1]") {
  const Family& family = any_family();
  CAPTURE(family.fixture);
  check_adapters(site_of(family), kFamilyKeys, family.projections, family.layer);
}

TEST_CASE("published state spaces: what is not supported is one line, typed at the program",
          "[integration][published][state_space][mistakes]") {
  const RunSite site;
  write_run_file(site, "config = \"tiny.json\"");
  struct Row {
    const char* fixture;
    nlohmann::json changes;
    Words parts;
  };
  const std::vector<Row> rows = {
      {"mamba2_129", {{"time_step_limit", {0.5, 0.1}}}, {"time_step_limit is [0.5,0.1]"}},
      {"mamba2_129", {{"num_heads", 5}}, {"num_heads 5 of head_dim 16"}},
      {"mamba2_129", {{"n_groups", 4}}, {"num_heads 6 is not a multiple of n_groups 4"}},
      {"mamba2_129", {{"norm_before_gate", true}}, {"norm_before_gate is true", "set it to false"}},
      {"mamba_70",
       {{"conv_kernel", 9}},
       {"conv_kernel (mamba_d_conv) is 9: convolutions have 1 to 8 taps"}},
      {"mamba_70",
       {{"model_type", "bamba"}},
       {"model_type \"bamba\" is not supported", "among layers of Mamba-2", "mamba, falcon_mamba"}},
      {"hymba_70", {{"num_attention_heads", 4}}, {"num_attention_heads is 4", "hidden_size 50"}},
      {"hymba_70", {{"num_key_value_heads", 2}}, {"5 is not a multiple of num_key_value_heads 2"}},
      {"hymba_70", {{"kv_reuse_group", {{0, 1}}}}, {"layers 0 and 1", "global_attn_idx"}},
      {"hymba_70", {{"kv_reuse_group", {{2, 4}}}}, {"kv_reuse_group has [2,4]", "follow one"}},
      {"hymba_70", {{"layer_type", {"h", "a", "h", "h"}}}, {"layer_type is not a list of \"h\""}},
      {"hymba_70", {{"v_head_dim", 10}}, {"v_head_dim is 10", "make 20"}},
      {"jamba", {{"attn_layer_offset", 4}}, {"attn_layer_offset is 4 of attn_layer_period 4"}}};
  for (const Row& row : rows) {
    nlohmann::json config = fixture_config("state_spaces.json", row.fixture);
    config.update(row.changes);
    write_bytes(site / "tiny.json", config.dump());
    CAPTURE(config.dump());
    check_mistake(site, RunSite::run_words(kFamilyKeys), joined({"tiny.json"}, row.parts));
    check_mistake(site, {"describe", "tiny.json"}, joined({"tiny.json"}, row.parts));
  }
}

TEST_CASE(
    "published state spaces: rows of several texts and learned tokens before each are refused",
    "[integration][published][state_space][mistakes]") {
  const Family& family = families().back();
  REQUIRE(!family.packs);
  const RunSite& site = site_of(family);
  write_bytes(site / "letters.jsonl", R"({"question": "?", "choices": ["a", "b"], "answer": 0})");
  check_mistake(site, {"eval", "runs/alone", "--ranks", "1", "--choices", "letters.jsonl"},
                {"eval.choices", "3 learned tokens before each text"});
  const RowSite rows({.row_length = 32, .documents = 100});
  write_run_file(rows, fmt::format("from = \"{}\"", (site / "model").string()));
  check_mistake(rows, RunSite::run_words(joined(kFamilyKeys, {"objective.name=sft"})),
                {"objective.name", "3 learned tokens before each text", "pretrain"});
}

TEST_CASE("published state spaces: what llama.cpp has no place for is refused by its name",
          "[integration][published][state_space][gguf_out][mistakes]") {
  const RunSite& site = site_of(families().back());
  const Words parts = {"architecture hymba is not written as GGUF", "--format hf"};
  for (const char* dtype : {"fp32", "q8_0", "q4_k_m"}) {
    check_mistake(site,
                  {"convert", "model", "--format", "gguf", "--dtype", dtype, "--no-tokenizer",
                   "--out", "gguf"},
                  parts);
    check_mistake(site,
                  {"export", "runs/alone", "--format", "gguf", "--dtype", dtype, "--out", "gguf"},
                  parts);
  }
  site.train(
      joined(kFamilyKeys, {"run.name=adapted", "lora.rank=2", "lora.targets=[\"out_proj\"]"}));
  check_mistake(site, {"export", "runs/adapted", "--format", "gguf-lora", "--out", "gguf"},
                {"architecture hymba are not written as GGUF", "--format peft"});
  CHECK_FALSE(fs::exists(site / "gguf"));
}

}  // namespace train::test::published_state_spaces_test
