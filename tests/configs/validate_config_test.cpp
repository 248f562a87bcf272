#include "configs/validate_config.hpp"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "configs/fields/field_table.hpp"
#include "configs/load_config.hpp"
#include "configs/rules/idle_keys.hpp"

namespace train::configs::validate_config_test {
namespace {

const std::vector<std::string> kBase = {"run.name=a", "model.arch=enoki", "data.dir=d"};

// "" if the overrides make a valid configuration, else the message.
std::string verdict(const std::vector<std::string>& overrides) {
  std::vector<std::string> all = kBase;
  all.insert(all.end(), overrides.begin(), overrides.end());
  const Result<RunConfig> result = parse_config("", "x.toml", all);
  return result.ok() ? "" : result.error().message;
}

void check_refused(const std::string& override_text, const std::string& part) {
  const std::string message = verdict({override_text});
  INFO(override_text << " -> " << message);
  CHECK(message.starts_with("--set " + override_text + ": "));
  CHECK(message.find(part) != std::string::npos);
}

TEST_CASE("validate_config: values out of range are refused with the range",
          "[configs][validate_config]") {
  check_refused("run.steps=0", "must be 1 .. 1000000000, found 0");
  check_refused("run.steps=-5", "found -5");
  check_refused("run.seed=-1", "found the integer -1");
  check_refused("data.sequence_length=1", "must be 2 ..");
  check_refused("batch.lanes=0", "must be 1 ..");
  check_refused("batch.micro_batch=0", "must be 1 ..");
  check_refused("model.heads=0", "must be 1 ..");
  check_refused("model.layers=-1", "must be 0 ..");
  check_refused("optimizer.lr=0", "must be 0 < x");
  check_refused("optimizer.lr=-1e-3", "must be 0 < x");
  check_refused("optimizer.lr=nan", "found nan");
  check_refused("optimizer.lr=inf", "found inf");
  check_refused("optimizer.weight_decay=-inf", "found -inf");
  check_refused("optimizer.beta1=1.0", "must be 0 <= x < 1");
  check_refused("optimizer.beta2=-0.1", "must be 0 <= x < 1");
  check_refused("optimizer.eps=0", "must be 0 < x");
  check_refused("schedule.div_factor=0", "must be 0 < x");
  check_refused("checkpoint.keep_last=-1", "must be 0 ..");
}

TEST_CASE("validate_config: where the board listens is an address and a port",
          "[configs][validate_config]") {
  for (const char* text : {"8080", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1",
                           "example.org:80", "[::1:80", "127.0.0.1:80x", "256.0.0.1:80"}) {
    check_refused(std::string("status.listen=") + text,
                  "status.listen must be an address of this machine and a port");
  }
  for (const char* text : {"", "127.0.0.1:8080", "[::1]:0", "localhost:7", "10.1.2.3:65535"}) {
    CHECK(verdict({std::string("status.listen=") + text}).empty());
  }
}

TEST_CASE("validate_config: which checkpoints stay", "[configs][validate_config]") {
  check_refused("checkpoint.keep_every=-1", "must be 0 ..");
  check_refused("checkpoint.drain_s=-1", "must be 0 ..");
  check_refused("checkpoint.local_dir=", "\"none\" writes checkpoints straight");
  CHECK(verdict({"checkpoint.keep_every=7", "checkpoint.local_dir=/scratch/x"}).empty());
  const std::string best = "checkpoint.keep_best=2";
  CHECK(verdict({best}).empty());
  CHECK(verdict({best, "eval.interval_steps=50", "checkpoint.interval_steps=200"}).empty());
  CHECK(verdict({"eval.interval_steps=0"}).empty());  // the default keeps one where there is one
  CHECK(verdict({"checkpoint.keep_best=1", "eval.interval_steps=30"}).empty());
  for (const std::string evaluated : {"eval.interval_steps=0", "eval.interval_steps=30"}) {
    const std::string message = verdict({best, evaluated});
    CHECK(message.starts_with("--set checkpoint.keep_best=2: checkpoint.keep_best is 2"));
    CHECK(message.find("must divide checkpoint.interval_steps (100)") != std::string::npos);
  }
}

TEST_CASE("validate_config: names list what is allowed and the nearest",
          "[configs][validate_config]") {
  check_refused("model.arch=enoky",
                "\"enoki\", \"dstar_qwen3\", \"qwen3\"; did you mean \"enoki\"?");
  check_refused("model.init_scheme=scaled", "\"karpathy_gpt2\"");
  check_refused("optimizer.name=adam", "supports \"adamw\", \"adamw-decaying-wd\", \"adana\", ");
  check_refused("optimizer.name=dana-star-mk5", "did you mean \"dana-star-mk4\"?");
  check_refused("optimizer.name=mu0n", "\"d-muon\"; did you mean \"muon\"?");
  check_refused("schedule.name=cosine", "\"cos\", \"linear\", \"cos_inf\", \"wsd\", \"constant\"");
  check_refused("schedule.decay_shape=cos", "\"linear\", \"cosine\", \"mirror_cosine\"");
  check_refused("schedule.decay_fraction=1.5", "must be 0 <= x <= 1");
  check_refused("data.order=shuffle", "\"lanes\", \"dstar\"");
  check_refused("data.seed=-1", "found the integer -1");
  check_refused("parallel.strategy=ful", "did you mean \"full\"?");
  check_refused("parallel.transport=mpi", "\"auto\", \"tcp\", \"nccl\", \"inproc\"");
  check_refused("precision.master=bf16", "supports \"fp32\"");
  check_refused("precision.compute=fp16", "\"fp32\", \"bf16\"");
  check_refused("precision.reduce=fp16", "\"fp32\", \"bf16\"");
  check_refused("precision.determinism=none", "\"world\", \"run\"");
  check_refused("runtime.device=gpu", "this version supports \"cpu\", \"cuda\"");
}

TEST_CASE("validate_config: memory of devices travels between devices",
          "[configs][validate_config]") {
  CHECK(verdict({"runtime.device=cuda"}).empty());
  for (const std::string transport : {"auto", "tcp", "nccl", "inproc", "gloo"}) {
    CHECK(verdict({"batch.lanes=4", "runtime.device=cuda", "parallel.ranks=2",
                   "parallel.transport=" + transport})
              .empty());
  }
  const std::string message = verdict({"parallel.transport=nccl"});
  CHECK(message.starts_with("--set parallel.transport=nccl: parallel.transport is \"nccl\""));
  CHECK(message.find("runtime.device is \"cpu\"") != std::string::npos);
}

TEST_CASE("validate_config: the run's name stays inside its directory",
          "[configs][validate_config]") {
  check_refused("run.name=", "is empty");
  check_refused("run.name=../x", "one directory below run.dir");
  check_refused("run.name=a/b", "one directory below run.dir");
  check_refused("run.name=..", "one directory below run.dir");
  check_refused("run.name=\"a\\u0007\"", "printable");
  check_refused("run.name=\"a\\u0000\"", "zero byte");
  CHECK(verdict({"run.name=" + std::string(201, 'n')}).find("200 bytes") != std::string::npos);
  CHECK(verdict({"run.name=..a"}).empty());
  check_refused("run.dir=", "is empty");
  check_refused("data.dir=", "is empty");
}

TEST_CASE("validate_config: rules between keys", "[configs][validate_config]") {
  check_refused("model.head_dim=33", "must be even");
  check_refused("data.seed=7", "belongs to data.order \"dstar\"");
  CHECK(verdict({"data.seed=1337"}).empty());
  CHECK(verdict({"data.seed=7", "data.order=dstar"}).empty());
  check_refused("schedule.warmup_steps=-1", "must be 0 ..");
  CHECK(verdict({"schedule.name=cos", "schedule.warmup_steps=1"}).empty());
  check_refused("schedule.constant_tail_steps=3", "belongs to schedule \"cos_inf\"");
  CHECK(verdict({"schedule.name=cos_inf", "run.steps=10", "schedule.warmup_steps=4",
                 "schedule.constant_tail_steps=6"})
            .empty());
  CHECK(verdict({"schedule.name=cos_inf", "run.steps=10", "schedule.warmup_steps=4",
                 "schedule.constant_tail_steps=7"})
            .find("exceed run.steps (10)") != std::string::npos);
  CHECK(verdict({"schedule.name=wsd", "run.steps=10", "schedule.warmup_steps=7",
                 "schedule.decay_fraction=0.39"})
            .empty());
  CHECK(verdict({"schedule.name=wsd", "run.steps=10", "schedule.warmup_steps=7",
                 "schedule.decay_fraction=0.4"})
            .find("is 4 steps, which exceed the run") != std::string::npos);
  CHECK(verdict({"schedule.name=wsd", "schedule.decay_shape=exp"})
            .find("schedule.decay_floor must be above 0") != std::string::npos);
}

TEST_CASE("validate_config: keys of text or integer", "[configs][validate_config]") {
  for (const char* good :
       {"parallel.reshard=never", "parallel.reshard=2", "parallel.sync=auto",
        "parallel.sync=every_lane", "parallel.sync=last_lane", "parallel.sync=1",
        "memory.activation_checkpointing=all", "memory.activation_checkpointing=none",
        "memory.activation_checkpointing=1"}) {
    INFO(good);
    CHECK(verdict({good}).empty());
  }
  check_refused("parallel.reshard=1", "must be \"never\", \"after_forward\", 2 .. 65536");
  check_refused("parallel.reshard=-2", "found \"-2\"");
  check_refused("parallel.reshard=02", "found \"02\"");
  check_refused("parallel.reshard=after_foward", "did you mean \"after_forward\"?");
  check_refused("parallel.sync=0", "found \"0\"");
  check_refused("parallel.sync=sometimes", "\"last_lane\", 1 .. 65536");
  check_refused("memory.activation_checkpointing=0", "found \"0\"");
  check_refused("memory.activation_checkpointing=some", "\"none\", \"all\", 1 .. 4096");
  check_refused("memory.checkpointed_part=mpl", "did you mean \"mlp\"?");
  check_refused("memory.checkpointed_part=mlp", "set memory.activation_checkpointing");
  CHECK(verdict({"memory.activation_checkpointing=all", "memory.checkpointed_part=mlp"}).empty());
  check_refused("memory.offload=disk", "\"optimizer\", \"parameters\"");
  check_refused("memory.offload=optimizer", "on the CPU all memory is the host's");
  const std::string device = "runtime.device=cuda";
  const std::string parameters = "memory.offload=parameters";
  CHECK(verdict({device, "memory.offload=optimizer"}).empty());
  CHECK(verdict({device, parameters}).find("the only weights") != std::string::npos);
  CHECK(verdict({device, parameters, "precision.compute=bf16"}).empty());
  CHECK(verdict({device, parameters, "parallel.strategy=full"}).empty());
  const std::vector<std::string> two = {device, parameters, "parallel.strategy=full",
                                        "parallel.ranks=2"};
  CHECK(verdict(two).find("NCCL takes what it sends from the device's memory") !=
        std::string::npos);
  CHECK(verdict({device, parameters, "parallel.strategy=full", "parallel.ranks=2",
                 "parallel.transport=tcp"})
            .empty());
}

TEST_CASE("validate_config: bf16 weights are made only where there are fp32 ones to make them of",
          "[configs][validate_config]") {
  const std::string made = "memory.bf16_weights=made";
  check_refused(made, "layers read fp32 weights");
  check_refused("memory.bf16_weights=lost", "\"kept\", \"made\"");
  const std::vector<std::string> one = {"runtime.device=cuda", "precision.compute=bf16", made};
  const auto with = [&](std::vector<std::string> keys) {
    keys.insert(keys.begin(), one.begin(), one.end());
    return verdict(keys);
  };
  CHECK(with({}).empty());
  CHECK(with({"precision.compute=fp32"}).find("layers read fp32 weights") != std::string::npos);
  CHECK(with({"memory.offload=optimizer"}).empty());
  CHECK(with({"memory.offload=parameters"}).find("leaves the fp32 weights to the host") !=
        std::string::npos);
  for (const std::string strategy : {"optimizer", "gradient"}) {
    CHECK(with({"parallel.strategy=" + strategy}).empty());
    CHECK(with({"parallel.strategy=" + strategy, "parallel.ranks=2"})
              .find("no rank has all of a layer's fp32 weights") != std::string::npos);
  }
  CHECK(with({"parallel.strategy=none", "parallel.ranks=2"}).empty());
}

TEST_CASE("validate_config: ranks, groups and nodes fit each other", "[configs][validate_config]") {
  CHECK(verdict({"batch.lanes=6", "parallel.ranks=6"}).empty());
  CHECK(verdict({"batch.lanes=6", "parallel.ranks=7"}) ==
        "--set parallel.ranks=7: parallel.ranks is 7, but a step has 6 lanes and each rank needs "
        "one; raise batch.lanes or use fewer ranks");
  check_refused("parallel.ranks=0", "must be 1 .. 65536");
  check_refused("parallel.group=2", "only the strategy \"hybrid\" has groups");
  check_refused("parallel.port=65536", "must be 0 .. 65535");
  const std::vector<std::string> hybrid = {"batch.lanes=8", "parallel.ranks=6",
                                           "parallel.strategy=hybrid"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), hybrid.begin(), hybrid.end());
    return verdict(more);
  };
  CHECK(with({}).find("parallel.group must be a divisor of parallel.ranks (6)") !=
        std::string::npos);
  for (const char* group : {"1", "2", "3", "6"}) {
    CHECK(with({std::string("parallel.group=") + group}).empty());
  }
  CHECK(with({"parallel.group=4"}).find("found 4") != std::string::npos);
  CHECK(with({"parallel.group=12"}).find("found 12") != std::string::npos);
  CHECK(with({"parallel.group=3", "parallel.nodes=2", "parallel.interface=lo"}).empty());
  CHECK(with({"parallel.group=3", "parallel.nodes=2"}).find("name the private network") !=
        std::string::npos);
  CHECK(with({"parallel.group=3", "parallel.nodes=4"}).find("must be a divisor") !=
        std::string::npos);
  CHECK(with({"parallel.group=3", "parallel.nodes=12"}).find("must be a divisor") !=
        std::string::npos);
  CHECK(with({"parallel.group=3", "parallel.nodes=2", "parallel.transport=inproc"})
            .find("use \"tcp\"") != std::string::npos);
  CHECK(verdict({"batch.lanes=4", "parallel.ranks=4", "parallel.group=2",
                 "parallel.strategy_by_unit=[\"block * = hybrid\"]"})
            .empty());
  CHECK(verdict({"parallel.strategy_by_unit=[\"block * = hybrid\"]"})
            .find("parallel.group must be a divisor") != std::string::npos);
}

