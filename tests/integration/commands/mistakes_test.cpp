// Every mistake of a user ends with exit code 2 and one line that says where and how to mend it;
// nothing is started and nothing is left behind.

#include "kernels/device/cuda_device.hpp"
#include "tests/integration/sites/published_site.hpp"
#include "tests/support/disks/full_disk.hpp"

using namespace train::test;

namespace {

void append(const fs::path& file, const std::string& text) {
  write_bytes(file, read_bytes(file) + text);
}

}  // namespace

TEST_CASE("mistakes: on the command line", "[integration][mistakes]") {
  const RunSite site;
  check_mistake(site, {"rnu", "tiny.toml"}, {"unknown command \"rnu\"", "run", "--help"});
  check_mistake(site, {}, {"wants a command", "generate"});
  check_mistake(site, {"run"}, {"actortrain run", "--help"});
  check_mistake(site, {"run", "tiny.toml", "--dryrun"}, {"--dryrun", "--dry-run"});
  check_mistake(site, {"run", "tiny.toml", "extra"}, {"extra"});
  check_mistake(site, {"generate"}, {"actortrain generate", "--help"});
  check_mistake(site, {"generate", "runs/tiny", "--tokens", "0"}, {"--tokens"});
  check_mistake(site, {"generate", "runs/tiny", "--temperature", "-1"}, {"--temperature"});
  check_mistake(site, {"data"}, {"prepare"});
  check_mistake(site, {"log", "runs/tiny", "--to", "wandb"},
                {"log: ", "wheel", "\"python3 -m actortrain log runs/tiny --to wandb\""});
  check_mistake(site, {"run", "tiny"}, {"tiny: no such run file; did you mean \"tiny.toml\"?"});
  check_mistake(site, {"data", "prepare", "--val", "0.1"}, {"did you mean \"--val-fraction\"?"});
  check_mistake(site, {"checkpoints", "prune", "runs/tiny", "--keep", "2"},
                {"did you mean \"--keep-last\"?"});
  check_mistake(site, {"config", "keys", "optimiser"}, {"did you mean \"optimizer\"?"});
  check_mistake(site, {"data", "prepare", "--out", "data"}, {"--input"});
  check_mistake(site, {"data", "prepare", "--out", "data", "--input", "none.txt"}, {"none.txt"});
}

TEST_CASE("mistakes: in the run file", "[integration][mistakes]") {
  const RunSite site;
  check_mistake(site, {"run", "none.toml"}, {"none.toml"});
  fs::create_directory(site / "directory.toml");
  check_mistake(site, {"run", "directory.toml"}, {"directory.toml", "directory"});
  const std::string good = read_bytes(site / "tiny.toml");

  append(site / "tiny.toml", "thread = 2\n");
  check_mistake(site, {"run", "tiny.toml"},
                {"tiny.toml:33: ", "\"runtime.thread\"", "did you mean \"runtime.threads\""});
  write_bytes(site / "tiny.toml", good + "[optimiser]\nlr = 1.0\n");
  check_mistake(site, {"run", "tiny.toml"}, {"tiny.toml:33: ", "optimiser", "\"optimizer"});
  write_bytes(site / "tiny.toml", good + "steps = = 2\n");
  check_mistake(site, {"run", "tiny.toml"}, {"tiny.toml:33"});
  write_bytes(site / "tiny.toml", good + "device = 3\n");
  check_mistake(site, {"run", "tiny.toml"}, {"tiny.toml:33: ", "runtime.device"});
  write_bytes(site / "tiny.toml", good + "[status]\nlisten = \"127.0.0.1:99999\"\n");
  check_mistake(site, {"run", "tiny.toml"},
                {"tiny.toml:34: ", "status.listen", "\"127.0.0.1:8080\"", "99999"});

  write_bytes(site / "tiny.toml", good);
  const auto set = [](const std::string& assignment) {
    return Words{"run", "tiny.toml", "--set", assignment};
  };
  if (const std::string& absence = train::kernels::cuda_absence(); !absence.empty()) {
    check_mistake(site, set("runtime.device=cuda"),
                  {"runtime.device = \"cuda\": " + absence, "set runtime.device = \"cpu\""});
    Words rehearsal = set("runtime.device=cuda");
    rehearsal.emplace_back("--dry-run");
    check_mistake(site, rehearsal, {"runtime.device = \"cuda\": " + absence, "actortrain plan"});
  }
  check_mistake(site, set("run.stpes=3"), {"--set run.stpes=3", "did you mean \"run.steps\""});
  check_mistake(site, set("run.steps=0"), {"--set run.steps=0", "1 .. 1000000000"});
  check_mistake(site, set("run.steps=2.5"), {"--set run.steps=2.5", "integer"});
  check_mistake(site, set("optimizer.lr=-1"), {"optimizer.lr"});
  check_mistake(site, set("optimizer.lr=nan"), {"optimizer.lr"});
  check_mistake(site, set("optimizer.lr"), {"optimizer.lr"});
  check_mistake(site, set("run.name=../elsewhere"), {"run.name"});
  check_mistake(site, set("parallel.ranks=4"), {"parallel.ranks"});
  check_mistake(site, set("model.head_dim=7"), {"model.head_dim"});
}

