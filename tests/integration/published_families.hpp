#pragma once

#include <map>
#include <memory>

#include "storage/safetensors.hpp"
#include "tests/integration/sites/held_runs.hpp"
#include "tests/integration/sites/published_site.hpp"
#include "tests/integration/sites/row_runs.hpp"
#include "tests/support/harness/fixture_file.hpp"

// Families of published models, in the shapes of fixtures: a directory of each, and what holds of
// the runs that read it, whatever its layers are.
namespace train::test {

inline const Words kFamilyKeys = {"run.steps=6",
                                  "run.digest_interval_steps=1",
                                  "run.sample_tokens=0",
                                  "batch.lanes=4",
                                  "batch.micro_batch=1",
                                  "eval.interval_steps=3",
                                  "schedule.warmup_steps=1",
                                  "checkpoint.interval_steps=2"};

inline std::string output_of(const RunSite& site, const Words& words) {
  Ended ended = site.call(words);
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  return ended.out;
}

/// The config.json of a case of a fixture, for bytes and the end of a text.
inline nlohmann::json fixture_config(const std::string& file, const std::string& name) {
  nlohmann::json config = read_fixture(file).at("cases").at(name).at("config");
  config["vocab_size"] = 300;
  return config;
}

/// A directory of that case's model in bf16, which a run called "fresh" has trained, and a run from
/// it called "alone", of one rank; both have `keys`.
inline const RunSite& family_site(const std::string& file, const std::string& name,
                                  const Words& keys) {
  static std::map<std::string, std::unique_ptr<RunSite>> sites;
  std::unique_ptr<RunSite>& site = sites[file + "/" + name];
  if (site == nullptr) {
    site = std::make_unique<RunSite>();
    write_bytes(*site / "tiny.json", fixture_config(file, name).dump());
    write_run_file(*site, "config = \"tiny.json\"");
    site->train(joined(keys, {"run.name=fresh"}));
    output_of(*site,
              {"export", "runs/fresh", "--format", "hf", "--dtype", "bf16", "--out", "model"});
    write_run_file(*site, "from = \"model\"");
    site->train(joined(keys, {"run.name=alone"}));
  }
  return *site;
}

/// A run of one rank, and one of two that split everything and compute all again.
inline void check_two_ranks(const RunSite& site, const Words& keys, int steps = 6) {
  site.train(joined(keys, {"run.name=one"}));
  site.train(
      rank_keys(2, "full", joined(keys, {"run.name=two", "memory.activation_checkpointing=all"})));
  const Words one = results_of(site.run("one"));
  CHECK(count_of(fmt::format("{}", fmt::join(one, "\n")), "\"grad_norm\":") ==
        static_cast<std::size_t>(steps));
  CHECK(results_of(site.run("two")) == one);
}

/// Likewise, of packed rows, from the directory of `family`.
inline void check_packed_rows(const RunSite& family, const RowSet& rows, const Words& keys) {
  const RowSite site(rows);
  write_run_file(site, fmt::format("from = \"{}\"", (family / "model").string()));
  check_two_ranks(site, keys);
}

/// Ranks, strategies and what is computed again do not show. `expanded`: a part that is computed
/// again where a layer's attention has more than one.
inline void check_layouts(const RunSite& site, const Words& keys,
                          const char* expanded = "attention") {
  const Words alone = results_of(site.run("alone"));
  struct Way {
    int ranks;
    const char* strategy;
    const char* part;
  };
  // Every other way in one process, which starts sooner; the next site has the others there.
  static bool next = false;
  next = !next;
  bool inproc = next;
  for (const Way& way :
       {Way{1, "none", "block"}, Way{2, "none", expanded}, Way{3, "optimizer", ""},
        Way{4, "gradient", "mlp"}, Way{3, "full", "attention"}, Way{4, "hybrid", "block"}}) {
    const std::string name = fmt::format("{}{}", way.strategy, way.ranks);
    inproc = !inproc;
    CAPTURE(name, way.part, inproc);
    Words own = joined(keys, {"run.name=" + name});
    if (inproc && way.ranks > 1) {
      own.push_back("parallel.transport=inproc");
    }
    if (way.part != std::string()) {
      own = joined(own, {"memory.activation_checkpointing=all",
                         fmt::format("memory.checkpointed_part={}", way.part)});
    }
    site.train(rank_keys(way.ranks, way.strategy, own));
    CHECK(results_of(site.run(name)) == alone);
  }
}

/// A killed rank comes back, and other ranks go on with what one has begun. `fault`: holds rank 1
/// in its fifth step of one lane, or its third of two.
inline void check_killed(const RunSite& site, const std::string& fault, const Words& keys) {
  const Words alone = results_of(site.run("alone"));
  const Words killed = joined(keys, {"run.name=killed", "recovery.rank_loss=respawn"});
  const auto run = start_held_at(site, fault, rank_keys(3, "gradient", killed));
  wait_for_event(site.run("killed"), *run, "checkpoint_published");
  kill_held(site, site.run("killed"), *run, 3);
  const Ended ended = run->wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(count_events(site.run("killed"), "respawned") == 1);
  CHECK(results_of(site.run("killed")) == alone);
  const Words parts = joined(keys, {"run.name=parts", "run.steps_per_job=2"});
  CHECK(site.start_run(rank_keys(2, "full", parts))->wait().exit_code == 75);
  CHECK(site.start_run(parts)->wait().exit_code == 75);
  site.train(rank_keys(4, "hybrid", parts));
  CHECK(results_of(site.run("parts")) == alone);
}

/// Exported and converted again they are the same bytes, evaluated on any ranks the same bits. What
/// is exported is in `out`.
inline void check_exports(const RunSite& site) {
  output_of(site, {"export", "runs/alone", "--dtype", "bf16", "--out", "out"});
  output_of(site, {"convert", "out", "--out", "again"});
  output_of(site, {"convert", "model", "--out", "model_again"});
  const auto weights = [&](const char* folder) {
    return read_bytes(site / folder / "model.safetensors");
  };
  CHECK(weights("again") == weights("out"));
  CHECK(weights("model_again") == weights("model"));
  CHECK(weights("out") != weights("model"));
  const std::string loss = output_of(site, {"eval", "runs/alone", "--ranks", "1"});
  CHECK(has(loss, "eval step=6 loss="));
  CHECK(output_of(site, {"eval", "runs/alone", "--ranks", "3"}) == loss);
}

/// Adapters of the maps `projections` of the layer that PEFT calls `layer`, trained, exported and
/// merged.
inline void check_adapters(const RunSite& site, const Words& keys, const Words& projections,
                           const std::string& layer) {
  const Words adapted = joined(
      keys,
      {"lora.rank=2", fmt::format("lora.targets=[\"{}\"]", fmt::join(projections, "\", \""))});
  site.train(joined(adapted, {"run.name=lora1"}));
  site.train(rank_keys(2, "full",
                       joined(adapted, {"run.name=lora2", "memory.activation_checkpointing=all"})));
  CHECK(results_of(site.run("lora2")) == results_of(site.run("lora1")));
  output_of(site, {"export", "runs/lora1", "--format", "peft", "--out", "adapter"});
  const auto adapter = storage::SafetensorsFile::open(site / "adapter/adapter_model.safetensors");
  REQUIRE(adapter);
  for (const std::string& map : projections) {
    const std::string name = "base_model.model." + layer + map;
    CAPTURE(name);
    CHECK(adapter->find(name + ".lora_A.weight") != nullptr);
    CHECK(adapter->find(name + ".lora_B.weight") != nullptr);
  }
  output_of(site, {"export", "runs/lora1", "--dtype", "bf16", "--out", "merged"});
  output_of(site, {"convert", "merged", "--out", "merged_again"});
  CHECK(read_bytes(site / "merged/model.safetensors") ==
        read_bytes(site / "merged_again/model.safetensors"));
  CHECK(read_bytes(site / "merged/model.safetensors") !=
        read_bytes(site / "model/model.safetensors"));
}

}  // namespace train::test
