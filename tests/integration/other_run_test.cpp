// Checkpoints of another run where a run keeps its own: by a link that somebody has planted, by a
// copy, by mistake. Nothing of the other run is read, adopted or removed.

#include "checkpoint/save/locations.hpp"
#include "tests/integration/sites/node_runs.hpp"

using namespace train::test;

namespace {

const Words kShortRun = {"run.steps=6", "checkpoint.interval_steps=2", "checkpoint.keep_last=1",
                         "eval.interval_steps=0", "checkpoint.local_dir=fast"};

/// All bytes below a directory, by name.
std::map<std::string, std::string> files_below(const fs::path& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    files[entry.path().string()] = entry.is_regular_file() ? read_bytes(entry.path()) : "";
  }
  return files;
}

fs::path local_of(const RunSite& site, const std::string& name) {
  return train::checkpoint::places_of(site.run(name), site / "fast").local;
}

Words named(const std::string& name, const Words& more = {}) {
  return joined(joined(kShortRun, {"run.name=" + name}), more);
}

/// A run on two nodes, each with a local place of its own.
struct NodesSite : RunSite {
  /// Of the head, then of the other one.
  [[nodiscard]] std::pair<Ended, Ended> call_nodes(const std::string& name,
                                                   const Words& more = {}) const {
    const Words keys = joined(named(name, {"checkpoint.local_dir=auto"}), more);
    ++job_;
    const auto start = [&](int node) {
      const std::string disk = (path() / fmt::format("disk{}", node)).string();
      const Words before = {"/usr/bin/env", "SLURM_TMPDIR=" + disk};
      return start_node(*this, node, job_, keys, "full", {.ranks = 2, .before = before});
    };
    const auto other = start(1);
    const auto head = start(0);
    Ended ended = head->wait();
    return {std::move(ended), other->wait()};
  }
  std::string train_nodes(const std::string& name, const Words& more = {}) const {
    const auto [head, other] = call_nodes(name, more);
    INFO("head: " << head.err << "\nother: " << other.err);
    CHECK(other.exit_code == 0);
    REQUIRE(head.exit_code == 0);
    return head.err + other.err;
  }
  [[nodiscard]] fs::path disk_of(int node, const std::string& name) const {
    return train::checkpoint::places_of(run(name), path() / fmt::format("disk{}", node)).local;
  }

 private:
  mutable int job_ = 80;
};

/// One line, and exit code 2.
std::string refusal(const Ended& ended) {
  INFO(ended.err);
  CHECK(ended.exit_code == 2);
  REQUIRE(lines_of(ended.err).size() == 1);
  return lines_of(ended.err).front();
}

}  // namespace

TEST_CASE("other run: a link to its local copies is refused, and all of them stay",
          "[integration][other_run][ST-11][P3]") {
  const RunSite site;
  site.train(named("theirs", {"checkpoint.keep_last=0"}));
  const fs::path theirs = local_of(site, "theirs");
  fs::copy(theirs / "step-00000006", theirs / "step-00000004");  // that a tidying would remove
  fs::create_directory_symlink(theirs.parent_path(), local_of(site, "mine").parent_path());
  const auto before = files_below(theirs);
  for (int start = 0; start < 2; ++start) {
    const std::string line = refusal(site.call(RunSite::run_words(named("mine"))));
    CHECK(has(line, local_of(site, "mine").parent_path().string() + ": is a symbolic link"));
    CHECK(has(line, "set checkpoint.local_dir to another directory"));
    CHECK(files_below(theirs) == before);
  }
  // The way out.
  fs::remove(local_of(site, "mine").parent_path());
  site.train(named("mine"));
  CHECK(files_below(theirs) == before);
  CHECK(fs::status(local_of(site, "mine").parent_path()).permissions() == fs::perms::owner_all);
  CHECK(checkpoint_steps(site.run("mine")) == std::vector<std::int64_t>{6});
}

TEST_CASE("other run: its checkpoints among a run's own are named, and stay",
          "[integration][other_run][CK-11][P3]") {
  const RunSite site;
  site.train(named("theirs", {"run.steps=8"}));
  site.train(named("mine"));
  fs::path place;
  SECTION("in the run's directory") { place = site.run("mine") / "checkpoints"; }
  SECTION("in its local place") { place = local_of(site, "mine"); }
  fs::copy(site.run("theirs") / "checkpoints/step-00000008", place / "step-00000008");
  const auto before = files_below(place);
  const auto check_named = [&](const Words& words) {
    const std::string line = refusal(site.call(words));
    CHECK(has(line, "step-00000008: is a checkpoint of another run, with identity "));
    CHECK(has(line, "move it out of "));
    CHECK(files_below(place) == before);
  };
  check_named(RunSite::run_words(named("mine", {"run.steps=10"})));
  if (place == site.run("mine") / "checkpoints") {
    check_named({"checkpoints", "reindex", "runs/mine"});
    check_named({"checkpoints", "prune", "runs/mine", "--keep-last", "1"});
    CHECK(site.call({"verify", "runs/theirs"}).exit_code == 0);
  }
  fs::rename(place / "step-00000008", site / "moved");
  const Ended ended = site.train(named("mine", {"run.steps=10"}));
  CHECK(has(ended.err, "resumed step=6 "));
}

