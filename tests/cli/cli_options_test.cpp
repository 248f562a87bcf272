#include <fmt/format.h>

#include <any>
#include <catch2/catch.hpp>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "actors/cluster/recovery/worker_rank.hpp"
#include "cli/options.hpp"

namespace train::cli::cli_options_test {
namespace {

Result<Command> parsed(std::initializer_list<const char*> words) {
  std::vector<const char*> argv = {"actortrain"};
  argv.insert(argv.end(), words);
  return parse(static_cast<int>(argv.size()), argv.data());
}

template <class Options>
Options accepted(std::initializer_list<const char*> words) {
  const Result<Command> command = parsed(words);
  INFO((command.ok() ? "" : command.error().message));
  REQUIRE(command.ok());
  REQUIRE(std::any_cast<Options>(&command->options) != nullptr);
  return std::any_cast<Options>(command->options);
}

std::string refused(std::initializer_list<const char*> words) {
  const Result<Command> command = parsed(words);
  if (command.ok()) {
    return "accepted";
  }
  CHECK(command.error().exit_code() == kExitUserError);
  CHECK(command.error().message.find('\n') == std::string::npos);
  return command.error().message;
}

TEST_CASE("options: run takes a file, overrides and flags", "[actors][cli]") {
  const auto plain = accepted<RunOptions>({"run", "a.toml"});
  CHECK(plain.config == "a.toml");
  CHECK(plain.set.empty());
  CHECK_FALSE(plain.dry_run);
  CHECK_FALSE(plain.fresh);
  CHECK_FALSE(plain.accept_data);
  const auto full = accepted<RunOptions>({"run", "--set", "run.steps=3", "a.toml", "--set",
                                          "run.name=a b", "--dry-run", "--fresh", "--accept-data"});
  CHECK(full.config == "a.toml");
  CHECK(full.set == std::vector<std::string>{"run.steps=3", "run.name=a b"});
  CHECK(full.dry_run);
  CHECK(full.fresh);
  CHECK(full.accept_data);
  const auto changed = accepted<RunOptions>({"run", "--accept-config", "optimizer.lr,optimizer.eps",
                                             "--accept-config", "schedule.name", "a.toml"});
  CHECK(changed.config == "a.toml");
  CHECK(changed.accept_config ==
        std::vector<std::string>{"optimizer.lr", "optimizer.eps", "schedule.name"});
  CHECK(accepted<RunOptions>({"run", "a.toml", "--set=data.dir=x=y"}).set.front() ==
        "data.dir=x=y");
}

TEST_CASE("options: what is no number is refused with the option's name", "[actors][cli]") {
  for (const char* text : {"hot", "", "1.5x", "0,5"}) {
    CAPTURE(text);
    CHECK(refused({"generate", "runs/a", "--temperature", text})
              .starts_with("actortrain generate: --temperature: wants a number, not \"" +
                           std::string(text)));
  }
  CHECK(accepted<GenerateOptions>({"generate", "runs/a", "--temperature", "1e-1"}).temperature ==
        0.1);
  CHECK(refused({"generate", "runs/a", "--temperature", "inf"}).find("--temperature") !=
        std::string::npos);
}

TEST_CASE("options: a word that is also a command's is taken for what the command asks for",
          "[actors][cli]") {
  CHECK(accepted<DescribeOptions>({"describe", "data"}).model == "data");
  CHECK(accepted<VerifyOptions>({"verify", "run"}).run_directory == "run");
  CHECK(accepted<ExportOptions>({"export", "plot", "--out", "eval"}).out == "eval");
}

TEST_CASE("options: run takes nodes and a profile", "[actors][cli]") {
  const auto plain = accepted<RunOptions>({"run", "a.toml"});
  CHECK_FALSE(plain.profile);
  CHECK_FALSE(plain.nodes.has_value());
  const auto full = accepted<RunOptions>({"run", "a.toml", "--profile", "--nodes", "2"});
  CHECK(full.profile);
  CHECK(full.nodes == std::optional<std::int64_t>(2));
  CHECK(refused({"run", "a.toml", "--nodes", "0"}).find("--nodes must be 1 or more, not 0") !=
        std::string::npos);
  CHECK(refused({"run", "a.toml", "--nodes", "two"}).find("--nodes") != std::string::npos);
}

TEST_CASE("options: plan takes a run file and overrides", "[actors][cli]") {
  const auto plan = accepted<PlanOptions>({"plan", "a.toml", "--set", "parallel.ranks=8"});
  CHECK(plan.config == "a.toml");
  CHECK(plan.set == std::vector<std::string>{"parallel.ranks=8"});
  CHECK(refused({"plan"}).starts_with("actortrain plan: "));
  CHECK(refused({"plan", "a.toml", "--fresh"}).find("unknown option") != std::string::npos);
}

TEST_CASE("options: replay takes a range of steps, verify a run", "[actors][cli]") {
  const auto plain = accepted<ReplayOptions>({"replay", "runs/a"});
  CHECK(plain.run_directory == "runs/a");
  CHECK_FALSE(plain.from);
  CHECK_FALSE(plain.to);
  CHECK_FALSE(plain.ranks);
  const auto range =
      accepted<ReplayOptions>({"replay", "a", "--from", "3", "--to", "3", "--ranks", "2"});
  CHECK(range.from == 3);
  CHECK(range.to == 3);
  CHECK(range.ranks == 2);
  CHECK(refused({"replay", "a", "--from", "4", "--to", "3"}).find("--from 4 is after --to 3") !=
        std::string::npos);
  for (const char* option : {"--from", "--to", "--ranks"}) {
    CHECK(refused({"replay", "a", option, "0"}).find("must be 1 or more") != std::string::npos);
    CHECK(refused({"replay", "a", option, "x"}).find(option) != std::string::npos);
  }
  CHECK(accepted<VerifyOptions>({"verify", "runs/a"}).run_directory == "runs/a");
  CHECK(refused({"verify"}).starts_with("actortrain verify: "));
}

TEST_CASE("options: eval takes one checkpoint or follows a run", "[actors][cli]") {
  const auto plain = accepted<EvalOptions>({"eval", "runs/a"});
  CHECK(plain.run_directory == "runs/a");
  CHECK_FALSE(plain.step.has_value());
  CHECK(plain.ranks == 1);
  CHECK_FALSE(plain.follow);
  const auto one = accepted<EvalOptions>({"eval", "runs/a", "--step", "0", "--ranks", "4"});
  CHECK(one.step == std::optional<std::int64_t>(0));
  CHECK(one.ranks == 4);
  CHECK(accepted<EvalOptions>({"eval", "runs/a", "--follow"}).follow);
  CHECK(refused({"eval", "a", "--follow", "--step", "3"}).find("give one of them") !=
        std::string::npos);
  CHECK(refused({"eval", "a", "--follow", "--step", "0"}).find("give one of them") !=
        std::string::npos);
  CHECK(refused({"eval", "a", "--ranks", "0"}).find("--ranks must") != std::string::npos);
  CHECK(refused({"eval", "a", "--step", "-1"}).find("--step must") != std::string::npos);
  CHECK(refused({"eval"}).starts_with("actortrain eval: "));
}

TEST_CASE("options: status takes a run", "[actors][cli]") {
  const auto status = accepted<StatusOptions>({"status", "runs/a"});
  CHECK(status.run_directory == "runs/a");
  CHECK_FALSE(status.json);
  CHECK(accepted<StatusOptions>({"status", "runs/a", "--json"}).json);
  CHECK(refused({"status"}).starts_with("actortrain status: "));
}

TEST_CASE("options: worker is understood but hidden", "[actors][cli]") {
  const auto worker = accepted<actors::WorkerOptions>(
      {"worker", "--head", "[::1]:4000", "--rank", "3", "--credentials", "d"});
  CHECK(worker.head == "[::1]:4000");
  CHECK(worker.rank == 3);
  CHECK(worker.credentials == "d");
  for (const char* head : {"host", "host:", ":4000", "host:x", "host:0", "host:70000", "a:1 "}) {
    INFO(head);
    CHECK(refused({"worker", "--head", head, "--rank", "0", "--credentials", "d"})
              .find("--head wants HOST:PORT") != std::string::npos);
  }
  CHECK(refused({"worker", "--head", "h:1", "--rank", "-1", "--credentials", "d"})
            .find("--rank must") != std::string::npos);
  CHECK(refused({"worker"}).starts_with("actortrain worker: "));
  CHECK(accepted<HelpOptions>({"--help"}).text.find("worker") == std::string::npos);
  CHECK(refused({"worke"}).find("worker") == std::string::npos);
}

TEST_CASE("options: overrides reach the loader unchanged", "[actors][cli]") {
  for (const char* text : {"run.name=", "run.name=[a, b]", "run.name=\"q\"", "run.name=-x", "",
                           "run.name={}", "run.name=a,b", "optimizer.lr=-1"}) {
    INFO(text);
    CHECK(accepted<RunOptions>({"run", "a.toml", "--set", text}).set ==
          std::vector<std::string>{text});
  }
}

TEST_CASE("options: generate has defaults and takes every option", "[actors][cli]") {
  const auto plain = accepted<GenerateOptions>({"generate", "runs/a"});
  CHECK(plain.run_directory == "runs/a");
  CHECK(plain.prompt.empty());
  CHECK(plain.tokens == 200);
  CHECK(plain.temperature == 0.8);
  CHECK_FALSE(plain.step.has_value());
  CHECK_FALSE(plain.latent_cache);
  CHECK(accepted<GenerateOptions>({"generate", "a", "--cache", "latent"}).latent_cache);
  CHECK_FALSE(accepted<GenerateOptions>({"generate", "a", "--cache", "expanded"}).latent_cache);
  CHECK(refused({"generate", "a", "--cache", "none"}).find("--cache must be expanded or latent") !=
        std::string::npos);
  const auto full = accepted<GenerateOptions>(
      {"generate", "runs/a", "--prompt", "In the ", "--tokens", "7", "--temperature", "0.5",
       "--top-k", "5", "--top-p", "0.9", "--seed", "18446744073709551615", "--step", "0"});
  CHECK(full.prompt == "In the ");
  CHECK(full.tokens == 7);
  CHECK(full.temperature == 0.5);
  CHECK(full.top_k == 5);
  CHECK(full.top_p == 0.9);
  CHECK(full.seed == 18446744073709551615U);
  CHECK(full.step == std::optional<std::int64_t>(0));
  CHECK(accepted<GenerateOptions>({"generate", "a", "--prompt", ""}).prompt.empty());
  CHECK(accepted<GenerateOptions>({"generate", "a", "--prompt=--x"}).prompt == "--x");
}

TEST_CASE("options: data prepare takes several inputs", "[actors][cli]") {
  const auto options =
      accepted<PrepareOptions>({"data", "prepare", "--input", "a.txt", "b.jsonl", "--input", "c",
                                "--out", "d", "--document-separator", "\n\n\n", "--force"});
  CHECK(options.inputs == std::vector<std::string>{"a.txt", "b.jsonl", "c"});
  CHECK(options.out == "d");
  CHECK(options.separator == "\n\n\n");
  CHECK(options.tokenizer == "bytes");
  CHECK(options.val_fraction == 0.05);
  CHECK(options.force);
}

TEST_CASE("options: data prepare makes rows, and data show prints them", "[actors][cli]") {
  const auto options = accepted<PrepareOptions>(
      {"data",           "prepare",   "--input",    "a.jsonl", "--out",         "d",
       "--row-length",   "2048",      "--template", "chatml",  "--train-on",    "last",
       "--val-fraction", "0",         "--packing",  "greedy",  "--max-dropped", "0.1",
       "--date",         "2025-01-31"});
  CHECK(options.row_length == 2048);
  CHECK(options.chat_template == "chatml");
  CHECK(options.train_on == "last");
  CHECK(options.packing == "greedy");
  CHECK(options.max_dropped == 0.1);
  CHECK(refused({"data", "prepare", "--input", "a.jsonl", "--out", "d", "--val-fraction", "0"})
            .find("--val-fraction") != std::string::npos);
  CHECK(refused({"data", "prepare", "--input", "a.jsonl", "--out", "d", "--kind", "chat"})
            .find("--row-length too") != std::string::npos);
  CHECK(refused({"data", "prepare", "--input", "a.jsonl", "--out", "d", "--row-length", "8",
                 "--train-on", "first"})
            .find("thinking or final") != std::string::npos);
  CHECK(refused({"data", "prepare", "--input", "a.jsonl", "--out", "d", "--row-length", "8",
                 "--max-dropped", "5"})
            .find("--max-dropped") != std::string::npos);
  CHECK(refused({"data", "prepare", "--input", "a.jsonl", "--out", "d", "--row-length", "8",
                 "--date", "today"})
            .find("YYYY-MM-DD") != std::string::npos);
  const auto shown = accepted<ShowOptions>({"data", "show", "d", "--row", "3"});
  CHECK((shown.dir == "d" && shown.row == 3 && shown.document == -1 && shown.split == "train"));
  CHECK(refused({"data", "show", "d", "--split", "test"}).find("train or val") !=
        std::string::npos);
}

TEST_CASE("options: export, convert and describe", "[actors][cli]") {
  const auto out = accepted<ExportOptions>({"export", "runs/a", "--out", "b", "--format", "hf",
                                            "--dtype", "fp16", "--max-shard-size", "2GiB"});
  CHECK(out.dtype == "fp16");
  CHECK(out.max_file_bytes == std::uint64_t{2} << 30);
  CHECK(accepted<ExportOptions>({"export", "a", "--out", "b"}).dtype == "fp32");
  CHECK(accepted<ExportOptions>({"export", "a", "--out", "b", "--max-file-bytes", "7B"})
            .max_file_bytes == 7);
  CHECK(
      accepted<ExportOptions>({"export", "a", "--out", "b", "--format", "gguf", "--dtype", "q8_0"})
          .dtype == "q8_0");
  CHECK(refused({"export", "a", "--out", "b", "--format", "onnx"}).find("--format must be hf") !=
        std::string::npos);
  CHECK(refused({"export", "a", "--out", "b", "--dtype", "q8_0"}).find("add --format gguf") !=
        std::string::npos);
  CHECK(refused({"export", "a", "--out", "b", "--format", "gguf-lora", "--dtype", "bf16"})
            .find("adapters as fp32") != std::string::npos);
  CHECK(refused({"convert", "a", "--out", "b", "--no-tokenizer"}).find("is for --format gguf") !=
        std::string::npos);
  CHECK(refused({"export", "a", "--out", "b", "--dtype", "fp8"})
            .find("--dtype must be fp32, bf16, fp16, q8_0 or q4_k_m") != std::string::npos);
  const auto again = accepted<ConvertOptions>({"convert", "in", "--out", "o", "--dtype", "bf16"});
  CHECK(again.in == "in");
  CHECK(again.out == "o");
  CHECK(again.dtype == "bf16");
  CHECK(accepted<ConvertOptions>({"convert", "in", "--out", "o"}).dtype.empty());
  CHECK(refused({"convert", "in"}).find("--out") != std::string::npos);
  CHECK(accepted<DescribeOptions>({"describe"}).model.empty());
  CHECK(accepted<DescribeOptions>({"describe", "gpt2"}).model == "gpt2");
}

TEST_CASE("options: tokenize and detokenize", "[actors][cli]") {
  const auto full =
      accepted<TokenizeOptions>({"tokenize", "--tokenizer", "t", "--lines", "--special", "f.txt"});
  CHECK(full.tokenizer == "t");
  CHECK(full.file == "f.txt");
  CHECK(full.lines);
  CHECK(full.special);
  const auto plain = accepted<TokenizeOptions>({"detokenize", "--tokenizer", "t"});
  CHECK(plain.file.empty());
  CHECK_FALSE(plain.lines);
  const auto spans = accepted<TokenizeOptions>(
      {"tokenize", "--tokenizer", "t", "--jsonl", "--spans", "--rendered"});
  CHECK(spans.spans);
  CHECK(spans.rendered);
  CHECK(refused({"tokenize", "--tokenizer", "t", "--spans"}).find("--jsonl") != std::string::npos);
  CHECK(refused({"tokenize"}).find("--tokenizer") != std::string::npos);
}

TEST_CASE("options: quickstart takes a directory, a text and overrides", "[actors][cli]") {
  CHECK(accepted<QuickstartOptions>({"quickstart"}).directory == "quickstart");
  const auto full = accepted<QuickstartOptions>(
      {"quickstart", "first", "--text", "a.txt", "--set", "run.steps=3", "--set", "run.seed=1"});
  CHECK(full.directory == "first");
  CHECK(full.text == "a.txt");
  CHECK(full.set == std::vector<std::string>{"run.steps=3", "run.seed=1"});
  CHECK(refused({"quickstart", ""}).find("the directory's name is empty") != std::string::npos);
}

TEST_CASE("options: recipes are listed, and checked by name", "[actors][cli]") {
  accepted<RecipeListOptions>({"recipe", "list"});
  const auto check =
      accepted<RecipeCheckOptions>({"recipe", "check", "lora", "--out", "a", "--model", "SmolLM2",
                                    "--steps", "20", "--set", "parallel.ranks=3"});
  CHECK(check.name == "lora");
  CHECK(check.out == "a");
  CHECK(check.model == "SmolLM2");
  CHECK(check.steps == 20);
  CHECK(check.set == std::vector<std::string>{"parallel.ranks=3"});
  CHECK_FALSE(check.record);
  CHECK(refused({"recipe", "check", "lora", "--steps", "0"}).find("1 or more") !=
        std::string::npos);
  CHECK(refused({"recipe", "check", "lora", "--steps", "2", "--record"}).find("exclude") !=
        std::string::npos);
  CHECK(refused({"recipe", "check"}).find("name") != std::string::npos);
}

TEST_CASE("options: log is known, and says where it is", "[actors][cli]") {
  const auto log =
      accepted<LogOptions>({"log", "runs/a", "--to", "wandb", "--project", "mine", "--once"});
  CHECK(log.run_directory == "runs/a");
  CHECK(log.to == "wandb");
  CHECK(log.project == "mine");
  CHECK(log.once);
  accepted<LogOptions>({"log"});
  CHECK(refused({"log", "runs/a", "--too", "wandb"}).find("did you mean \"--to\"?") !=
        std::string::npos);
}

TEST_CASE("options: config keys, its schema and version", "[actors][cli]") {
  CHECK(parsed({"config", "schema"}).ok());
  CHECK(accepted<KeysOptions>({"config", "keys"}).prefix.empty());
  CHECK(accepted<KeysOptions>({"config", "keys", "model"}).prefix == "model");
  accepted<VersionOptions>({"version"});
  accepted<VersionOptions>({"--version"});
}

TEST_CASE("options: help is a value and documents the exit codes", "[actors][cli]") {
  const std::string top = accepted<HelpOptions>({"--help"}).text;
  for (const char* word : {"run", "plan", "submit", "eval", "generate", "data", "config", "version",
                           "75", "resumes"}) {
    INFO(word);
    CHECK(top.find(word) != std::string::npos);
  }
  CHECK(accepted<HelpOptions>({"help"}).text == top);
  const std::string run = accepted<HelpOptions>({"run", "--help"}).text;
  CHECK(run.find("--dry-run") != std::string::npos);
  CHECK(run.find("Exit codes:") != std::string::npos);
  CHECK(accepted<HelpOptions>({"help", "run"}).text == run);
  CHECK(accepted<HelpOptions>({"data", "prepare", "--help"}).text.find("--val-fraction") !=
        std::string::npos);
  CHECK(accepted<HelpOptions>({"data", "--help"}).text.find("prepare") != std::string::npos);
}

TEST_CASE("options: unknown commands and options name the nearest", "[actors][cli]") {
  CHECK(refused({}) ==
        "actortrain: wants a command: quickstart, run, recipe, plan, submit, status, board, eval, "
        "generate, checkpoints, replay, verify, export, convert, merge, describe, scale, plot, "
        "log, data, tokenize, detokenize, render, config, completion, "
        "manual, version; \"actortrain --help\" explains");
  CHECK(refused({"rnu"}) ==
        "actortrain: unknown command \"rnu\"; did you mean \"run\"?; \"actortrain --help\" "
        "explains");
  CHECK(refused({"data"}).starts_with("actortrain data: wants a command: prepare"));
  CHECK(refused({"data", "prepar"}).find("did you mean \"prepare\"?") != std::string::npos);
  CHECK(refused({"config", "kyes"}).find("did you mean \"keys\"?") != std::string::npos);
  CHECK(
      refused({"run", "a.toml", "--dry"}).starts_with("actortrain run: unknown option \"--dry\""));
  CHECK(refused({"run", "a.toml", "--frsh"}).find("did you mean \"--fresh\"?") !=
        std::string::npos);
  const auto meant = [](std::initializer_list<const char*> words, const std::string& what) {
    INFO(what);
    CHECK(refused(words).find(fmt::format("did you mean \"{}\"?", what)) != std::string::npos);
  };
  meant({"board", "runs", "--port", "8080"}, "--listen");
  for (const char* command : {"show", "verify"}) {
    CHECK(refused({"checkpoints", command, "runs/a", "--step", "best"})
              .find("unknown option \"--step\"; it is named without an option") !=
          std::string::npos);
  }
  CHECK(refused({"verify", "runs/a", "--step", "5"})
            .find("unknown option \"--step\"; give it to \"actortrain checkpoints verify\"") !=
        std::string::npos);
  meant({"replay", "runs/a", "--step", "5"}, "--from");
  meant({"plot", "runs/a", "--metric", "lr"}, "--what");
  meant({"run", "a.toml", "--step", "5"}, "--set run.steps=...");
  meant({"run", "a.toml", "--sett", "run.steps=5"}, "--set");
  meant({"trian", "a.toml"}, "run");
  meant({"train", "a.toml"}, "run");
  meant({"prepare"}, "data prepare");
  meant({"run", "a.toml", "--steps", "5"}, "--set run.steps=...");
  meant({"run", "a.toml", "--run.steps=5"}, "--set run.steps=...");
  meant({"run", "a.toml", "--learning-rate=1"}, "--set optimizer.lr=...");
  meant({"run", "a.toml", "--batch-size", "8"}, "--set batch.micro_batch=...");
  meant({"generate", "runs/a", "--max-new-tokens", "8"}, "--tokens");
  CHECK(refused({"run", "a.toml", "--resume"}).find("the same command resumes") !=
        std::string::npos);
  CHECK(refused({"run", "--config", "a.toml"}).find("is named without an option") !=
        std::string::npos);
  CHECK(refused({"--nothing"}).starts_with("actortrain: unknown option \"--nothing\""));
}

TEST_CASE("options: checkpoints", "[actors][cli]") {
  const auto list = accepted<ListOptions>({"checkpoints", "list", "runs/a", "--all"});
  CHECK(list.run_directory == "runs/a");
  CHECK(list.all);
  CHECK_FALSE(list.json);
  CHECK_FALSE(accepted<CheckpointOptions>({"checkpoints", "show", "a"}).step.has_value());
  CHECK(accepted<CheckpointOptions>({"checkpoints", "show", "a", "0"}).step == 0);
  CHECK(accepted<CheckpointOptions>({"checkpoints", "verify", "a", "20"}).step == 20);
  CHECK_FALSE(accepted<CheckpointOptions>({"checkpoints", "verify", "a", "all"}).step.has_value());
  CHECK(accepted<ReindexOptions>({"checkpoints", "reindex", "a"}).run_directory == "a");
  const auto prune = accepted<PruneOptions>(
      {"checkpoints", "prune", "a", "--keep-last", "3", "--keep-best=0", "--dry-run"});
  CHECK(prune.keep_last == 3);
  CHECK(prune.keep_best == 0);
  CHECK_FALSE(prune.keep_every.has_value());
  CHECK(prune.dry_run);
  const auto within = accepted<DiffOptions>({"checkpoints", "diff", "runs/a", "5", "10"});
  CHECK(within.a.run_directory == "runs/a");
  CHECK(within.b.run_directory == "runs/a");
  CHECK(within.b.step == 10);
  const auto across = accepted<DiffOptions>({"checkpoints", "diff", "runs/a:b:5", "runs/c:10"});
  CHECK(across.a.run_directory == "runs/a:b");
  CHECK(across.a.step == 5);
  CHECK(across.b.run_directory == "runs/c");
  CHECK(accepted<CheckpointOptions>({"checkpoints", "show", "a", "best"}).step == kBestStep);
  CHECK(accepted<CheckpointOptions>({"checkpoints", "verify", "a", "best"}).step == kBestStep);
  CHECK(accepted<DiffOptions>({"checkpoints", "diff", "a:best", "b:5"}).a.step == kBestStep);
  CHECK(accepted<DiffOptions>({"checkpoints", "diff", "a", "5", "best"}).b.step == kBestStep);
  CHECK(accepted<EvalOptions>({"eval", "a", "--step", "best"}).step == kBestStep);
  CHECK(accepted<GenerateOptions>({"generate", "a", "--step", "best"}).step == kBestStep);
  CHECK(accepted<ExportOptions>({"export", "a", "--out", "b", "--step=best"}).step == kBestStep);
  CHECK(refused({"eval", "a", "--step", "bset"})
            .find("--step must be 0 or more, or best, not "
                  "\"bset\"") != std::string::npos);
  CHECK(refused({"checkpoints", "show", "a", "-1"}).find("checkpoints show") != std::string::npos);
  CHECK(refused({"checkpoints", "show", "a", "all"}).find("not \"all\"") != std::string::npos);
  CHECK(refused({"checkpoints", "verify", "a", "x"}).find("or \"all\"") != std::string::npos);
  CHECK(refused({"checkpoints", "prune", "a", "--keep-last", "0"})
            .find("--keep-last must be 1 or more, not 0") != std::string::npos);
  CHECK(refused({"checkpoints", "prune", "a", "--keep-every", "-1"})
            .find("--keep-every must be 0 or more") != std::string::npos);
  for (const char* word : {"a", ":5", "a:", "a:-5", "a:x"}) {
    CHECK(refused({"checkpoints", "diff", word, "b:5"}).find("RUN_A:STEP") != std::string::npos);
  }
  CHECK(refused({"checkpoints", "diff", "a", "5", "x"}).find("RUN_A:STEP") != std::string::npos);
  CHECK(refused({"checkpoints", "prun", "a"}).find("did you mean \"prune\"?") != std::string::npos);
}

TEST_CASE("options: mistakes are one line that names the option", "[actors][cli]") {
  CHECK(refused({"run"}).starts_with("actortrain run: "));
  CHECK(refused({"run", "a.toml", "b.toml"}).find("b.toml") != std::string::npos);
  CHECK(refused({"run", "a.toml", "--set"}).find("--set") != std::string::npos);
  CHECK(refused({"generate", "a", "--tokens", "x"}).find("--tokens") != std::string::npos);
  CHECK(refused({"generate", "a", "--tokens", "3.5"}).find("--tokens") != std::string::npos);
  CHECK(refused({"generate", "a", "--tokens", "99999999999999999999"})
            .find("wants an integer, not \"99999999999999999999\"") != std::string::npos);
  CHECK(refused({"generate", "a", "--tokens", "0"}).find("1 or more, not 0") != std::string::npos);
  CHECK(refused({"generate", "a", "--seed", "-1"}).find("--seed") != std::string::npos);
  CHECK(refused({"generate", "a", "--temperature", "nan"}).find("0 or more") != std::string::npos);
  CHECK(refused({"generate", "a", "--temperature", "-1"}).find("not -1") != std::string::npos);
  CHECK(refused({"generate", "a", "--top-p", "0"}).find("--top-p must") != std::string::npos);
  CHECK(refused({"generate", "a", "--top-k", "-1"}).find("--top-k must") != std::string::npos);
  CHECK(refused({"generate", "a", "--step", "-1"}).find("--step must") != std::string::npos);
  CHECK(refused({"data", "prepare", "--out", "d"}).find("--input") != std::string::npos);
  CHECK(refused({"data", "prepare", "--input", "a"}).find("--out") != std::string::npos);
  CHECK(refused({"data", "prepare", "--input", "a", "--out", "d", "--val-fraction", "1"})
            .find("--val-fraction must") != std::string::npos);
  CHECK(refused({"run", "a\nb", "c"}).find("actortrain run: ") == 0);
}

}  // namespace
}  // namespace train::cli::cli_options_test
