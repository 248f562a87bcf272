// Recipes are trained from their scripts on, and yield the digests that are written down: with and
// without AVX-512, on one rank and on three.

#include "tests/integration/sites/killed_runs.hpp"
#include "tests/support/harness/hang_limit.hpp"

using namespace train::test;

namespace {

/// The program's words that check a recipe here.
Words check_words(const std::string& name, const Words& more) {
  Words words = {"recipe", "check", name};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Words on_three_ranks() { return {"--set", "parallel.ranks=3", "--set", "parallel.strategy=full"}; }

std::string verdict_of(const Ended& ended) { return last_of(lines_of(ended.out)); }

/// The first steps with a digest; in soaks, all.
Words recipe_steps() { return soak() == 1 ? Words{"--steps", "10"} : Words(); }

bool is_equal(const Ended& ended, const std::string& recipe) {
  return ended.exit_code == 0 &&
         verdict_of(ended).starts_with(recipe + ": equal at " + (soak() == 1 ? "1 of 1" : ""));
}

/// A folder of this site with a recipe that trains a moment on a text of its own.
fs::path own_recipe(const RunSite& site, const std::string& script = "") {
  const fs::path folder = site / "mine";
  fs::create_directories(folder);
  write_bytes(folder / "README.md", "# Mine\n");
  write_bytes(folder / "data.py",
              script.empty()
                  ? "import pathlib, subprocess, sys\n"
                    "pathlib.Path('text.txt').write_text('A quiet child waits.\\n' * 300)\n"
                    "subprocess.run([sys.argv[1], 'data', 'prepare', '--input', 'text.txt', "
                    "'--out', 'data', '--force'], check=True)\n"
                  : script);
  const std::string run_file = read_bytes(site / "tiny.toml");
  const std::string data = "dir = \"" + prepared_data().string() + "\"";
  write_bytes(folder / "run.toml",
              std::string(run_file).replace(run_file.find(data), data.size(), "dir = \"data\""));
  return folder;
}

}  // namespace

TEST_CASE("recipes: one's own is recorded, checked, and a difference found",
          "[integration][recipes]") {
  const RunSite site;
  const fs::path folder = own_recipe(site);
  const Ended missing = site.call(check_words("./mine", {}));
  CHECK(missing.exit_code == 2);
  CHECK(has(missing.err, "--record writes it"));

  const Ended recorded = site.call(check_words("./mine", {"--record", "--out", "work"}));
  INFO(recorded.err);
  REQUIRE(recorded.exit_code == 0);
  CHECK(lines_of(read_bytes(folder / "digests.txt")).size() == 2 + 4);  // Of 20 steps, every fifth.

  for (const char* const steps : {"5", "10", "10"}) {
    const Ended equal = site.call(check_words("./mine", {"--steps", steps, "--out", "again"}));
    INFO(equal.err << equal.out);
    CHECK(equal.exit_code == 0);
    const std::string count = std::string(steps) == "5" ? "1" : "2";
    CHECK(verdict_of(equal) == "mine: equal at " + count + " of " + count + " steps");
  }
  const std::string metrics = read_bytes(site / "again/runs/tiny/metrics.jsonl");
  CHECK(has(metrics, "\"step\":10,"));
  CHECK_FALSE(has(metrics, "\"step\":11,"));

  const Ended ranks = site.call(check_words("./mine", on_three_ranks()));
  INFO(ranks.err << ranks.out);
  CHECK(verdict_of(ranks) == "mine: equal at 4 of 4 steps");

  const Ended differs = site.call(check_words("./mine", {"--out", "other", "--set", "run.seed=7"}));
  CHECK(differs.exit_code == 1);
  CHECK(has(verdict_of(differs), "mine: differs from step 5 on"));

  write_bytes(folder / "run.toml", read_bytes(folder / "run.toml") + "\n# Nothing else.\n");
  CHECK(site.call(check_words("./mine", {"--steps", "5"})).exit_code == 0);
  write_bytes(folder / "data.py", read_bytes(folder / "data.py") + "print('more')\n");
  const Ended changed = site.call(check_words("./mine", {}));
  CHECK(changed.exit_code == 2);
  CHECK(has(changed.err, "one has changed since; --record writes it anew"));
}

TEST_CASE("recipes: a directory of other files, a failed script and a model too many are named",
          "[integration][recipes]") {
  const RunSite site;
  const fs::path folder = own_recipe(site, "import sys\nsys.exit('no text here')\n");
  write_bytes(folder / "digests.txt", "5 00112233445566aa\n");
  fs::create_directories(site / "full");
  write_bytes(site / "full/file", "");
  const Ended full = site.call(check_words("./mine", {"--out", "full"}));
  CHECK(full.exit_code == 2);
  CHECK(has(full.err, "not of this recipe"));
  const Ended failed = site.call(check_words("./mine", {"--out", "work"}));
  CHECK(failed.exit_code == 1);
  CHECK(has(failed.err, "data.py: exit code 1: no text here"));
  const Ended model = site.call(check_words("./mine", {"--out", "work", "--model", "full"}));
  CHECK(model.exit_code == 2);
  CHECK(has(model.err, "starts from no published model"));
  const std::string run_file = read_bytes(folder / "run.toml");
  const std::size_t begin = run_file.find("arch = ");
  const std::size_t end = run_file.find("[data]");
  write_bytes(folder / "run.toml",
              std::string(run_file).replace(begin, end - begin, "from = \"SmolLM2\"\n"));
  const Ended without = site.call(check_words("./mine", {"--out", "chat"}));
  CHECK(without.exit_code == 2);
  CHECK(has(without.err, "smollm2.sh SmolLM2"));
  const Ended absent = site.call(check_words("./mine", {"--out", "chat", "--model", "none"}));
  CHECK(absent.exit_code == 2);
  CHECK(has(absent.err, "/none: no such directory; `"));
  CHECK(has(absent.err, "/none` fetches it"));
  CHECK(site.call(check_words("./mine", {"--steps", "4"})).exit_code == 2);
}

TEST_CASE("recipes: a stopped check names the directory from which it is resumed",
          "[integration][recipes]") {
  const RunSite site;
  fs::create_directories(site / "temporary");
  const fs::path folder = own_recipe(site);
  write_bytes(folder / "digests.txt", "5 00112233445566aa\n");
  const auto start = [&](const Words& more) {
    return std::make_unique<Process>(
        joined({"/usr/bin/env", "TMPDIR=" + (site / "temporary").string(), program()},
               check_words("./mine", joined({"--set", "run.steps=1000000"}, more))),
        site.path());
  };
  const auto directory = [&] {
    const auto found = fs::directory_iterator(site / "temporary");
    return found == fs::directory_iterator() ? fs::path() : found->path();
  };
  const auto begun = start({});
  REQUIRE(comes_true(
      [&] { return !directory().empty() && fs::exists(directory() / "runs/tiny/metrics.jsonl"); }));
  begun->send(SIGTERM);
  const Ended stopped = begun->wait();
  INFO(stopped.err << stopped.out);
  CHECK(stopped.exit_code == 75);
  REQUIRE_FALSE(directory().empty());
  CHECK(has(verdict_of(stopped),
            "mine: the run is in " + directory().string() + "; the same command resumes it with"));

  write_bytes(folder / "data.py", "import signal\nopen('begun', 'w').close()\nsignal.pause()\n");
  fs::remove_all(directory());
  const auto early = start({});
  REQUIRE(comes_true([&] { return !directory().empty() && fs::exists(directory() / "begun"); }));
  early->send(SIGTERM);
  const Ended ended = early->wait();
  CHECK(ended.exit_code == 75);
  CHECK(has(verdict_of(ended), "mine: stopped by signal 15 in data.py, before the first step"));
  CHECK(directory().empty());
}

TEST_CASE("recipes: without a directory for temporary files its variable is named",
          "[integration][recipes]") {
  const RunSite site;
  write_bytes(own_recipe(site) / "digests.txt", "5 00112233445566aa\n");
  const Ended ended =
      Process(joined({"/usr/bin/env", "TMPDIR=/nonexistent", program()}, check_words("./mine", {})),
              site.path())
          .wait();
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "error TMPDIR=/nonexistent: "));
  CHECK(has(ended.err, "name one by --out"));
}

