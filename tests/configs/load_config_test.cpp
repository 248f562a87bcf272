#include "configs/load_config.hpp"

#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/text/log.hpp"
#include "configs/fields/field_table.hpp"
#include "configs/words/other_words.hpp"
#include "tests/support/disks/temp_directory.hpp"
#include "tests/support/harness/error_output_file.hpp"

namespace train::configs::load_config_test {
namespace {

const std::string kMinimal =
    "[run]\nname = \"a\"\n[model]\narch = \"enoki\"\n[data]\ndir = \"d\"\n";

// The message of a configuration that must be refused, checked to be the user's and one line.
std::string refusal(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const Result<RunConfig> result = parse_config(text, "x.toml", overrides);
  if (result.ok()) {
    return "accepted";
  }
  CHECK(result.error().exit_code() == 2);
  std::istringstream lines(result.error().message);
  for (std::string line; std::getline(lines, line);) {
    INFO(line);
    CHECK((line.starts_with("x.toml") || line.starts_with("--set ")));
  }
  return result.error().message;
}

std::string refused_override(const std::string& text) { return refusal(kMinimal, {text}); }

RunConfig accepted(const std::string& text, const std::vector<std::string>& overrides = {}) {
  const Result<RunConfig> result = parse_config(text, "x.toml", overrides);
  INFO((result.ok() ? "" : result.error().message));
  REQUIRE(result.ok());
  return *result;
}

TEST_CASE("load_config: a minimal file takes every default", "[configs][load_config]") {
  const RunConfig config = accepted(kMinimal);
  CHECK(config.run.name == "a");
  CHECK(config.run.steps == 1000);
  CHECK(config.run.seed == 1337);
  CHECK(config.optimizer.beta2 == 0.95);
  CHECK(config.runtime.device == "cpu");
}

TEST_CASE("load_config: an epsilon that floats do not have is refused", "[configs][load_config]") {
  CHECK(refused_override("optimizer.eps=1e-50").find("optimizer.eps") != std::string::npos);
  CHECK(refused_override("optimizer.eps=1e-39").find("is 0 in the floats") != std::string::npos);
  CHECK(refused_override("optimizer.eps=1e-30") == "accepted");
}

TEST_CASE("load_config: a warm-up that leaves nothing of the run is cut to a tenth of it",
          "[configs][load_config]") {
  const auto warmup = [](const std::string& steps, const std::string& wanted) {
    return accepted(kMinimal, {"run.steps=" + steps, "schedule.warmup_steps=" + wanted})
        .schedule.warmup_steps;
  };
  CHECK(warmup("50", "49") == 49);
  CHECK(warmup("50", "50") == 5);
  CHECK(warmup("50", "80") == 5);
  CHECK(warmup("9", "1000000000") == 0);
  CHECK(warmup("1", "1") == 0);
  CHECK(warmup("1", "0") == 0);
  // Rules between keys see the cut value.
  CHECK(accepted(kMinimal, {"run.steps=50", "schedule.warmup_steps=80", "schedule.name=wsd",
                            "schedule.decay_fraction=0.9"})
            .schedule.warmup_steps == 5);
  CHECK(refusal(kMinimal, {"run.steps=50", "schedule.warmup_steps=80", "schedule.name=wsd",
                           "schedule.decay_fraction=0.92"})
            .find("exceed the run together with schedule.warmup_steps (5)") != std::string::npos);
}

TEST_CASE("load_config: a warm-up that is cut is one warning, and stays as it was cut",
          "[configs][load_config]") {
  const test::TempDirectory directory;
  const auto log = directory.path() / "log";
  const test::ErrorOutputFile capture(log);
  const auto warnings = [&log] {
    std::ifstream file(log);
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) {
      lines.push_back(line);
    }
    return lines;
  };
  const std::string text = kMinimal + "[schedule]\nwarmup_steps = 80\n";
  const RunConfig cut = accepted(text, {"run.steps=50"});
  REQUIRE(warnings().size() == 1);
  CHECK(
      warnings()[0].ends_with("warning x.toml:8: schedule.warmup_steps is 80, but the run has 50 "
                              "steps: cut to a tenth of them, 5"));
  // What is stored with the run reads back without another word.
  const std::string stored = to_toml(cut);
  CHECK(stored.find("warmup_steps = 5\n") != std::string::npos);
  CHECK(to_toml(accepted(stored)) == stored);
  CHECK(refusal(text, {"run.steps=50", "model.head_dim=33"}).find("must be even") !=
        std::string::npos);
  CHECK(warnings().size() == 1);
}

TEST_CASE("load_config: unknown keys name place and nearest key", "[configs][load_config]") {
  CHECK(refusal(kMinimal + "\n[run2]\n") ==
        "x.toml:8: unknown section \"run2\"; did you mean \"run\"?");
  CHECK(refusal("[run]\nname = \"a\"\nsede = 3\n") ==
        "x.toml:3: unknown key \"run.sede\"; did you mean \"run.seed\"?");
  CHECK(refusal("[model]\nlr = 3\n") ==
        "x.toml:2: unknown key \"model.lr\"; did you mean \"optimizer.lr\"?");
  CHECK(refusal("steps = 3\n") == "x.toml:1: unknown key \"steps\"; did you mean \"run.steps\"?");
  CHECK(refusal("[run]\nzzzzzzzzzz = 3\n") ==
        "x.toml:2: unknown key \"run.zzzzzzzzzz\"; \"actortrain config keys\" lists them all");
  CHECK(refused_override("run.stpes=3") ==
        "--set run.stpes=3: unknown key \"run.stpes\"; did you mean \"run.steps\"?");
}

TEST_CASE("load_config: all mistakes of a file are named at once, in its order",
          "[configs][load_config]") {
  CHECK(
      refusal("[run]\nname = \"a\"\nsteps = 0\nsede = 3\n[model]\narch = 3\n[data]\ndir = "
              "\"d\"\n[train2]\n[objective]\nbeta = 0.5\n",
              {"optimizer.lr=0", "run.stpes=3"}) ==
      "x.toml:3: run.steps must be 1 .. 1000000000, found 0\n"
      "x.toml:4: unknown key \"run.sede\"; did you mean \"run.seed\"?\n"
      "x.toml:6: model.arch must be text in quotes, found the integer 3\n"
      "x.toml:9: unknown section \"train2\"; did you mean \"train\"?\n"
      "x.toml:11: objective.beta is not an option of objective.name = \"pretrain\"; remove it, or "
      "choose one that has it: dpo, dpo_norm, simpo, wpo, orpo, kto, sequential_unlearning\n"
      "--set run.stpes=3: unknown key \"run.stpes\"; did you mean \"run.steps\"?\n"
      "--set optimizer.lr=0: optimizer.lr must be 0 < x <= 1000, found 0");
  // Rules between keys are asked once every value is one.
  CHECK(refusal(kMinimal, {"model.head_dim=33", "parallel.group=2"}) ==
        "--set model.head_dim=33: model.head_dim must be even (rotary positions rotate pairs of "
        "channels), found 33\n"
        "--set parallel.group=2: parallel.group is 2, but only the strategy \"hybrid\" has groups; "
        "set it to 0");
  CHECK(refusal("").find("data.dir is missing") != std::string::npos);
}

TEST_CASE("load_config: words of other programs are answered with this one's",
          "[configs][load_config]") {
  const auto meant = [](const std::string& set, const std::string& word) {
    INFO(set);
    CHECK(refused_override(set).ends_with(fmt::format("; did you mean \"{}\"?", word)));
  };
  meant("schedule.name=cosine", "cos");
  meant("schedule.name=cosin", "cos");  // and slips of them
  meant("parallel.strategy=fsdp", "full");
  meant("parallel.strategy=FSDP", "full");
  meant("parallel.strategy=ddp", "none");
  meant("parallel.strategy=zero1", "optimizer");
  meant("parallel.strategy=zero-2", "gradient");
  meant("parallel.strategy=zero3", "full");
  meant("optimizer.name=adam", "adamw");
  meant("precision.compute=bfloat16", "bf16");
  meant("runtime.device=gpu", "cuda");
  meant("objective.name=clm", "pretrain");
  CHECK(refused_override("objective.name=GRPO").ends_with("; that method is not here"));
  meant("optimiser.lr=1", "optimizer.lr");
  CHECK(refused_override("optimiser=1").ends_with("; did you mean \"optimizer\"?"));
  meant("optimizer.learning_rate=1", "optimizer.lr");
  meant("train.max_steps=1", "run.steps");
  meant("batch.batch_size=1", "batch.micro_batch");
  meant("run.gradient_accumulation_steps=1", "batch.lanes");
  meant("model.n_layer=1", "model.layers");
  CHECK(refusal("[training]\nsteps = 1\n").find("did you mean \"run\"?") != std::string::npos);
}

TEST_CASE("load_config: every word of another program stands for one that there is",
          "[configs][load_config]") {
  for (const OtherWords& entry : other_words()) {
    INFO(entry.scope << " " << entry.meant);
    if (entry.scope == "key") {
      CHECK(find_field(entry.meant) != nullptr);
    } else if (entry.scope == "section") {
      CHECK(std::ranges::count(all_fields(), entry.meant, &Field::section) > 0);
    } else if (const Field* field = find_field(entry.scope)) {
      const std::vector<std::string> choices = split_choices(*field);
      CHECK(std::ranges::count(choices, entry.meant) == 1);
      for (const std::string& word : split_choices(entry.words)) {
        INFO(word);
        CHECK(std::ranges::count(choices, word) == 0);  // Otherwise never asked.
      }
    } else {
      CHECK((entry.scope == "command" || entry.scope == "option"));
    }
    const Vocabulary all = vocabulary(entry.scope);
    for (const std::string& word : split_choices(entry.words)) {
      INFO(word);
      CHECK(std::ranges::count(all.words, word) == 1);
    }
  }
}

TEST_CASE("load_config: wrong types name what is wanted and what was found",
          "[configs][load_config]") {
  CHECK(refusal("[run]\nname = 3\n") ==
        "x.toml:2: run.name must be text in quotes, found the integer 3");
  CHECK(refusal("[run]\nsteps = 2.0\n") ==
        "x.toml:2: run.steps must be an integer, found the number 2.0");
  CHECK(refusal("[run]\nsteps = \"2\"\n") ==
        "x.toml:2: run.steps must be an integer, found the text \"2\"");
  CHECK(refusal("[run]\n\ntensorboard = 1\n") ==
        "x.toml:3: run.tensorboard must be a boolean, found the integer 1");
  CHECK(refusal("[optimizer]\nlr = true\n") ==
        "x.toml:2: optimizer.lr must be a number, found the boolean true");
  CHECK(refusal("[optimizer]\nlr = [1]\n") ==
        "x.toml:2: optimizer.lr must be a number, found an array");
  CHECK(refusal("[run.steps]\n") == "x.toml:1: run.steps must be an integer, found a table");
  CHECK(refusal("[run]\nname = 2024-01-01\n") ==
        "x.toml:2: run.name must be text in quotes, found a date or time");
  CHECK(refusal("run = 3\n") == "x.toml:1: run must be a section \"[run]\", found the integer 3");
  CHECK(refusal("[[run]]\nname = \"a\"\n") ==
        "x.toml:1: run must be a section \"[run]\", found an array");
}

TEST_CASE("load_config: a broken file names the line", "[configs][load_config]") {
  CHECK(refusal("[run]\nname = \n").starts_with("x.toml:2: not valid TOML: "));
  CHECK(refusal("[run]\nname = \"a\"\nname = \"b\"\n").starts_with("x.toml:3: not valid TOML: "));
  CHECK(refusal("[run\n").starts_with("x.toml:1: not valid TOML: "));
  // What the parser says of the likeliest slips does not tell what to do.
  CHECK(refusal("[run]\nname = me\n").ends_with("; text is written in quotes"));
  CHECK(refusal("[run]\nname = \"me\n").ends_with("; is a closing quote missing?"));
  CHECK(refusal("[run]\nsteps = 1\n[run]\nseed = 2\n").ends_with(", or remove one"));
  CHECK(refusal("[run]\nsteps = 1\nsteps = 2\n").ends_with(", or remove one"));
  CHECK(refusal(std::string("[run]\nname = \"\xff\xfe\"\n")).starts_with("x.toml:2: not valid"));
  CHECK(refusal("[batch]\nlanes = 99999999999999999999\n").starts_with("x.toml:2: not valid"));
}

TEST_CASE("load_config: a missing required key says what to add", "[configs][load_config]") {
  CHECK(refusal("").starts_with("x.toml: run.name is missing; add name = ... under [run]"));
  CHECK(refusal("[run]\nname = \"a\"\n[data]\ndir = \"d\"\n")
            .starts_with("x.toml: model.arch is missing; add arch = ..., config = ... or from = "));
  CHECK(refusal("[run]\nname = \"a\"\n[model]\narch = \"enoki\"\n")
            .starts_with("x.toml: data.dir is missing"));
  CHECK(accepted("", {"run.name=a", "model.arch=enoki", "data.dir=d"}).data.dir == "d");
}

TEST_CASE("load_config: a published model stands for an architecture", "[configs][load_config]") {
  const std::string rest = "[run]\nname = \"a\"\n[data]\ndir = \"d\"\n";
  const RunConfig from = accepted(rest + "[model]\nfrom = \"m\"\n");
  CHECK(from.model.arch.empty());
  CHECK(from.model.z_loss_coeff == 0.0);
  CHECK(accepted(rest + "[model]\nconfig = \"gpt2\"\nz_loss_coeff = 0.5\n").model.z_loss_coeff ==
        0.5);
  CHECK(accepted(rest + "[model]\narch = \"enoki\"\n").model.z_loss_coeff == 1e-4);
  CHECK(refusal(rest + "[model]\nfrom = \"m\"\nconfig = \"gpt2\"\n").find("remove one of them") !=
        std::string::npos);
  CHECK(refusal(rest + "[model]\nfrom = \"m\"\narch = \"enoki\"\n").find("remove one of them") !=
        std::string::npos);
  CHECK(refusal(rest + "[model]\nconfig = \"gpt2\"\nqk_norm = false\n")
            .find("model.qk_norm belongs to model.arch") != std::string::npos);
  CHECK(refusal(rest + "[model]\narch = \"\"\n").find("model.arch is missing") !=
        std::string::npos);
}

TEST_CASE("load_config: experts that cannot be are refused by their key",
          "[configs][load_config]") {
  const std::string rest = "[run]\nname = \"a\"\n[data]\ndir = \"d\"\n";
  const std::string arch = rest + "[model]\narch = \"enoki\"\n";
  const std::string published = rest + "[model]\nconfig = \"mixtral-8x7b\"\n";
  const auto has = [](const std::string& text, const char* part) {
    INFO(refusal(text));
    CHECK(refusal(text).find(part) != std::string::npos);
  };
  has(arch + "experts = 4\nexperts_per_token = 5\n",
      "model.experts_per_token is 5, but a layer has 4 experts");
  has(arch + "balance = [\"z:0.1\"]\n", "model.balance needs experts");
  has(arch + "experts = 4\nrouter = \"sigmoids\"\n", "model.router");
  has(arch + "experts = 6\nrouter_groups = 4\n",
      "model.router_groups is 4, but 6 experts are not divided");
  has(arch + "experts = 4\nrouter_groups = 4\n", "model.router_groups is 4");  // Groups of one.
  has(arch + "experts = 8\nrouter_groups = 2\nrouter_kept_groups = 3\n",
      "model.router_kept_groups is 3 of 2 groups");
  has(arch + "experts = 8\nexperts_per_token = 3\nrouter_groups = 4\n",
      "model.router_kept_groups is 1, groups of 2 experts in all");
  CHECK(accepted(arch + "experts = 8\nrouter = \"sigmoid_normalised\"\nrouter_groups = 4\n"
                        "router_kept_groups = 2\nrouter_bias_rate = 0.001\n")
            .model.router_groups == 4);
  has(published + "experts = 4\n", "model.experts belongs to model.arch");
  CHECK(accepted(published + "router_bias_rate = 0.001\n").model.router_bias_rate == 0.001);
  has(rest + "[model]\nexperts = 4\n[scaling]\nrule = \"enoki\"\nheads = 3\n",
      "model.experts does not go with scaling.rule");
  CHECK(accepted(arch + "experts = 4\nbalance = \"z:0.1\"\n").model.balance.size() == 1);
  CHECK(accepted(published + "balance = [\"none\"]\n").model.balance.front() == "none");
}

TEST_CASE("load_config: overrides replace in order, after the file", "[configs][load_config]") {
  const RunConfig config = accepted(
      kMinimal + "[batch]\nlanes = 2\n",
      {"run.steps=5", "run.steps=7", "optimizer.lr=1", "run.tensorboard=false",
       "run.name=second run", "run.sample_prompt=\"a\\tb\"", "batch.lanes=0x10", "data.dir=a=b"});
  CHECK(config.run.steps == 7);
  CHECK(config.optimizer.lr == 1.0);
  CHECK_FALSE(config.run.tensorboard);
  CHECK(config.run.name == "second run");
  CHECK(config.run.sample_prompt == "a\tb");
  CHECK(config.batch.lanes == 16);
  CHECK(config.data.dir == "a=b");
}

TEST_CASE("load_config: a key of text or integer takes both", "[configs][load_config]") {
  CHECK(accepted(kMinimal + "[parallel]\nreshard = 2\n").parallel.reshard == "2");
  CHECK(accepted(kMinimal + "[parallel]\nreshard = \"2\"\n").parallel.reshard == "2");
  CHECK(accepted(kMinimal + "[parallel]\nreshard = \"never\"\n").parallel.reshard == "never");
  CHECK(accepted(kMinimal + "[parallel]\nreshard = 0x10\n").parallel.reshard == "16");
  CHECK(accepted(kMinimal, {"parallel.reshard=16"}).parallel.reshard == "16");
  CHECK(accepted(kMinimal, {"parallel.reshard=never"}).parallel.reshard == "never");
  CHECK(accepted(kMinimal, {"parallel.sync=\"2\""}).parallel.sync == "2");
  CHECK(accepted(kMinimal, {"memory.activation_checkpointing=3"}).memory.activation_checkpointing ==
        "3");
  CHECK(refusal("[parallel]\nreshard = true\n") ==
        "x.toml:2: parallel.reshard must be text in quotes or an integer, found the boolean true");
  CHECK(refusal("[parallel]\nsync = 1.0\n").find("found the number 1.0") != std::string::npos);
}

TEST_CASE("load_config: adapters, and what of [lora] is refused", "[configs]") {
  const RunConfig config =
      accepted(kMinimal + "[lora]\nrank = 8\ntargets = [\"q_proj\", \"*.mlp.*\"]\n");
  CHECK(config.lora.rank == 8);
  CHECK(config.lora.alpha == 16.0);
  CHECK(config.lora.targets == std::vector<std::string>{"q_proj", "*.mlp.*"});
  const auto names = [](const std::string& section, const std::string& mistake) {
    INFO(section);
    CHECK(refusal(kMinimal + section).find(mistake) != std::string::npos);
  };
  names("[lora]\nrank = 8\ndropout = 0.1\n",
        "lora.dropout is 0.1, but dropout on adapters is not supported; set it to 0");
  names("[lora]\nrank = 8\ntargets = []\n", "lora.targets is empty");
  names("[lora]\nrank = -1\n", "lora.rank must be");
  names("[lora]\nalpha = 8.0\n", "lora.rank is 0, so that no adapter is trained");
  names("[train]\nema = 1.0\n", "train.ema must be");
}

TEST_CASE("load_config: a list of texts takes one text too", "[configs][load_config]") {
  using List = std::vector<std::string>;
  CHECK(accepted(kMinimal).parallel.wrapping == List{"by_size"});
  CHECK(accepted(kMinimal).train.freeze.empty());
  CHECK(accepted(kMinimal + "[train]\nfreeze = [\"a\", \"b\"]\n").train.freeze == List{"a", "b"});
  CHECK(accepted(kMinimal + "[train]\nfreeze = \"a\"\n").train.freeze == List{"a"});
  CHECK(accepted(kMinimal + "[train]\nfreeze = []\n").train.freeze.empty());
  CHECK(accepted(kMinimal, {"parallel.wrapping=[\"block *\",\"head\"]"}).parallel.wrapping ==
        List{"block *", "head"});
  CHECK(accepted(kMinimal, {"train.freeze=block 1"}).train.freeze == List{"block 1"});
  CHECK(accepted(kMinimal, {"train.freeze=\"[ab]*\""}).train.freeze == List{"[ab]*"});
  CHECK(accepted(kMinimal + "[train]\nfreeze = \"a\"\n", {"train.freeze="}).train.freeze.empty());
  CHECK(accepted(kMinimal, {"train.freeze=a", "train.freeze=b"}).train.freeze == List{"b"});
  CHECK(refusal("[train]\nfreeze = [1]\n") ==
        "x.toml:2: train.freeze must be a list of texts in quotes, found an array");
  CHECK(refusal("[train]\nfreeze = 3\n") ==
        "x.toml:2: train.freeze must be a list of texts in quotes, found the integer 3");
  CHECK(refused_override("train.freeze=[a]").ends_with("found \"[a]\""));
  CHECK(refused_override("train.freeze=[\"\"]").ends_with("holds an empty text; leave it out"));
  CHECK(refused_override("train.freeze=\"\"").ends_with("holds an empty text; leave it out"));
}

TEST_CASE("load_config: a table within a section is its keys", "[configs][load_config]") {
  const std::string stop =
      kMinimal + "[train]\nstop_after = {metric = \"val_accuracy\", patience = 3}\n";
  CHECK(accepted(stop).train.stop_after.metric == "val_accuracy");
  CHECK(accepted(stop).train.stop_after.patience == 3);
  CHECK(accepted(kMinimal, {"train.stop_after={patience=2}"}).train.stop_after.patience == 2);
  CHECK(accepted(kMinimal, {"train.stop_after.patience=4"}).train.stop_after.patience == 4);
  CHECK(accepted(to_toml(accepted(stop))).train.stop_after.patience == 3);
  CHECK(refusal(kMinimal + "[train]\nstop_after = 3\n").find("unknown key \"train.stop_after\"") !=
        std::string::npos);
  CHECK(refusal(kMinimal, {"train.stop_after=3"})
            .starts_with("--set train.stop_after=3: train.stop_after must be a table"));
  CHECK(refusal(kMinimal, {"train.stop_after={patiense=3}"})
            .find("did you mean \"train.stop_after.patience\"") != std::string::npos);
}

TEST_CASE("load_config: a list of integers takes one integer too", "[configs][load_config]") {
  using List = std::vector<std::int64_t>;
  CHECK(accepted(kMinimal).batch.radix == List{2});
  CHECK(accepted(kMinimal + "[batch]\nradix = [16, 4]\n").batch.radix == List{16, 4});
  CHECK(accepted(kMinimal + "[batch]\nradix = 3\n").batch.radix == List{3});
  CHECK(accepted(kMinimal, {"batch.radix=[8,2]"}).batch.radix == List{8, 2});
  CHECK(accepted(kMinimal, {"batch.radix=16"}).batch.radix == List{16});
  CHECK(refusal("[batch]\nradix = [\"2\"]\n") ==
        "x.toml:2: batch.radix must be a list of integers, found an array");
  CHECK(refusal("[batch]\nradix = 2.0\n") ==
        "x.toml:2: batch.radix must be a list of integers, found the number 2.0");
  CHECK(refused_override("batch.radix=[]")
            .ends_with("batch.radix is empty; give one number or several"));
  CHECK(refused_override("batch.radix=[16, 1]")
            .ends_with("batch.radix must hold numbers of 2 .. 65536, found 1"));
  CHECK(refused_override("batch.radix=[16,]x").ends_with("found \"[16,]x\""));
  CHECK(refused_override("batch.radix=").ends_with("found \"\""));
}

TEST_CASE("load_config: hostile overrides are refused in one line", "[configs][load_config]") {
  CHECK(refused_override("run.steps").ends_with("wants section.key=value"));
  CHECK(refused_override("=3").ends_with("wants section.key=value"));
  CHECK(refused_override("").ends_with("wants section.key=value"));
  CHECK(refused_override("run.steps=").ends_with("must be an integer, found \"\""));
  CHECK(refused_override("run.seed=18446744073709551616")
            .ends_with("must be 0 .. 9223372036854774784, found \"18446744073709551616\""));
  CHECK(refused_override("run.steps=1\nother=2").ends_with("the value must be one line"));
  CHECK(refused_override("run.steps=nan").ends_with("must be an integer, found the number nan"));
  CHECK(refused_override("run.name=\"open").ends_with("found \"\"open\""));
  CHECK(refused_override("run\nx.steps=1").find("unknown key") != std::string::npos);
  CHECK(refused_override("run.steps=99999999999999999999")
            .ends_with("must be 1 .. 1000000000, found \"99999999999999999999\""));
  CHECK(refused_override("run.steps=007").ends_with("must be an integer, found \"007\""));
}

TEST_CASE("load_config: an unreadable file is one line about the file", "[configs][load_config]") {
  const auto folder = std::filesystem::temp_directory_path() /
                      ("actortrain_load_config_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "run.toml").string();
  const std::string way_out = "; give the path of one, or make one with \"actortrain quickstart\"";
  CHECK(load_config(path).error().message == path + ": no such run file" + way_out);
  CHECK(load_config(folder.string()).error().message ==
        folder.string() + ": is a directory; name a .toml file in it");
  CHECK(load_config((folder / "none/run.toml").string()).error().message ==
        (folder / "none/run.toml").string() + ": no such run file: there is no directory " +
            (folder / "none").string() + way_out);
  std::ofstream(path) << kMinimal;
  CHECK(load_config(path).ok());
  const std::string stem = path.substr(0, path.size() - std::string(".toml").size());
  CHECK(load_config(stem).error().message ==
        stem + ": no such run file; did you mean \"" + path + "\"?");
  CHECK_THAT(parse_config("lr: 1", "x.toml").error().message,
             Catch::EndsWith("; a line is \"key = value\""));
  CHECK(load_config(path + "/deeper.toml").error().exit_code() == 2);
  std::ofstream(path) << std::string(2 << 20, '#');
  CHECK(load_config(path).error().message == path + ": larger than 1 MiB; this is not a run file");
  if (::geteuid() != 0) {  // root may read everything
    std::filesystem::permissions(path, std::filesystem::perms::none);
    CHECK(load_config(path).error().message == path + ": cannot be opened: Permission denied");
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace train::configs::load_config_test