TEST_CASE("validate_config: what units are gathered as one, and strategies by unit",
          "[configs][validate_config]") {
  CHECK(verdict({"parallel.wrapping=by_size"}).empty());
  CHECK(verdict({"parallel.wrapping=[\"block *\",\"head\"]"}).empty());
  check_refused("parallel.wrapping=[]", "is empty");
  check_refused("parallel.wrapping=[\"by_size\",\"head\"]", "alone, or patterns");
  check_refused("parallel.wrapping=[\"head\",\"per_block\"]", "alone, or patterns");
  CHECK(verdict({"parallel.strategy_by_unit=[\"block 1=full\",\" embedding = none \"]"}).empty());
  check_refused("parallel.strategy_by_unit=block *", "write \"pattern = strategy\"");
  check_refused("parallel.strategy_by_unit=[\"= full\"]", "write \"pattern = strategy\"");
  check_refused("parallel.strategy_by_unit=[\"head =\"]", "write \"pattern = strategy\"");
  check_refused("parallel.strategy_by_unit=[\"head = ful\"]", "did you mean \"full\"?");
  const auto rule = parse_unit_strategy(" block *\t=  full ");
  REQUIRE(rule.has_value());
  CHECK(rule->pattern == "block *");
  CHECK(rule->strategy == "full");
}