TEST_CASE("mistakes: what is found after the run file was read names its line, too",
          "[integration][mistakes]") {
  const RunSite site;
  const std::string good = read_bytes(site / "tiny.toml");
  const auto with = [&](const std::string& more, const Words& parts) {
    write_bytes(site / "tiny.toml", good + more);
    check_mistake(site, {"run", "tiny.toml"}, parts);
    check_mistake(site, {"plan", "tiny.toml"}, parts);
  };
  with("[train]\nfreeze = [\"no such *\"]\n", {"error tiny.toml:34: train.freeze: \"no such *\""});
  with("[lora]\nrank = 8\ntargets = [\"nothing\"]\n", {"error tiny.toml:35: lora.targets: "});
  with("[objective]\nname = \"sft\"\n", {"error tiny.toml:34: ", "holds no packed rows"});
  write_bytes(site / "tiny.toml", good);
  const auto set = [&](const std::string& assignment, const Words& parts) {
    check_mistake(site, {"run", "tiny.toml", "--set", assignment},
                  joined({"error --set " + assignment + ": "}, parts));
  };
  set("eval.choices=none.jsonl", {"eval.choices: cannot read none.jsonl"});
  set("data.sequence_length=1000000", {"data.sequence_length"});
  set("run.dir=tiny.toml", {"run.dir: cannot create directory tiny.toml", "move it"});
  set("run.dir=tiny.toml/runs",
      {"run.dir: cannot create directory tiny.toml/runs", "tiny.toml is a file; move it"});
  write_run_file(site, "config = \"smollm2-135\"");
  check_mistake(site, {"run", "tiny.toml"},
                {"error tiny.toml:6: model.config: smollm2-135: no such config.json",
                 "did you mean \"smollm2-135m\""});
}