TEST_CASE("recipes: those that come with the program are listed", "[integration][recipes]") {
  const RunSite site;
  const Ended list = site.call({"recipe", "list"});
  CHECK(list.exit_code == 0);
  for (const char* const name : {"chat_sft", "continue_smollm2", "dpo", "experts", "hybrid", "kto",
                                 "lora", "pretrain_bytes", "unlearn"}) {
    CHECK(has(list.out, name));
  }
}

TEST_CASE("recipes: weights from which no digest was recorded are refused before they are trained",
          "[integration][recipes]") {
  const RunSite site;
  fs::create_directories(site / "other");
  write_bytes(site / "other/model.safetensors", "other weights");
  const Ended ended =
      site.call(check_words("continue_smollm2", {"--model", "other", "--out", "work"}));
  CHECK(ended.exit_code == 2);
  CHECK(has(ended.err, "SmolLM2/model.safetensors: not the weights that smollm2.sh makes"));
  CHECK_FALSE(fs::exists(site / "work/runs"));
}

TEST_CASE("recipes: the model of experts yields what is written down, without AVX-512 too",
          "[integration][.full][soak][recipes][P1]") {
  const RunSite site;
  const Ended own = site.call(check_words("experts", joined(recipe_steps(), {"--out", "own"})));
  INFO(own.err << own.out);
  CHECK(is_equal(own, "experts"));
  Process process(joined({"/usr/bin/env", "ACTORTRAIN_TEST_NO_AVX512=head", faulty_program()},
                         check_words("experts", joined(recipe_steps(), {"--out", "narrow"}))),
                  site.path());
  const Ended narrow = process.wait();
  INFO(narrow.err << narrow.out);
  CHECK(has(narrow.err, "without_avx512 role=head"));
  CHECK(is_equal(narrow, "experts"));
}

TEST_CASE("recipes: the model of bytes yields what is written down, on three ranks",
          "[integration][.full][soak][recipes][P1]") {
  const RunSite site;
  const Ended ended =
      site.call(check_words("pretrain_bytes", joined(recipe_steps(), on_three_ranks())));
  INFO(ended.err << ended.out);
  CHECK(is_equal(ended, "pretrain_bytes"));
}
