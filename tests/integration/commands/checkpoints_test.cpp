// `actortrain checkpoints`: looking at and looking after what a run has saved.

#include <algorithm>
#include <cmath>
#include <regex>

#include "tests/integration/sites/run_site.hpp"
#include "tests/support/checkpoints/many_checkpoints.hpp"

using namespace train::test;
using nlohmann::json;

namespace {

/// Trains to the checkpoints 5, 10, 15, 20. Each is the last of a start: steps so short are faster
/// than saves, and one that waits gives way to a newer one.
bool train_in_parts(const RunSite& site, const Words& keys = {}) {
  for (const char* steps : {"run.steps=5", "run.steps=10", "run.steps=15", "run.steps=20"}) {
    Words all = keys;
    all.insert(all.end(), {"checkpoint.interval_steps=5", steps});
    site.train(all);
  }
  return true;
}

const RunSite& finished_site() {
  static const RunSite site;
  static const bool trained = train_in_parts(site);
  REQUIRE(trained);
  return site;
}

/// A copy of that run, to do harm to.
fs::path copy_of_run(const TempDirectory& home) {
  fs::copy(finished_site().run(), home / "tiny", fs::copy_options::recursive);
  return home / "tiny";
}

Ended ask(const fs::path& run, Words words) {
  words.insert(words.begin() + 1, run.string());
  words.insert(words.begin(), "checkpoints");
  return finished_site().call(words);
}

Ended answer(const fs::path& run, Words words, int exit_code = 0) {
  Ended ended = ask(run, std::move(words));
  INFO(ended.err);
  CHECK(ended.exit_code == exit_code);
  return ended;
}

json listed(const fs::path& run, const Words& more = {}) {
  Words words = {"list", "--json"};
  words.insert(words.end(), more.begin(), more.end());
  json object = json::parse(answer(run, words).out, nullptr, false);
  REQUIRE(object.is_object());
  return object;
}

std::vector<std::int64_t> steps_in(const json& object, const std::string& state = "committed") {
  std::vector<std::int64_t> steps;
  for (const json& one : object["checkpoints"]) {
    if (one["state"] == state) {
      steps.push_back(one["step"]);
    }
  }
  return steps;
}

using Steps = std::vector<std::int64_t>;

void flip_last_byte(const fs::path& file) {
  std::string bytes = read_bytes(file);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_bytes(file, bytes);
}

fs::path shard_of(const fs::path& run, const std::string& name) {
  return run / "checkpoints" / name / "shard-00000-of-00001.safetensors";
}

}  // namespace

TEST_CASE("checkpoints: list is a table, newest last", "[integration][.full][checkpoints]") {
  const fs::path run = finished_site().run();
  const auto before = tree_of(run);
  const Ended ended = answer(run, {"list"});
  CHECK(ended.err.empty());
  const Words lines = lines_of(ended.out);
  REQUIRE(lines.size() == 5);
  CHECK(
      std::regex_search(lines[0], std::regex("STEP +STATE +WHEN +SIZE +RANKS +TOKENS +VAL LOSS")));
  CHECK(std::regex_match(lines[1],
                         std::regex(" +5  committed +2\\d\\d\\d-\\d\\d-\\d\\d .* 1 .* \\d\\.\\d{5} "
                                    "+project(, the best)?")));
  CHECK(std::regex_match(lines[4], std::regex(" +20  committed .* [KM]iB +1 +3.84 k +\\d\\.\\d{5} "
                                              "+project(, the best)?")));
  const json object = listed(run);
  CHECK(object["source"] == "index");
  CHECK(steps_in(object) == Steps{5, 10, 15, 20});
  const json& last = object["checkpoints"].back();
  CHECK(last["tokens"] == 20 * 3 * 2 * 32);
  CHECK(last["ranks"] == 1);
  CHECK(last["size_bytes"].get<std::uint64_t>() >= fs::file_size(shard_of(run, "step-00000020")));
  CHECK(last["validation_loss"].is_number());
  CHECK(tree_of(run) == before);  // looking changes nothing
}