TEST_CASE("other run: a run of an earlier version gets its identity once, with its checkpoints",
          "[integration][other_run][CK-11]") {
  const RunSite site;
  site.train(named("mine", {"checkpoint.keep_last=0"}));
  const auto forget_identity = [&](const fs::path& checkpoint) {
    auto manifest = train::checkpoint::read_manifest(checkpoint);
    REQUIRE(manifest.ok());
    manifest->fields.run_id.clear();
    write_bytes(checkpoint / "manifest.json", train::checkpoint::manifest_text(*manifest));
  };
  for (const auto& entry : fs::directory_iterator(site.run("mine") / "checkpoints")) {
    forget_identity(entry.path());
  }
  forget_identity(local_of(site, "mine") / "step-00000006");
  fs::remove(site.run("mine") / "identity");
  const Ended ended = site.train(named("mine", {"run.steps=8", "checkpoint.keep_last=0"}));
  CHECK(has(ended.err, "run_identity_given "));
  CHECK(has(ended.err, "taken as its own, as they name no run: "));
  CHECK(has(ended.err, "resumed step=6 "));
  const std::string identity = read_bytes(site.run("mine") / "identity");
  // What it adopted stays usable; it is said once.
  fs::remove_all(local_of(site, "mine"));
  fs::remove_all(site.run("mine") / "checkpoints/step-00000008");
  fs::remove_all(site.run("mine") / "index");
  const Ended again = site.train(named("mine", {"run.steps=8", "checkpoint.keep_last=0"}));
  CHECK(has(again.err, "resumed step=6 "));
  CHECK_FALSE(has(again.err, "run_identity_given "));
  CHECK(read_bytes(site.run("mine") / "identity") == identity);
  // Another one that names no run is not taken any more.
  const fs::path later = site.run("mine") / "checkpoints/step-00000008";
  forget_identity(later);
  fs::remove_all(site.run("mine") / "index");
  fs::remove_all(local_of(site, "mine"));
  const std::string line = refusal(site.call(RunSite::run_words(named("mine", {"run.steps=10"}))));
  CHECK(has(line, "step-00000008: is a checkpoint of another run, of a version that gave no "));
}

TEST_CASE("other run: a copied directory keeps its identity, and equal runs have two",
          "[integration][other_run][CK-11]") {
  const RunSite site;
  site.train(named("mine"));
  site.train(named("equal"));
  const std::string identity = read_bytes(site.run("mine") / "identity");
  CHECK(identity.size() == 33);
  CHECK(read_bytes(site.run("equal") / "identity") != identity);
  CHECK(results_of(site.run("mine")) == results_of(site.run("equal")));
  fs::copy(site.run("mine"), site.run("copy"), fs::copy_options::recursive);
  site.train(named("copy", {"run.steps=8"}));
  CHECK(read_bytes(site.run("copy") / "identity") == identity);
}

TEST_CASE("other run: its checkpoints on a disk of another node are named, and stay",
          "[integration][other_run][nodes][CK-11][P3]") {
  const NodesSite site;
  site.train_nodes("theirs", {"run.steps=8"});
  site.train_nodes("mine");
  const fs::path place = site.disk_of(1, "mine");
  fs::copy(site.disk_of(1, "theirs") / "step-00000008", place / "step-00000008");
  const auto before = files_below(place);
  const auto published = files_below(site.run("mine") / "checkpoints");
  const auto [head, other] = site.call_nodes("mine", {"run.steps=10"});
  INFO("head: " << head.err << "\nother: " << other.err);
  CHECK(head.exit_code == 2);
  CHECK(other.exit_code == 2);
  const std::string line = last_of(lines_of(head.err));
  CHECK(has(line, "error on "));  // which of the nodes' disks it is
  CHECK(has(line, (place / "step-00000008").string() + ": is a checkpoint of another run, with "));
  CHECK(files_below(place) == before);
  CHECK(files_below(site.run("mine") / "checkpoints") == published);
  fs::rename(place / "step-00000008", site / "moved");
  CHECK(has(site.train_nodes("mine", {"run.steps=10"}), "resumed step=6 "));
}

TEST_CASE(
    "other run: one that begins where another was erased sets that one's copies aside on "
    "every node",
    "[integration][other_run][nodes][CK-11][P3]") {
  const NodesSite site;
  site.train_nodes("mine");
  std::map<std::string, std::string> left[2];
  for (int node = 0; node < 2; ++node) {
    left[node] = files_below(site.disk_of(node, "mine"));
    REQUIRE_FALSE(left[node].empty());
  }
  const Words results = results_of(site.run("mine"));
  fs::remove_all(site.run("mine"));
  const std::string said = site.train_nodes("mine");
  CHECK(results_of(site.run("mine")) == results);  // of its own first step on
  for (int node = 0; node < 2; ++node) {
    const fs::path place = site.disk_of(node, "mine");
    const std::string id = read_bytes(site.run("mine") / "identity").substr(0, 8);
    const fs::path aside = place.parent_path() / ("before-" + id);
    CHECK(has(said, aside.string() + ": has step-00000006 of a run that had this directory "));
    std::map<std::string, std::string> found;
    for (const auto& [name, bytes] : files_below(aside)) {
      found[place / fs::relative(name, aside)] = bytes;
    }
    CHECK(found == left[node]);
    CHECK(names_in(place) == Words{"step-00000006"});
  }
  site.train_nodes("mine", {"run.steps=8"});  // and goes on by itself
}

TEST_CASE("other run: on several nodes none begins under a name that one of them alone knows",
          "[integration][other_run][nodes]") {
  const RunSite site;
  Words words = RunSite::run_words(
      rank_keys(2, "full", named("mine", {"parallel.nodes=2", "parallel.interface=lo"})));
  words.emplace_back("--fresh");
  const std::string line = refusal(site.call(words));
  CHECK(has(line, "parallel.nodes = 2: --fresh would move a directory "));
  CHECK(has(line, "set run.name"));
}
