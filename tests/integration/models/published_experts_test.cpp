// Published models of latent attention, sigmoid routers and sinks, in processes: from a directory
// of the fixtures' shapes through training, fine-tuning and exports and back.

#include <set>

#include "storage/safetensors.hpp"
#include "tests/integration/held_runs.hpp"
#include "tests/integration/published_site.hpp"
#include "tests/integration/row_runs.hpp"
#include "tests/support/harness/fixture_file.hpp"

namespace train::test {
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
  std::string fixture;  ///< In fixtures/experts.json.
  bool moves_bias;      ///< Its routers have a bias that corrects the choice.
  Words projections;    ///< Linear maps of attention.

  /// Keys of a run that trains all there is, that bias included.
  [[nodiscard]] Words keys(const Words& more = {}) const {
    return joined(moves_bias ? joined(kShort, {"model.router_bias_rate=0.01"}) : kShort, more);
  }
};

const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      {"deepseek_v3", true, {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"}},
      {"glm4_moe", true, {"q_proj", "k_proj", "v_proj", "o_proj"}},
      {"gpt_oss", false, {"q_proj", "k_proj", "v_proj", "o_proj"}}};
  return all;
}

/// A directory of the family's model in bf16, whose correction bias has moved, and runs from it.
const RunSite& site_of(const Family& family) {
  static std::map<std::string, std::unique_ptr<RunSite>> sites;
  std::unique_ptr<RunSite>& site = sites[family.fixture];
  if (site == nullptr) {
    site = std::make_unique<RunSite>();
    nlohmann::json config =
        read_fixture("experts.json").at("cases").at(family.fixture).at("config");
    config["vocab_size"] = 300;  // Bytes, and the end of a text.
    write_bytes(*site / "tiny.json", config.dump());
    write_run_file(*site, "config = \"tiny.json\"");
    site->train(family.keys({"run.name=fresh"}));
    const Ended ended =
        site->call({"export", "runs/fresh", "--format", "hf", "--dtype", "bf16", "--out", "model"});
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    write_run_file(*site, "from = \"model\"");
    site->train(family.keys({"run.name=alone"}));
  }
  return *site;
}

const Family& any_family() {
  const auto index = GENERATE(as<std::size_t>(), 0, 1, 2);
  return families()[index];
}

/// Runs of packed rows from the family's directory: of one rank, and of two that split everything
/// and compute all again.
void check_rows(const Family& family, const RowSet& rows, const Words& keys) {
  const RowSite site(rows);
  write_run_file(site, fmt::format("from = \"{}\"", (site_of(family) / "model").string()));
  site.train(joined(keys, {"run.name=one"}));
  site.train(
      rank_keys(2, "full", joined(keys, {"run.name=two", "memory.activation_checkpointing=all"})));
  const Words one = results_of(site.run("one"));
  CHECK(count_of(fmt::format("{}", fmt::join(one, "\n")), "\"grad_norm\":") == 6);
  CHECK(results_of(site.run("two")) == one);
}

}  // namespace

TEST_CASE("published experts: ranks, strategies and what is computed again do not show",
          "[integration][published][experts][P1]") {
  const Family& family = any_family();
  CAPTURE(family.fixture);
  const RunSite& site = site_of(family);
  const Words alone = results_of(site.run("alone"));
  const std::string metrics = read_bytes(site.run("alone") / "metrics.jsonl");
  CHECK((count_of(metrics, "\"expert_bias\":[[") == 6) == family.moves_bias);
  struct Way {
    int ranks;
    const char* strategy;
    const char* part;
  };
  const char* const expanded = family.fixture == "deepseek_v3" ? "latent" : "attention";
  for (const Way& way :
       {Way{1, "none", "block"}, Way{2, "none", expanded}, Way{3, "optimizer", ""},
        Way{4, "gradient", "mlp"}, Way{3, "full", "attention"}, Way{4, "hybrid", "block"}}) {
    const std::string name = fmt::format("{}{}", way.strategy, way.ranks);
    CAPTURE(name, way.part);
    Words keys = family.keys({"run.name=" + name});
    if (way.part != std::string()) {
      keys = joined(keys, {"memory.activation_checkpointing=all",
                           fmt::format("memory.checkpointed_part={}", way.part)});
    }
    site.train(rank_keys(way.ranks, way.strategy, keys));
    CHECK(results_of(site.run(name)) == alone);
  }
}

TEST_CASE("published experts: the same bits at every number of ranks, strategy and recomputation",
          "[integration][.full][published][experts][P1]") {
  const Family& family = any_family();
  const RunSite& site = site_of(family);
  const Words alone = results_of(site.run("alone"));
  for (const int ranks : {1, 2, 3, 4}) {
    for (const char* strategy : {"none", "optimizer", "gradient", "full", "hybrid"}) {
      if (strategy == std::string("hybrid") && ranks % 2 != 0) {
        continue;
      }
      for (const char* activations : {"none", "all"}) {
        const std::string name = fmt::format("all{}{}{}", ranks, strategy, activations);
        CAPTURE(family.fixture, name);
        site.train(rank_keys(
            ranks, strategy,
            family.keys({"run.name=" + name,
                         fmt::format("memory.activation_checkpointing={}", activations)})));
        CHECK(results_of(site.run(name)) == alone);
      }
    }
  }
}