TEST_CASE("checkpoints: list without an index says so and lists all the same",
          "[integration][.full][checkpoints]") {
  for (const bool absent : {true, false}) {
    const TempDirectory home;
    const fs::path run = copy_of_run(home);
    absent ? void(fs::remove_all(run / "index")) : write_bytes(run / "index/CURRENT", "?\n");
    const auto before = tree_of(run);
    const Ended ended = answer(run, {"list"});
    CHECK(lines_of(ended.out).size() == 5);
    REQUIRE(lines_of(ended.err).size() == 1);
    CHECK(has(ended.err, "what the manifests in place say"));
    CHECK(steps_in(listed(run)) == Steps{5, 10, 15, 20});
    CHECK(tree_of(run) == before);
    const Ended mended = answer(run, {"reindex"});
    CHECK(has(mended.out, "4 checkpoints on disk"));
    CHECK(answer(run, {"list"}).err.empty());
    CHECK(listed(run)["source"] == "index");
  }
}

TEST_CASE("checkpoints: show tells what a checkpoint holds", "[integration][.full][checkpoints]") {
  const fs::path run = finished_site().run();
  const Ended newest = answer(run, {"show"});
  CHECK(has(newest.out, "step-00000020"));
  CHECK(std::regex_search(newest.out, std::regex("weights digest +[0-9a-f]{16}\n")));
  CHECK(std::regex_search(newest.out, std::regex("config digest +xxh3-128:[0-9a-f]{32}\n")));
  CHECK(std::regex_search(newest.out, std::regex("kernel set +[a-z]")));
  CHECK(std::regex_search(newest.out, std::regex("validation loss +\\d")));
  CHECK(std::regex_search(newest.out, std::regex("0  shard-00000-of-00001.safetensors .*xxh3")));
  CHECK(std::regex_search(newest.out, std::regex("\nmodel\\.\\S+ +F32 +\\[\\d+, \\d+\\] +0:0\\+")));
  CHECK(has(answer(run, {"show", "10"}).out, "step-00000010"));
}

TEST_CASE("checkpoints: verify reads everything", "[integration][checkpoints]") {
  const TempDirectory home;
  const fs::path run = copy_of_run(home);
  const Ended whole = answer(run, {"verify"});
  CHECK(lines_of(whole.out).size() == 4);
  CHECK(has(whole.out, "step-00000005  whole"));
  flip_last_byte(shard_of(run, "step-00000010"));
  const Ended damaged = answer(run, {"verify", "all"}, 1);
  CHECK(lines_of(damaged.out).size() == 4);
  CHECK(has(damaged.out, "step-00000010  DAMAGED  "));
  CHECK(has(damaged.out, "step-00000020  whole"));
  CHECK(lines_of(answer(run, {"verify", "20"}).out).size() == 1);
  CHECK(lines_of(answer(run, {"verify", "10"}, 1).out).size() == 1);
}

TEST_CASE("checkpoints: the best one is marked, found by its word, and does not go without one",
          "[integration][checkpoints]") {
  const TempDirectory home;
  const fs::path run = copy_of_run(home);
  std::int64_t best = 0;
  double least = INFINITY;
  const json all = listed(run);
  for (const json& one : all["checkpoints"]) {
    if (one["validation_loss"].get<double>() < least) {
      least = one["validation_loss"];
      best = one["step"];
    }
  }
  for (const json& one : all["checkpoints"]) {
    CHECK(one["best"] == (one["step"] == best));
  }
  const Words lines = lines_of(answer(run, {"list"}).out);
  CHECK(std::count_if(lines.begin(), lines.end(),
                      [](const std::string& line) { return has(line, ", the best"); }) == 1);
  const std::string step = std::to_string(best);
  const std::string name = train::checkpoint::checkpoint_name(best);
  CHECK(answer(run, {"show", "best"}).out == answer(run, {"show", step}).out);
  CHECK(has(answer(run, {"show", "best"}).out, ", the best\n"));
  CHECK(has(answer(run, {"verify", "best"}).out, name + "  whole"));
  CHECK(has(answer(run, {"diff", "best", step}).out, "same bits"));
  const auto of = [&](const Words& words, const std::string& which) {
    Words call = words;
    call.insert(call.begin() + 1, run.string());
    call.insert(call.end(), {"--step", which});
    const Ended ended = finished_site().call(call);
    INFO(ended.err);
    CHECK(ended.exit_code == 0);
    return ended.out;
  };
  const Words generate = {"generate", "--prompt", "the ", "--tokens", "20"};
  CHECK(of(generate, "best") == of(generate, step));
  CHECK(of({"eval"}, "best") == of({"eval"}, step));
  CHECK(has(of({"export", "--out", (home / "out").string()}, "best"), "step=" + step + " "));
  // The run keeps all; the rule of one that does not keeps the best.
  const Words last = {"prune", "--keep-last", "1"};
  CHECK_FALSE(has(answer(run, {"prune", "--keep-last", "1", "--dry-run"}).out, "the best"));
  answer(run, last);
  CHECK(fs::exists(run / "checkpoints" / name));
  if (best != 20) {
    CHECK(has(answer(run, {"prune", "--keep-last", "1", "--keep-best", "0"}).out,
              name + "  removed: the best, "));
  }
}