TEST_CASE("validate_config: sizes are bounded before anything multiplies them",
          "[configs][validate_config][CF-3]") {
  check_refused("batch.lanes=1000000000000000", "must be 1 .. 65536");
  check_refused("batch.micro_batch=1000000000000000", "must be 1 .. 65536");
  check_refused("model.vocab_size=9223372036854775807", "must be 0 ..");
  CHECK(verdict({"batch.micro_batch=65536", "data.sequence_length=1048576"})
            .find("tokens a lane; at most 2147483647 fit") != std::string::npos);
  CHECK(verdict({"batch.lanes=65536", "batch.micro_batch=64", "data.sequence_length=2048"})
            .find("--set batch.lanes=65536: batch.lanes times") == 0);
  CHECK(verdict({"eval.lanes=65536", "batch.micro_batch=64", "data.sequence_length=2048"})
            .find("--set eval.lanes=65536: eval.lanes times") == 0);
  CHECK(
      verdict({"batch.lanes=65536", "batch.micro_batch=32", "data.sequence_length=2048"}).empty());
}

TEST_CASE("validate_config: every number at either end of its range never overflows",
          "[configs][validate_config][CF-3]") {
  for (const Field& field : all_fields()) {
    for (const bool highest : {false, true}) {
      RunConfig config;
      config.run.name = std::string("a");
      config.model.arch = std::string("enoki");
      config.data.dir = std::string("d");
      const bool number = std::visit(
          [&](auto* value) {
            using Value = std::remove_pointer_t<decltype(value)>;
            if constexpr (std::is_arithmetic_v<Value> && !std::is_same_v<Value, bool>) {
              *value = highest ? std::numeric_limits<Value>::max()
                               : std::numeric_limits<Value>::lowest();
              return highest || std::is_signed_v<Value>;
            } else {
              return false;
            }
          },
          field.locate(config));
      if (number) {
        INFO(field.key());
        const Status status = validate_config(config, KeyPositions{"x.toml", {}});
        REQUIRE_FALSE(status.ok());
        CHECK(status.error().message.starts_with("x.toml: " + field.key() + " must be "));
      }
    }
  }
}

