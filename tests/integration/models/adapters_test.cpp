// Adapters and running averages, as a user trains, resumes, evaluates and exports them.
#include <csignal>
#include <nlohmann/json.hpp>

#include "storage/safetensors.hpp"
#include "tests/integration/sites/held_runs.hpp"

using namespace train;
using namespace train::test;

namespace {

const Words kKeys = {"run.steps=12",
                     "run.digest_interval_steps=1",
                     "batch.lanes=5",
                     "batch.micro_batch=1",
                     "eval.interval_steps=6",
                     "eval.lanes=4",
                     "schedule.warmup_steps=2",
                     "checkpoint.interval_steps=2",
                     "lora.rank=3",
                     "lora.alpha=6.0",
                     "lora.targets=[\"c_attn\", \"*.mlp.*\"]",
                     "train.ema=0.9"};

}  // namespace

TEST_CASE("adapters: the same bits on any ranks, killed and resumed; exports are PEFT's and whole",
          "[integration][.full][adapters][P1]") {
  const RunSite site;
  site.train(joined(kKeys, {"run.name=one"}));
  site.train(rank_keys(3, "full", joined(kKeys, {"run.name=three"})));
  CHECK(results_of(site.run("three")) == results_of(site.run("one")));
  {
    // In its fifth step, of five lanes of two blocks.
    const auto killed = start_held(site, "head", 4 * 10 + 1, joined(kKeys, {"run.name=killed"}));
    wait_for_event(site.run("killed"), *killed, "checkpoint_published");
    killed->send(SIGKILL);
    (void)killed->wait();
    let_go(site);
  }
  const Ended resumed = site.train(rank_keys(2, "none", joined(kKeys, {"run.name=killed"})));
  CHECK(has(resumed.err, "resumed step="));
  const auto digest = [&](const std::string& run) {
    return manifest_of(site.run(run), 12).fields.weights_digest;
  };
  CHECK(digest("killed") == digest("one"));
  CHECK(digest("three") == digest("one"));

  const Ended peft = site.call({"export", "runs/killed", "--format", "peft", "--out", "adapter"});
  INFO(peft.err);
  REQUIRE(peft.exit_code == 0);
  CHECK(names_in(site / "adapter") == Words{"adapter_config.json", "adapter_model.safetensors"});
  const auto config = nlohmann::json::parse(read_bytes(site / "adapter/adapter_config.json"));
  CHECK(config.at("r") == 3);
  CHECK(config.at("lora_alpha") == 6);
  // attn.c_proj has none, so the last parts of the names would say too much.
  CHECK(config.at("target_modules").at(0) == "transformer.h.0.attn.c_attn");
  const auto adapters = storage::SafetensorsFile::open(site / "adapter/adapter_model.safetensors");
  REQUIRE(adapters);
  CHECK(adapters->find("base_model.model.transformer.h.0.attn.c_attn.lora_A.weight") != nullptr);
  for (const char* out : {"merged", "average"}) {
    Words words = {"export", "runs/one", "--out", out};
    if (out == std::string("average")) {
      words.push_back("--ema");
    }
    REQUIRE(site.call(words).exit_code == 0);
    const auto file = storage::SafetensorsFile::open(site / out / "model.safetensors");
    REQUIRE(file);
    CHECK(file->find("transformer.h.0.attn.c_attn.weight") != nullptr);
    CHECK(file->find("transformer.h.0.attn.c_attn.lora_A.weight") == nullptr);
  }
  CHECK(read_bytes(site / "merged/model.safetensors") !=
        read_bytes(site / "average/model.safetensors"));
  const Ended weights = site.call({"eval", "runs/one"});
  const Ended average = site.call({"eval", "runs/one", "--ema"});
  const Ended shared = site.call({"eval", "runs/one", "--ema", "--ranks", "2"});
  CHECK(average.exit_code == 0);
  CHECK(average.out != weights.out);
  CHECK(average.out == shared.out);
  const Words writing = {"generate", "runs/one", "--prompt", "the", "--tokens", "3", "--logprobs"};
  const Ended by_weights = site.call(writing);
  const Ended by_average = site.call(joined(writing, {"--ema"}));
  CHECK(by_average.exit_code == 0);
  CHECK(lines_of(by_average.out).size() == lines_of(by_weights.out).size());
  CHECK(by_average.out != by_weights.out);
}

TEST_CASE("adapters: what does not fit is said in one line", "[integration][adapters]") {
  const RunSite site;
  const auto refused = [&](const Words& keys, const std::string& text) {
    const Ended ended = site.start_run(keys)->wait();
    INFO(ended.err);
    CHECK(ended.exit_code == 2);
    CHECK(has(ended.err, text));
    CHECK(lines_of(ended.err).size() == 1);
  };
  refused({"lora.rank=2", "lora.targets=[\"q_proj\"]"}, "lora.targets: \"q_proj\" matches no");
  refused({"lora.rank=60000"}, "lora.rank is 60000, but ");
  refused({"lora.rank=2", "lora.dropout=0.1"}, "lora.dropout is 0.1");
  refused({"train.freeze=[\"*\"]"}, "train.freeze leaves nothing to train");
  site.train({"run.steps=2", "run.name=plain"});
  const Ended peft = site.call({"export", "runs/plain", "--format", "peft", "--out", "a"});
  CHECK(peft.exit_code == 2);
  CHECK(has(peft.err, "has trained no adapters"));
  for (const char* command : {"eval", "generate"}) {
    const Ended average = site.call({command, "runs/plain", "--ema"});
    CHECK(average.exit_code == 2);
    CHECK(has(average.err, "keeps no average"));
  }
}
