// Published models of scans, alone and among attention and experts, in processes: from a directory
// of the fixtures' shapes through training, fine-tuning and exports and back.

#include "storage/safetensors.hpp"
#include "tests/integration/held_runs.hpp"
#include "tests/integration/published_site.hpp"
#include "tests/integration/row_runs.hpp"
#include "tests/support/harness/fixture_file.hpp"

namespace train::test::published_state_spaces_test {
namespace {

const Words kShort = {"run.steps=6",
                      "run.digest_interval_steps=1",
                      "run.sample_tokens=0",
                      "batch.lanes=4",
                      "batch.micro_batch=1",
                      "eval.interval_steps=3",
                      "schedule.warmup_steps=1",
                      "checkpoint.interval_steps=2"};

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

/// A directory of the family's model in bf16, and runs from it.
const RunSite& site_of(const Family& family) {
  static std::map<std::string, std::unique_ptr<RunSite>> sites;
  std::unique_ptr<RunSite>& site = sites[family.fixture];
  if (site == nullptr) {
    site = std::make_unique<RunSite>();
    nlohmann::json config =
        read_fixture("state_spaces.json").at("cases").at(family.fixture).at("config");
    config["vocab_size"] = 300;  // Bytes, and the end of a text.
    write_bytes(*site / "tiny.json", config.dump());
    write_run_file(*site, "config = \"tiny.json\"");
    site->train(joined(kShort, {"run.name=fresh"}));
    const Ended ended =
        site->call({"export", "runs/fresh", "--format", "hf", "--dtype", "bf16", "--out", "model"});
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    write_run_file(*site, "from = \"model\"");
    site->train(joined(kShort, {"run.name=alone"}));
  }
  return *site;
}

const Family& any_family() {
  const auto index = GENERATE(as<std::size_t>(), 0, 1, 2, 3, 4, 5);
  return families()[index];
}

/// Of those whose rows may have several texts.
const Family& any_packed_family() {
  const auto index = GENERATE(as<std::size_t>(), 0, 1, 2, 3, 4);
  REQUIRE(families()[index].packs);
  return families()[index];
}

/// A run of one rank, and one of two that split everything and compute all again.
void check_two_ranks(const RunSite& site, const Words& keys, int steps = 6) {
  site.train(joined(keys, {"run.name=one"}));
  site.train(
      rank_keys(2, "full", joined(keys, {"run.name=two", "memory.activation_checkpointing=all"})));
  const Words one = results_of(site.run("one"));
  CHECK(count_of(fmt::format("{}", fmt::join(one, "\n")), "\"grad_norm\":") ==
        static_cast<std::size_t>(steps));
  CHECK(results_of(site.run("two")) == one);
}

/// Likewise, of packed rows, from the family's directory.
void check_rows(const Family& family, const RowSet& rows, const Words& keys) {
  const RowSite site(rows);
  write_run_file(site, fmt::format("from = \"{}\"", (site_of(family) / "model").string()));
  check_two_ranks(site, keys);
}

std::string call(const RunSite& site, const Words& words) {
  Ended ended = site.call(words);
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  return ended.out;
}

}  // namespace

TEST_CASE("published state spaces: ranks, strategies and what is computed again do not show",
          "[integration][published][state_space][P1]") {
  const Family& family = any_family();
  CAPTURE(family.fixture);
  const RunSite& site = site_of(family);
  const Words alone = results_of(site.run("alone"));
  struct Way {
    int ranks;
    const char* strategy;
    const char* part;
  };
  for (const Way& way :
       {Way{1, "none", "block"}, Way{2, "none", "attention"}, Way{3, "optimizer", ""},
        Way{4, "gradient", "mlp"}, Way{3, "full", "attention"}, Way{4, "hybrid", "block"}}) {
    const std::string name = fmt::format("{}{}", way.strategy, way.ranks);
    CAPTURE(name, way.part);
    Words keys = joined(kShort, {"run.name=" + name});
    if (way.part != std::string()) {
      keys = joined(keys, {"memory.activation_checkpointing=all",
                           fmt::format("memory.checkpointed_part={}", way.part)});
    }
    site.train(rank_keys(way.ranks, way.strategy, keys));
    CHECK(results_of(site.run(name)) == alone);
  }
}

TEST_CASE("published state spaces: a killed rank comes back, others go on, to the same bits",
          "[integration][published][state_space][P1][P3][P4]") {
  const Family& family = any_family();
  CAPTURE(family.fixture);
  const RunSite& site = site_of(family);
  const Words alone = results_of(site.run("alone"));
  const Words keys = joined(kShort, {"run.name=killed", "recovery.rank_loss=respawn"});
  // Held in its fifth step of one lane, or its third of two.
  const auto run = start_held_at(site, fmt::format("scan:{}:1", 4 * family.scans + 1),
                                 rank_keys(3, "gradient", keys));
  wait_for_event(site.run("killed"), *run, "checkpoint_published");
  REQUIRE(::kill(started_workers(site, *run, 3).at(1), SIGKILL) == 0);
  wait_for_event(site.run("killed"), *run, "rank_lost");
  let_go(site);
  const Ended ended = run->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(count_events(site.run("killed"), "respawned") == 1);
  CHECK(results_of(site.run("killed")) == alone);
  const Words parts = joined(kShort, {"run.name=parts", "run.steps_per_job=2"});
  CHECK(site.start_run(rank_keys(2, "full", parts))->wait().exit_code == 75);
  CHECK(site.start_run(parts)->wait().exit_code == 75);
  site.train(rank_keys(4, "hybrid", parts));
  CHECK(results_of(site.run("parts")) == alone);
}

TEST_CASE("published state spaces: export and convert keep every byte, evaluation every bit",
          "[integration][published][state_space][P1]") {
  const Family& family = any_family();
  CAPTURE(family.fixture);
  const RunSite& site = site_of(family);
  call(site, {"export", "runs/alone", "--dtype", "bf16", "--out", "out"});
  call(site, {"convert", "out", "--out", "again"});
  call(site, {"convert", "model", "--out", "model_again"});
  CHECK(read_bytes(site / "again/model.safetensors") == read_bytes(site / "out/model.safetensors"));
  CHECK(read_bytes(site / "model_again/model.safetensors") ==
        read_bytes(site / "model/model.safetensors"));
  CHECK(read_bytes(site / "out/model.safetensors") != read_bytes(site / "model/model.safetensors"));
  const std::string loss = call(site, {"eval", "runs/alone", "--ranks", "1"});
  CHECK(has(loss, "eval step=6 loss="));
  CHECK(call(site, {"eval", "runs/alone", "--ranks", "3"}) == loss);
}

TEST_CASE("published state spaces: conversations and preferences have the same bits on two ranks",
          "[integration][published][state_space][sft][preference][P1]") {
  const Family& family = any_packed_family();
  CAPTURE(family.fixture);
  check_rows(family, {.row_length = 32, .documents = 100}, joined(kShort, {"objective.name=sft"}));
  check_rows(family, {.kind = "preference", .row_length = 32, .documents = 60, .weights = false},
             joined(kShort, {"objective.name=dpo"}));
}

TEST_CASE("published state spaces: unlearning has the same bits on two ranks",
          "[integration][published][state_space][unlearning][P1]") {
  const Family& family = any_packed_family();
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
  check_two_ranks(site, joined(kShort, keys), steps);
}

TEST_CASE("published state spaces: multiple choice has the same scores at any number of ranks",
          "[integration][published][state_space][choices][P1]") {
  const Family& family = any_packed_family();
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
    return call(site, {"eval", "runs/alone", "--ranks", ranks, "--choices", "letters.jsonl"});
  };
  const std::string one = evaluate("1");
  CHECK(has(one, "digest="));
  CHECK(evaluate("3") == one);
}