namespace {

using Words = std::vector<std::string>;

const std::string kArch = "model.arch=enoki";

// Rows: a key, the keys under which it has no effect, and those under which it has one.
struct Row {
  std::string key;
  Words idle, needed;
};

const Words kSampled = {kArch, "run.sample_tokens=5", "run.sample_interval_steps=2"};
const Words kSampledPrompts = {kArch, "run.sample_tokens=5", "run.sample_interval_steps=2",
                               "run.sample_prompts=[\"y\"]"};

const std::vector<Row> kRows = {
    {"run.sample_prompt=x", {kArch}, {kArch, "run.sample_tokens=5"}},
    {"run.sample_prompt=x", kSampledPrompts, kSampled},
    {"run.sample_prompts=[\"x\"]", {kArch}, kSampled},
    {"run.sample_chats=[\"x\"]", {kArch}, kSampled},
    {"run.sample_temperature=0.5", {kArch}, kSampled},
    {"run.sample_seed=3", {kArch}, kSampled},
    {"model.init_scheme=standard", {"model.from=m"}, {kArch}},
    {"model.init_std=0.5", {"model.from=m"}, {kArch, "model.init_scheme=karpathy_gpt2"}},
    {"model.init_std=0.5", {kArch}, {kArch, "model.init_scheme=karpathy_gpt2"}},
    {"model.attention_output_gate=false", {kArch}, {"model.arch=dstar_qwen3"}},
    {"model.experts_per_token=1", {kArch}, {kArch, "model.experts=4"}},
    {"model.expert_hidden=8", {kArch}, {kArch, "model.experts=4"}},
    {"model.shared_expert_hidden=8", {kArch}, {kArch, "model.experts=4"}},
    {"model.router=softmax", {kArch}, {kArch, "model.experts=4"}},
    {"model.router_scale=2", {kArch}, {kArch, "model.experts=4"}},
    {"model.router_groups=2", {kArch}, {kArch, "model.experts=4"}},
    {"model.router_bias_rate=0.01", {kArch}, {kArch, "model.experts=4"}},
    {"model.router_bias_rate=0.01", {"model.from=m", "lora.rank=2"}, {"model.from=m"}},
    {"model.router_kept_groups=2",
     {kArch, "model.experts=8"},
     {kArch, "model.experts=8", "model.router_groups=4"}},
    {"model.mlp_hidden=8", {kArch, "model.experts=4", "model.expert_hidden=8"}, {kArch}},
    {"optimizer.wd_ts=5",
     {kArch, "optimizer.name=adana", "optimizer.weight_decay=0"},
     {kArch, "optimizer.name=adana"}},
    {"optimizer.wd_decaying=false",
     {kArch, "optimizer.name=adana", "optimizer.weight_decay=0"},
     {kArch, "optimizer.name=adana"}},
    {"optimizer.wd_coupling=lr_coupled",
     {kArch, "optimizer.name=adana", "optimizer.weight_decay=0"},
     {kArch, "optimizer.name=adana"}},
    {"optimizer.wd_ts=5",
     {kArch, "optimizer.name=adana", "optimizer.wd_decaying=false"},
     {kArch, "optimizer.name=adana"}},
    {"schedule.div_factor=5", {kArch, "schedule.name=wsd"}, {kArch}},
    {"schedule.final_div_factor=5", {kArch, "schedule.name=constant"}, {kArch}},
    {"schedule.decay_fraction=0.5", {kArch}, {kArch, "schedule.name=wsd"}},
    {"schedule.decay_shape=cosine", {kArch}, {kArch, "schedule.name=wsd"}},
    {"schedule.decay_floor=0.5", {kArch}, {kArch, "schedule.name=wsd"}},
    {"scaling.params=non_embedding", {kArch}, {"scaling.rule=enoki", "scaling.heads=3"}},
    {"scaling.tokens_per_parameter=5", {kArch}, {"scaling.rule=enoki", "scaling.heads=3"}},
    {"scaling.omega=5", {kArch}, {"scaling.rule=enoki", "scaling.heads=3"}},
    {"objective.target_seed=5",
     {kArch, "objective.name=sequential_unlearning", "objective.forget_loss=max_entropy"},
     {kArch, "objective.name=sequential_unlearning"}},
    {"eval.lanes=5", {kArch, "eval.interval_steps=0"}, {kArch}},
    {"checkpoint.keep_every=5", {kArch, "checkpoint.keep_last=0"}, {kArch}},
    {"checkpoint.keep_best=5", {kArch, "checkpoint.keep_last=0"}, {kArch}},
    {"recovery.max_respawns=5", {kArch, "recovery.rank_loss=stop"}, {kArch}},
    {"recovery.snapshot_interval_steps=5",
     {kArch, "recovery.rank_loss=stop"},
     {kArch, "parallel.ranks=2"}},
    {"recovery.snapshot_interval_steps=5", {kArch}, {kArch, "parallel.ranks=2"}},
    {"recovery.buddy_snapshots=false",
     {kArch, "recovery.rank_loss=stop"},
     {kArch, "parallel.ranks=2", "parallel.nodes=2", "parallel.interface=lo"}},
    {"recovery.buddy_snapshots=false",
     {kArch},
     {kArch, "parallel.ranks=2", "parallel.nodes=2", "parallel.interface=lo"}},
    {"recovery.start_wait_s=5",
     {kArch},
     {kArch, "parallel.ranks=2", "parallel.nodes=2", "parallel.interface=lo"}},
    {"recovery.node_wait_s=5",
     {kArch},
     {kArch, "parallel.ranks=2", "parallel.nodes=2", "parallel.interface=lo"}},
    {"watchdog.abort_after_s=5", {kArch, "watchdog.stall_s=0"}, {kArch}},
    {"status.token_file=t", {kArch}, {kArch, "status.listen=127.0.0.1:0"}},
    {"batch.radix=[16,4]", {kArch, "precision.determinism=run"}, {kArch}},
    {"parallel.wrap_min_parameters=5", {kArch, "parallel.wrapping=per_block"}, {kArch}},
    {"parallel.interface=lo", {kArch}, {kArch, "parallel.ranks=2"}},
    {"parallel.port=5", {kArch}, {kArch, "parallel.ranks=2"}},
    {"parallel.reshard=never",
     {kArch, "parallel.ranks=2", "parallel.strategy=none"},
     {kArch, "parallel.ranks=2", "parallel.strategy=full"}},
    {"parallel.gather_credits=2",
     {kArch, "parallel.ranks=2", "parallel.strategy=optimizer"},
     {kArch, "parallel.ranks=2", "parallel.strategy=full"}},
    {"parallel.prefetch_forward=2",
     {kArch, "parallel.ranks=2"},
     {kArch, "parallel.ranks=2", "parallel.strategy_by_unit=[\"block.* = full\"]"}},
    {"parallel.prefetch_backward=2",
     {kArch, "parallel.ranks=2", "parallel.strategy=gradient"},
     {kArch, "parallel.ranks=2", "parallel.strategy=hybrid", "parallel.group=2"}},
    {"parallel.strategy=full", {kArch}, {kArch, "parallel.ranks=2"}},
    {"parallel.strategy_by_unit=[\"block.* = full\"]", {kArch}, {kArch, "parallel.ranks=2"}},
    {"parallel.sync=last_lane", {kArch}, {kArch, "parallel.ranks=2"}},
    {"parallel.reshard=never", {kArch}, {kArch, "parallel.ranks=2", "parallel.strategy=full"}},
    {"parallel.gather_credits=2", {kArch}, {kArch, "parallel.ranks=2", "parallel.strategy=full"}},
    {"parallel.prefetch_forward=2", {kArch}, {kArch, "parallel.ranks=2", "parallel.strategy=full"}},
    {"parallel.prefetch_backward=2",
     {kArch},
     {kArch, "parallel.ranks=2", "parallel.strategy=full"}},
    {"parallel.gather_credits=2",
     {kArch, "parallel.ranks=2", "parallel.strategy=full", "parallel.reshard=never"},
     {kArch, "parallel.ranks=2", "parallel.strategy=full"}},
    {"train.ema_warmup=true", {kArch}, {kArch, "train.ema=0.5"}},
    {"train.stop_after.metric=val_accuracy", {kArch}, {kArch, "train.stop_after.patience=2"}},
};

/// Notes about a run file with these keys.
Words notes_of(const Words& set) {
  KeyPositions places;
  const auto config =
      parse_config("[run]\nname = \"a\"\n[data]\ndir = \"d\"\n", "x.toml", set, &places);
  INFO(fmt::format("{}", fmt::join(set, " ")));
  REQUIRE(config.ok());
  return idle_key_notes(*config, places);
}

}  // namespace