TEST_CASE("mistakes: what is given to a command instead of what it wants",
          "[integration][mistakes]") {
  const RunSite site;
  site.train({"run.steps=1", "schedule.warmup_steps=0"});
  check_mistake(site, {"describe", "runs/tiny"}, {"runs/tiny: a run, not a model", "export"});
  check_mistake(site, {"status", "tiny"}, {"tiny: no such directory; did you mean \"runs/tiny\"?"});
  check_mistake(site, {"generate", "runs"},
                {"runs: not a run directory", "did you mean \"runs/tiny\"?"});
  check_mistake(site, {"status", "."}, {".: not a run directory", "did you mean \"./runs/tiny\"?"});
  check_mistake(site, {"export", "runs/tiny/checkpoints/step-00000001", "--out", "o"},
                {"lies in a run; give the run, runs/tiny, and choose a checkpoint of it"});
  check_mistake(site, {"describe", "tiny.txt"}, {"tiny.txt: no such config.json", "describe"});
  check_mistake(site, {"convert", "runs/tiny", "--out", "o"}, {"runs/tiny: a run, not a model"});
  check_mistake(site, {"generate", "runs/tiny", "--context", "8"},
                {"--context 8: runs/tiny is a run", "leave it out"});
  check_mistake(site, {"data", "prepare", "--input", "tiny.toml", "--out", "tiny.toml"},
                {"--out tiny.toml: is not a directory"});
  check_mistake(site, {"data", "prepare", "--input", "tiny.toml", "--out", "runs/tiny"},
                {"--out runs/tiny: is a run's directory"});
  check_mistake(site, {"data", "prepare", "--input", "a.jsonl,b.jsonl", "--out", "o"},
                {"--input a.jsonl,b.jsonl: no such file; put spaces between several files"});
  check_mistake(site, {"data", "prepare", "--input", "-", "--out", "o"},
                {"--input -: standard input is not read"});
  check_mistake(site,
                {"data", "prepare", "--input", "tiny.toml", "--out", "o", "--tokenizer", "none"},
                {"none: no such tokenizer", "model's directory"});
  check_mistake(
      site,
      {"data", "prepare", "--input", "tiny.toml", "--out", "o", "--tokenizer", "owner/model-1.5b"},
      {"no such tokenizer", "hf download owner/model-1.5b --local-dir model-1.5b"});
  check_mistake(site, {"describe", "owner/model"}, {"hf download owner/model --local-dir model"});
  check_mistake(site,
                {"data", "prepare", "--input", "tiny.toml", "--out", "o", "--row-length", "8",
                 "--tokenizer", "none", "--kind", "chatt"},
                {"--kind: ", "\"chatt\"", "chat, prompt"});
  check_mistake(site, {"data", "show", "none"},
                {"none: no such directory of rows", "--row-length"});
  check_mistake(site, {"data", "show", "."}, {".: holds no rows: there is no meta.json"});
  check_mistake(site, {"render", "--template", "none", "--input", "tiny.toml"},
                {"\"none\"", "chatml", "give its path"});
}

TEST_CASE("mistakes: output that is not written is a failure, but not of training",
          "[integration][mistakes]") {
  const RunSite site;
  const auto into_nothing = [&site](const std::string& command) {
    return Process({"/bin/sh", "-c",
                    "exec " ACTORTRAIN_BINARY_DIR "/actortrain " + command + " > /dev/full"},
                   site.path())
        .wait();
  };
  check_one_line(into_nothing("config keys"), 1,
                 {"cannot write the output to the end", "No space left on device"});
  check_one_line(into_nothing("describe smollm2-135m"), 1, {"cannot write"});
  const Ended trained =
      into_nothing("run tiny.toml --quiet --set run.steps=1 --set schedule.warmup_steps=0");
  INFO(trained.err);
  CHECK(trained.exit_code == 0);
}

TEST_CASE("mistakes: in the data", "[integration][mistakes]") {
  const RunSite site;
  site.write_config("nowhere");
  check_mistake(site, {"run", "tiny.toml"}, {"nowhere", "data.dir", "actortrain data prepare"});
  fs::create_directory(site / "data");
  site.write_config("data");
  check_mistake(site, {"run", "tiny.toml"}, {"data", "train.bin"});
  write_bytes(site / "data/train.bin", std::string(4000, '\0'));
  check_mistake(site, {"run", "tiny.toml"}, {"val.bin", "eval.interval_steps = 0"});

  write_tokens(site, std::string(4001, '\0'));
  check_mistake(site, {"run", "tiny.toml"}, {"data/train.bin", "4001 bytes", "cut short"});
  write_tokens(site, std::string(64, '\0'));
  check_mistake(site, {"run", "tiny.toml"},
                {"data/train.bin", "32 tokens", "data.sequence_length"});
  write_tokens(site, "");
  check_mistake(site, {"run", "tiny.toml"}, {"data/train.bin"});
  fs::remove(site / "data/train.bin");
  fs::create_directory(site / "data/train.bin");
  check_mistake(site, {"run", "tiny.toml"}, {"data/train.bin"});
  fs::remove(site / "data/train.bin");
  write_tokens(site, std::string(4000, '\0'));
  write_bytes(site / "data/meta.json", "{\"vocab_size\": \"many\"}");
  check_mistake(site, {"run", "tiny.toml"}, {"data/meta.json", "vocab_size"});
}