TEST_CASE("published experts: a killed rank comes back, and other ranks go on, to the same bits",
          "[integration][published][experts][P1][P3][P4]") {
  const Family& family = any_family();
  CAPTURE(family.fixture);
  const RunSite& site = site_of(family);
  const Words alone = results_of(site.run("alone"));
  const Words keys = family.keys({"run.name=killed", "recovery.rank_loss=respawn"});
  {
    // Held in its fifth step of one lane, or its third of two.
    const int layers =
        nlohmann::json::parse(read_bytes(site / "tiny.json")).at("num_hidden_layers");
    const auto run = start_held(site, "1", 4 * layers + 1, rank_keys(3, "gradient", keys));
    wait_for_event(site.run("killed"), *run, "checkpoint_published");
    REQUIRE(::kill(started_workers(site, *run, 3).at(1), SIGKILL) == 0);
    wait_for_event(site.run("killed"), *run, "rank_lost");
    let_go(site);
    const Ended ended = run->wait();
    INFO(ended.err);
    CHECK(ended.exit_code == 0);
    CHECK(count_events(site.run("killed"), "respawned") == 1);
    CHECK(results_of(site.run("killed")) == alone);
  }
  const Words parts = family.keys({"run.name=parts", "run.steps_per_job=2"});
  CHECK(site.start_run(rank_keys(2, "full", parts))->wait().exit_code == 75);
  CHECK(site.start_run(parts)->wait().exit_code == 75);
  site.train(rank_keys(4, "hybrid", parts));
  CHECK(results_of(site.run("parts")) == alone);
}

TEST_CASE("published experts: exported and converted again they are the same bytes",
          "[integration][published][experts][WF-1]") {
  const Family& family = any_family();
  CAPTURE(family.fixture);
  const RunSite& site = site_of(family);
  const auto call = [&](const Words& words) {
    Ended ended = site.call(words);
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    return ended.out;
  };
  call({"export", "runs/alone", "--dtype", "bf16", "--out", "out"});
  call({"convert", "out", "--out", "again"});
  call({"convert", "model", "--out", "model_again"});
  CHECK(read_bytes(site / "again/model.safetensors") == read_bytes(site / "out/model.safetensors"));
  CHECK(read_bytes(site / "model_again/model.safetensors") ==
        read_bytes(site / "model/model.safetensors"));
  CHECK(read_bytes(site / "out/model.safetensors") != read_bytes(site / "model/model.safetensors"));
  if (family.moves_bias) {
    const auto file = storage::SafetensorsFile::open(site / "out/model.safetensors");
    REQUIRE(file);
    const auto* bias = file->find("model.layers.1.mlp.gate.e_score_correction_bias");
    REQUIRE(bias != nullptr);
    CHECK(bias->dtype == "F32");
  }
  const auto evaluate = [&](const char* ranks) {
    return call({"eval", "runs/alone", "--ranks", ranks});
  };
  const std::string loss = evaluate("1");
  CHECK(has(loss, "eval step=6 loss="));
  CHECK(evaluate("3") == loss);
}

TEST_CASE("published experts: conversations and preferences have the same bits on two ranks",
          "[integration][published][experts][sft][preference][P1]") {
  const Family& family = any_family();
  CAPTURE(family.fixture);
  check_rows(family, {.row_length = 32, .documents = 100}, family.keys({"objective.name=sft"}));
  check_rows(family, {.kind = "preference", .row_length = 32, .documents = 60, .weights = false},
             family.keys({"objective.name=dpo"}));
}

TEST_CASE("published experts: adapters of every map of attention, trained, exported and merged",
          "[integration][published][experts][lora][P1]") {
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
  const auto call = [&](const Words& words) {
    const Ended ended = site.call(words);
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
  };
  call({"export", "runs/lora1", "--format", "peft", "--out", "adapter"});
  const auto adapter = storage::SafetensorsFile::open(site / "adapter/adapter_model.safetensors");
  REQUIRE(adapter);
  for (const std::string& map : family.projections) {
    CAPTURE(map);
    const std::string name = "base_model.model.model.layers.1.self_attn." + map;
    CHECK(adapter->find(name + ".lora_A.weight") != nullptr);
    CHECK(adapter->find(name + ".lora_B.weight") != nullptr);
  }
  call({"export", "runs/lora1", "--dtype", "bf16", "--out", "merged"});
  call({"convert", "merged", "--out", "merged_again"});
  CHECK(read_bytes(site / "merged/model.safetensors") ==
        read_bytes(site / "merged_again/model.safetensors"));
  CHECK(read_bytes(site / "merged/model.safetensors") !=
        read_bytes(site / "model/model.safetensors"));
}

TEST_CASE("published experts: a rate of the correction bias moves it, 0 keeps it, others refuse it",
          "[integration][published][experts][mistakes]") {
  for (const Family& family : families()) {
    CAPTURE(family.fixture);
    const RunSite& site = site_of(family);
    if (!family.moves_bias) {
      check_mistake(site, RunSite::run_words(joined(kShort, {"model.router_bias_rate=0.01"})),
                    {"model.router_bias_rate is 0.01", "no bias that corrects their choice"});
      continue;
    }
    site.train(joined(kShort, {"run.name=still"}));
    const auto biases = [&](const char* run) {
      std::set<std::string> found;
      for (const auto& line : metrics_of(site.run(run))) {
        if (line.contains("expert_bias")) {
          found.insert(line.at("expert_bias").dump());
        }
      }
      return found;
    };
    CHECK(biases("still").size() == 1);
    CHECK(biases("alone").size() > 1);
  }
}

}  // namespace train::test