TEST_CASE("checkpoints: without an evaluation none is the best", "[integration][checkpoints]") {
  const RunSite site;
  site.train({"eval.interval_steps=7", "run.steps=20", "checkpoint.interval_steps=6"});
  forget_after(site.run(), 18);  // the last step is evaluated
  const Ended listed = site.call({"checkpoints", "list", "runs/tiny"});
  CHECK_FALSE(has(listed.out, "the best"));
  for (const Words& words :
       {Words{"generate", "runs/tiny", "--step", "best"}, Words{"eval", "runs/tiny", "--step=best"},
        Words{"export", "runs/tiny", "--out", "x", "--step", "best"},
        Words{"checkpoints", "show", "runs/tiny", "best"},
        Words{"checkpoints", "verify", "runs/tiny", "best"},
        Words{"checkpoints", "diff", "runs/tiny", "best", "18"}}) {
    check_mistake(site, words,
                  {"runs/tiny/checkpoints", "none is the best", "eval.interval_steps"});
  }
}

TEST_CASE("checkpoints: prune keeps what the rule says", "[integration][.full][checkpoints]") {
  const TempDirectory home;
  const fs::path run = copy_of_run(home);
  const Words rule = {"prune", "--keep-last", "1", "--keep-every", "10", "--keep-best", "0"};
  Words rehearsal = rule;
  rehearsal.emplace_back("--dry-run");
  const auto before = tree_of(run);
  const Ended would = answer(run, rehearsal);
  CHECK(has(would.out, "step-00000005  would go"));
  CHECK(has(would.out, "would remove 2 of 4"));
  CHECK(tree_of(run) == before);
  const Ended done = answer(run, rule);
  CHECK(has(done.out, "removed 2 of 4"));
  CHECK(checkpoint_steps(run) == Steps{10, 20});
  CHECK(steps_in(listed(run)) == Steps{10, 20});
  CHECK(steps_in(listed(run, {"--all"}), "retired") == Steps{5, 15});
  CHECK(has(answer(run, {"list", "--all"}).out, "retired"));
  // The best of those that are left is the newest or not: one of two stays besides the newest.
  answer(run, {"prune", "--keep-last", "1", "--keep-every", "0", "--keep-best", "2"});
  CHECK(checkpoint_steps(run) == Steps{10, 20});
  answer(run, {"prune", "--keep-last", "1", "--keep-best", "0"});
  CHECK(checkpoint_steps(run) == Steps{20});
  CHECK(has(answer(run, {"prune", "--keep-last", "1"}).out, "removed 0 of 1"));
}

TEST_CASE("checkpoints: prune does not trust a damaged newest", "[integration][checkpoints]") {
  const TempDirectory home;
  const fs::path run = copy_of_run(home);
  flip_last_byte(shard_of(run, "step-00000020"));
  const Ended refused = answer(run, {"prune", "--keep-last", "1"}, 1);
  CHECK(has(refused.err, "removed nothing"));
  CHECK(fs::exists(run / "checkpoints/step-00000005"));
}

TEST_CASE("checkpoints: diff compares tensors to the bit", "[integration][.full][checkpoints]") {
  const TempDirectory home;
  const fs::path run = copy_of_run(home);
  const Ended different = answer(run, {"diff", "5", "20"}, 1);
  CHECK(std::regex_search(
      different.out, std::regex("tensor  model\\.\\S+ +\\d+ of \\d+ elements differ, by \\d")));
  CHECK(has(different.out, "different: "));
  const std::string other = finished_site().run().string() + ":20";
  const Ended same = finished_site().call({"checkpoints", "diff", run.string() + ":20", other});
  CHECK(same.exit_code == 0);
  CHECK(std::regex_match(same.out, std::regex("same bits: \\d+ tensors\n")));
  // The same steps on two ranks: other keys, the same bits.
  const RunSite site;
  train_in_parts(site, {"parallel.ranks=2", "parallel.strategy=full"});
  const Ended ranks =
      finished_site().call({"checkpoints", "diff", site.run().string() + ":20", other});
  CHECK(ranks.exit_code == 0);
  CHECK(has(ranks.out, "config  parallel.ranks: 2 | 1"));
  CHECK(has(ranks.out, "config  parallel.strategy: \"full\" | \"none\""));
  CHECK(has(ranks.out, "same bits: "));
}