TEST_CASE("validate_config: a key without effect under others' values is noted",
          "[configs][validate_config]") {
  std::set<std::string> seen;
  for (const Row& row : kRows) {
    const std::string key = row.key.substr(0, row.key.find('='));
    Words idle = row.idle;
    idle.push_back(row.key);
    const Words noted = notes_of(idle);
    INFO(row.key);
    REQUIRE(noted.size() == 1);
    CHECK(noted.front().starts_with(fmt::format("--set {}: {} has no effect ", row.key, key)));
    Words needed = row.needed;
    needed.push_back(row.key);
    CHECK(notes_of(needed).empty());
    CHECK(notes_of(row.idle).empty());
    seen.insert(noted.front().substr(noted.front().find(": ")));
  }
  std::size_t all = 0;
  for (const IdleKeys& entry : idle_key_table()) {
    for (const std::string& key : split_choices(entry.keys)) {
      CHECK(find_field(key) != nullptr);
      ++all;
    }
  }
  CHECK(seen.size() == all);  // Each key of each row of the table has a case above.
}

TEST_CASE("validate_config: a key of the file is named with its line",
          "[configs][validate_config]") {
  const Result<RunConfig> result = parse_config(
      "[run]\nname = \"a\"\nsteps = 0\n[model]\narch = \"enoki\"\n[data]\ndir = \"d\"\n", "x.toml");
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().message == "x.toml:3: run.steps must be 1 .. 1000000000, found 0");
}

}  // namespace
}  // namespace train::configs::validate_config_test