TEST_CASE("published state spaces: adapters of every map of a scan, trained, exported and merged",
          "[integration][published][state_space][lora][P1]") {
  const Family& family = any_family();
  CAPTURE(family.fixture);
  const RunSite& site = site_of(family);
  const Words keys = joined(
      kShort, {"lora.rank=2",
               fmt::format("lora.targets=[\"{}\"]", fmt::join(family.projections, "\", \""))});
  site.train(joined(keys, {"run.name=lora1"}));
  site.train(rank_keys(2, "full",
                       joined(keys, {"run.name=lora2", "memory.activation_checkpointing=all"})));
  CHECK(results_of(site.run("lora2")) == results_of(site.run("lora1")));
  call(site, {"export", "runs/lora1", "--format", "peft", "--out", "adapter"});
  const auto adapter = storage::SafetensorsFile::open(site / "adapter/adapter_model.safetensors");
  REQUIRE(adapter);
  for (const std::string& map : family.projections) {
    const std::string name = "base_model.model." + family.layer + map;
    CAPTURE(name);
    CHECK(adapter->find(name + ".lora_A.weight") != nullptr);
    CHECK(adapter->find(name + ".lora_B.weight") != nullptr);
  }
  call(site, {"export", "runs/lora1", "--dtype", "bf16", "--out", "merged"});
  call(site, {"convert", "merged", "--out", "merged_again"});
  CHECK(read_bytes(site / "merged/model.safetensors") ==
        read_bytes(site / "merged_again/model.safetensors"));
  CHECK(read_bytes(site / "merged/model.safetensors") !=
        read_bytes(site / "model/model.safetensors"));
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
      {"mamba2_129", {{"n_groups", 4}}, {"6 heads do not divide into n_groups 4"}},
      {"mamba2_129", {{"norm_before_gate", true}}, {"norm_before_gate is true", "set it to false"}},
      {"mamba_70", {{"conv_kernel", 9}}, {"9 taps: 1 to 8 are supported"}},
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
    nlohmann::json config =
        read_fixture("state_spaces.json").at("cases").at(row.fixture).at("config");
    config["vocab_size"] = 300;
    config.update(row.changes);
    write_bytes(site / "tiny.json", config.dump());
    CAPTURE(config.dump());
    check_mistake(site, RunSite::run_words(kShort), joined({"tiny.json"}, row.parts));
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
  check_mistake(rows, RunSite::run_words(joined(kShort, {"objective.name=sft"})),
                {"objective.name", "3 learned tokens before each text", "pretrain"});
}

}  // namespace train::test::published_state_spaces_test
