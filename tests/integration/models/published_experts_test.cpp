// Published models of latent attention, sigmoid routers and sinks, in processes: from a directory
// of the fixtures' shapes through training, fine-tuning and exports and back.

#include <set>

#include "tests/integration/published_families.hpp"

namespace train::test::published_experts_test {
namespace {

struct Family {
  std::string fixture;  ///< In fixtures/experts.json.
  bool moves_bias;      ///< Its routers have a bias that corrects the choice.
  Words projections;    ///< Linear maps of attention.

  /// Keys of a run that trains all there is, that bias included.
  [[nodiscard]] Words keys(const Words& more = {}) const {
    return joined(moves_bias ? joined(kFamilyKeys, {"model.router_bias_rate=0.01"}) : kFamilyKeys,
                  more);
  }
};

const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      {"deepseek_v3", true, {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"}},
      {"glm4_moe", true, {"q_proj", "k_proj", "v_proj", "o_proj"}},
      {"gpt_oss", false, {"q_proj", "k_proj", "v_proj", "o_proj"}}};
  return all;
}

/// Its correction bias has moved.
const RunSite& site_of(const Family& family) {
  return family_site("experts.json", family.fixture, family.keys());
}

const Family& any_family() {
  const auto index = GENERATE(as<std::size_t>(), 0, 1, 2);
  return families()[index];
}

}  // namespace

TEST_CASE("published experts: ranks, strategies and what is computed again do not show",
          "[integration][published][experts][P1]") {
  const Family& family = any_family();
  CAPTURE(family.fixture);
  const RunSite& site = site_of(family);
  const std::string metrics = read_bytes(site.run("alone") / "metrics.jsonl");
  CHECK((count_of(metrics, "\"expert_bias\":[[") == 6) == family.moves_bias);
  check_layouts(site, family.keys(), family.fixture == "deepseek_v3" ? "latent" : "attention");
}

// In processes; tests/engine/parity/published_bits_test.cpp has the same of all families in one.
TEST_CASE("published experts: the same bits at every number of ranks, strategy and recomputation",
          "[integration][.soak][published][experts][P1]") {
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
  const int layers = nlohmann::json::parse(read_bytes(site / "tiny.json")).at("num_hidden_layers");
  check_killed(site, fmt::format("wedge:{}:1", 4 * layers + 1), family.keys());
}

TEST_CASE("published experts: exported and converted again they are the same bytes",
          "[integration][published][experts][WF-1]") {
  const Family& family = any_family();
  CAPTURE(family.fixture);
  const RunSite& site = site_of(family);
  check_exports(site);
  if (family.moves_bias) {
    const auto file = storage::SafetensorsFile::open(site / "out/model.safetensors");
    REQUIRE(file);
    const auto* bias = file->find("model.layers.1.mlp.gate.e_score_correction_bias");
    REQUIRE(bias != nullptr);
    CHECK(bias->dtype == "F32");
  }
}

TEST_CASE("published experts: conversations and preferences have the same bits on two ranks",
          "[integration][published][experts][sft][preference][P1]") {
  const Family& family = any_family();
  CAPTURE(family.fixture);
  const RunSite& site = site_of(family);
  check_packed_rows(site, {.row_length = 32, .documents = 100},
                    family.keys({"objective.name=sft"}));
  check_packed_rows(site,
                    {.kind = "preference", .row_length = 32, .documents = 60, .weights = false},
                    family.keys({"objective.name=dpo"}));
}

TEST_CASE("published experts: adapters of every map of attention, trained, exported and merged",
          "[integration][published][experts][lora][P1]") {
  const Family& family = any_family();
  CAPTURE(family.fixture);
  check_adapters(site_of(family), kFamilyKeys, family.projections, "model.layers.1.self_attn.");
}

TEST_CASE("published experts: a rate of the correction bias moves it, 0 keeps it, others refuse it",
          "[integration][published][experts][mistakes]") {
  for (const Family& family : families()) {
    CAPTURE(family.fixture);
    const RunSite& site = site_of(family);
    if (!family.moves_bias) {
      check_mistake(site, RunSite::run_words(joined(kFamilyKeys, {"model.router_bias_rate=0.01"})),
                    {"model.router_bias_rate is 0.01", "no bias that corrects their choice"});
      continue;
    }
    site.train(joined(kFamilyKeys, {"run.name=still"}));
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

}  // namespace train::test::published_experts_test