TEST_CASE("checkpoints: mistakes are one line", "[integration][checkpoints][mistakes]") {
  const RunSite site;
  check_mistake(site, {"checkpoints"}, {"wants a command", "list", "reindex"});
  check_mistake(site, {"checkpoints", "lst", "x"}, {"did you mean \"list\"?"});
  for (const char* action : {"list", "show", "verify", "prune", "reindex"}) {
    check_mistake(site, {"checkpoints", action, "runs/none"}, {"runs/none", "no such directory"});
    check_mistake(site, {"checkpoints", action}, {action, "--help"});
  }
  fs::create_directories(site.run() / "checkpoints");
  for (const char* action : {"list", "show", "verify"}) {
    check_mistake(site, {"checkpoints", action, "runs/tiny"}, {"no checkpoints"});
  }
  check_mistake(site, {"checkpoints", "diff", "runs/tiny", "1", "2"}, {"no checkpoints"});
  check_mistake(site, {"checkpoints", "diff", "runs/tiny", "1"}, {"RUN_A:STEP"});
  check_mistake(site, {"checkpoints", "show", "runs/tiny", "x"}, {"STEP", "\"x\""});
  check_mistake(site, {"checkpoints", "prune", "runs/tiny", "--keep-last", "0"}, {"1 or more"});
  const fs::path run = finished_site().run();
  for (const Words& words :
       {Words{"show", "12"}, Words{"verify", "12"}, Words{"diff", "12", "20"}}) {
    const Ended ended = ask(run, words);
    check_one_line(ended, 2, {"no checkpoint of step 12", "nearest is step 10"});
  }
  check_one_line(ask(run, {"prune"}), 2, {"keep_last is 0", "--keep-last N"});
}

TEST_CASE("checkpoints: while the run is on one may look and not touch",
          "[integration][.full][checkpoints]") {
  const RunSite site;
  const auto process = site.start_run(
      {"run.steps=1000000", "checkpoint.interval_steps=3", "checkpoint.keep_last=2"});
  // By their names: what is looked into may be gone. Which are skipped, the disk decides.
  std::int64_t first = 0;
  REQUIRE(process->until([&] {
    const auto placed = train::checkpoint::list_checkpoints(site.run() / "checkpoints");
    first = placed.ok() && !placed->empty() ? placed->front().step : 0;
    return first >= 12;
  }));
  std::int64_t newest = 0;
  for (int i = 0; i < 8 || newest <= first; ++i) {
    REQUIRE(i < 5000);
    const Ended ended = site.call({"checkpoints", "list", "runs/tiny", "--json", "--all"});
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK(ended.err.empty());  // never mistaken for damage
    const json object = json::parse(ended.out, nullptr, false);
    REQUIRE(object.is_object());
    const Steps steps = steps_in(object);
    REQUIRE_FALSE(steps.empty());
    CHECK(steps.size() <= 4);
    CHECK(steps.back() >= newest);
    newest = steps.back();
  }
  for (const Words& words : {Words{"checkpoints", "prune", "runs/tiny", "--keep-last", "1"},
                             Words{"checkpoints", "reindex", "runs/tiny"}}) {
    check_one_line(site.call(words), 2, {"in use by process " + std::to_string(process->pid())});
  }
  CHECK(
      site.call({"checkpoints", "prune", "runs/tiny", "--keep-last", "1", "--dry-run"}).exit_code ==
      0);
  REQUIRE(process->running());
  process->send(SIGTERM);
  CHECK(process->wait().exit_code == 75);
  CHECK(site.call({"checkpoints", "verify", "runs/tiny"}).exit_code == 0);
}

TEST_CASE("checkpoints: a thousand are listed whole", "[integration][.full][checkpoints]") {
  const TempDirectory home;
  const auto made = make_many_checkpoints(home / "many", 1000);
  REQUIRE(made.ok());
  const json object = listed(home / "many");
  CHECK(object["source"] == "index");
  CHECK(steps_in(object).size() == 1000);
  CHECK(lines_of(answer(home / "many", {"list"}).out).size() == 1001);
}