TEST_CASE("mistakes: a token outside the vocabulary names file and position",
          "[integration][mistakes]") {
  const RunSite site;
  std::string tokens(4000, '\1');  // 257
  write_tokens(site, tokens);
  const Ended ended = site.call(
      {"run", "tiny.toml", "--set", "model.vocab_size=257", "--set", "eval.interval_steps=0"});
  INFO(ended.err);
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "data/train.bin"));
  CHECK(has(ended.err, "token 257 at position"));
  CHECK(has(ended.err, "model.vocab_size"));
  CHECK(last_of(lines_of(ended.err)).starts_with("error "));
  CHECK(checkpoint_steps(site.run()).empty());
}

TEST_CASE("mistakes: a run directory that is something else", "[integration][mistakes]") {
  const RunSite site;
  site.train({"run.steps=4", "schedule.warmup_steps=0"});
  const auto again = [&site](const std::string& assignment, const Words& parts) {
    check_mistake(site,
                  {"run", "tiny.toml", "--set", "run.steps=4", "--set", "schedule.warmup_steps=0",
                   "--set", assignment},
                  parts);
  };
  again("model.layers=3", {"runs/tiny/config.toml", "model.layers", "2", "3", "--fresh"});
  again("optimizer.lr=0.5", {"runs/tiny/config.toml", "optimizer.lr", "0.003", "0.5", "--fresh"});
  again("run.seed=3", {"run.seed", "1337"});

  fs::create_directories(site.run("foreign"));
  write_bytes(site.run("foreign") / "thesis.txt", "my thesis");
  const auto files = tree_of(site.run("foreign"));
  check_one_line(site.call({"run", "tiny.toml", "--set", "run.name=foreign"}), 2,
                 {"runs/foreign", "run.name"});
  CHECK(tree_of(site.run("foreign")) == files);
  CHECK(names_in(site.run("foreign")) == Words{"thesis.txt"});  // not even a lock
  write_bytes(site / "runs/file", "");
  again("run.name=file", {"runs/file", "run.name"});
  write_bytes(site / "parent", "");
  again("run.dir=parent", {"parent"});
}

TEST_CASE("mistakes: a run directory in use", "[integration][mistakes]") {
  const RunSite site;
  const auto first = site.start_run({"run.steps=1000000"});
  wait_for_step(site, *first, 1);
  const Ended second = site.call({"run", "tiny.toml", "--set", "run.steps=1000000"});
  check_one_line(second, 2, {"runs/tiny", "in use", fmt::format("process {}", first->pid())});
  CHECK(second.out.empty());
  first->send(SIGTERM);
  CHECK(first->wait().exit_code == 75);  // and the first was not disturbed
}

TEST_CASE("mistakes: no permission to write", "[integration][mistakes]") {
  const RunSite site;
  const SmallDisk disk(site / "sealed", "1m");
  if (!disk.mounted() ||
      ::mount("", disk.path().c_str(), "", MS_REMOUNT | MS_RDONLY, nullptr) != 0) {
    WARN("skipped: cannot mount a read-only tmpfs (needs root)");
    return;
  }
  check_mistake(site, {"run", "tiny.toml", "--set", "run.dir=sealed"}, {"sealed", "permission"});
  check_mistake(site, {"run", "tiny.toml", "--set", "run.dir=sealed/deeper"},
                {"sealed/deeper", "permission in " + disk.path().string() + ";"});
  // Before the text is read: one that is none is not noticed.
  write_bytes(site / "empty.txt", "");
  check_mistake(site, {"data", "prepare", "--input", "empty.txt", "--out", "sealed/data"},
                {"sealed/data", "permission in " + disk.path().string() + ";"});
}
